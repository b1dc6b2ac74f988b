package gcp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// IDToken is an OpenID Connect token that Google signed for a service account,
// see [WithIDTokenAudience]. It is immutable and prints as a redacted summary.
type IDToken struct {
	summary
	value     redact.Secret
	audience  string
	expiresAt time.Time
}

// GetDuration implements [auth.Token].
func (t *IDToken) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// Value returns the JWT.
func (t *IDToken) Value() string { return t.value.Reveal() }

// Audience returns the aud claim.
func (t *IDToken) Audience() string { return t.audience }

// ExpiresAt returns the time at which the token expires.
func (t *IDToken) ExpiresAt() time.Time { return t.expiresAt }

// FromIDToken returns the ID token in a token that [auth.GetAccessToken]
// returned for this provider and [WithIDTokenAudience].
func FromIDToken(t auth.Token) (*IDToken, error) {
	return provider.As[IDToken](self, t)
}

// newIDToken refuses an ID token that cannot be used.
func newIDToken(operation, value, audience string, now time.Time) (*IDToken, error) {
	claims, err := jwt.Parse(value)
	if err == nil {
		err = checkAnswer(value, claims.Expiry.Time, now)
	}
	if err == nil && !slices.Equal(claims.Audience, []string{audience}) {
		err = errors.New("it has another audience")
	}
	if err != nil {
		return nil, self.Unusable(operation, service, "the ID token: %v", err)
	}
	shown := fmt.Sprintf("Google ID token for %q, redacted, expires %s", audience,
		claims.Expiry.UTC().Format(time.RFC3339))
	return &IDToken{summary(shown), redact.New(value), audience, claims.Expiry.Time}, nil
}
