package azure

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// Token is an access token of Microsoft Entra ID. It is immutable and prints as
// a redacted summary.
type Token struct {
	summary
	accessToken redact.Secret
	expiresAt   time.Time
	refreshAt   time.Time // zero: the service did not say
	tenant      string    // "" if it is not known
}

func newToken(accessToken string, expiresAt, refreshAt time.Time, tenant string) *Token {
	shown := summary("Azure access token, redacted, expires " + expiresAt.UTC().Format(time.RFC3339))
	return &Token{shown, redact.New(accessToken), expiresAt, refreshAt, tenant}
}

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// AccessToken returns the token in the SDK's type, which does not redact
// itself.
func (t *Token) AccessToken() azcore.AccessToken {
	return azcore.AccessToken{Token: t.accessToken.Reveal(), ExpiresOn: t.expiresAt, RefreshOn: t.refreshAt}
}

// ExpiresAt returns the time at which the token expires.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// RefreshAt returns the time at which the service wants a replacement, zero if
// it did not say.
func (t *Token) RefreshAt() time.Time { return t.refreshAt }

// Tenant returns the tenant of the identity. It is "" if the environment does
// not name the tenant of the controller's own identity.
func (t *Token) Tenant() string { return t.tenant }

// FromToken returns the access token in a token that [auth.GetAccessToken]
// returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	return provider.As[Token](self, t)
}
