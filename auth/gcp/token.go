package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	cloudauth "cloud.google.com/go/auth"
	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is an access token of Google Cloud. It is immutable and prints as a redacted summary.
type Token struct {
	accessToken redact.Secret
	email       string
	expiresAt   time.Time
}

// GetDuration implements auth.Token.
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// AccessToken returns the bearer token.
func (t *Token) AccessToken() string { return t.accessToken.Reveal() }

// ExpiresAt returns the time at which the token expires.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// ServiceAccountEmail returns the e-mail address of the service account that was impersonated. It is "" for the controller's
// own identity, and where the Kubernetes ServiceAccount acts itself.
func (t *Token) ServiceAccountEmail() string { return t.email }

// OAuth2Token returns a new value of the type of golang.org/x/oauth2. Unlike the Token it does not redact itself.
func (t *Token) OAuth2Token() *oauth2.Token {
	return &oauth2.Token{AccessToken: t.accessToken.Reveal(), TokenType: tokenType, Expiry: t.expiresAt}
}

// AuthToken returns a new value of the type of cloud.google.com/go/auth. Unlike the Token it does not redact itself.
func (t *Token) AuthToken() *cloudauth.Token {
	return &cloudauth.Token{Value: t.accessToken.Reveal(), Type: tokenType, Expiry: t.expiresAt}
}

const tokenType = "Bearer"

// FromToken returns the access token in a token that auth.GetAccessToken returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	own, ok := t.(*Token)
	if !ok || own == nil {
		return nil, self.Misconfigured("get it from auth.GetAccessToken with this provider, without WithIDTokenAudience",
			"the token is a %T, not a *gcp.Token", t)
	}
	return own, nil
}

// newToken takes over what a service answered, if it can be used.
func newToken(operation, accessToken, kind, email string, expiresAt, now time.Time) (*Token, error) {
	if err := checkAnswer(accessToken, expiresAt, now); err != nil {
		return nil, unusable(operation, err.Error())
	}
	if kind != "" && !strings.EqualFold(kind, tokenType) {
		return nil, unusable(operation, fmt.Sprintf("its token_type is %.50q", kind))
	}
	return &Token{accessToken: redact.New(accessToken), email: email, expiresAt: expiresAt}, nil
}

// maxLife is what no token lives longer than, with an hour for clocks that differ.
const maxLife = maxExtendedLifetime + time.Hour

func checkAnswer(token string, expiresAt, now time.Time) error {
	switch err := oauth.CheckToken(token); {
	case err != nil:
		return err
	case expiresAt.IsZero():
		return errors.New("it does not say when the token expires")
	case !expiresAt.After(now):
		return fmt.Errorf("its token expired at %s", expiresAt.UTC().Format(time.RFC3339))
	case expiresAt.Sub(now) > maxLife:
		return fmt.Errorf("its token expires at %s, later than any does", expiresAt.UTC().Format(time.RFC3339))
	}
	return nil
}

func unusable(operation, why string) *auth.Error {
	return self.Unavailable(operation, "check that it is Google's service that answers, and that the clocks agree",
		"the answer cannot be used: %s", why)
}

func (t Token) summary() string {
	who := ""
	if t.email != "" {
		who = " of " + t.email
	}
	return "GCP access token" + who + ", redacted, expires " + t.expiresAt.UTC().Format(time.RFC3339)
}

// String returns the redacted summary.
func (t Token) String() string { return t.summary() }

// Format prints the redacted summary under every verb.
func (t Token) Format(f fmt.State, _ rune) { redact.Print(f, t.summary()) }

// LogValue is the redacted summary for slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.summary()) }

// MarshalLog is the redacted summary for logr.
func (t Token) MarshalLog() any { return t.summary() }

// MarshalJSON encodes the redacted summary.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.summary()) }
