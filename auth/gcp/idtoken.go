package gcp

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// IDToken is an OpenID Connect token that Google signed for a service account: what WithIDTokenAudience asks for. It is
// immutable and prints as a redacted summary.
type IDToken struct {
	value     redact.Secret
	audience  string
	expiresAt time.Time
}

// GetDuration implements auth.Token.
func (t *IDToken) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// Value returns the JWT.
func (t *IDToken) Value() string { return t.value.Reveal() }

// Audience returns the aud claim.
func (t *IDToken) Audience() string { return t.audience }

// ExpiresAt returns the time at which the token expires.
func (t *IDToken) ExpiresAt() time.Time { return t.expiresAt }

// FromIDToken returns the ID token in a token that auth.GetAccessToken returned for this provider and WithIDTokenAudience.
func FromIDToken(t auth.Token) (*IDToken, error) {
	own, ok := t.(*IDToken)
	if !ok || own == nil {
		return nil, self.Misconfigured("get it from auth.GetAccessToken with this provider and WithIDTokenAudience",
			"the token is a %T, not a *gcp.IDToken", t)
	}
	return own, nil
}

// newIDToken takes over what a service answered, if it is what was asked for.
func newIDToken(operation, value, audience string, now time.Time) (*IDToken, error) {
	claims, err := jwt.Parse(value)
	if err != nil {
		return nil, unusable(operation, "the ID token: "+err.Error())
	}
	if !slices.Equal(claims.Audience, []string{audience}) {
		return nil, unusable(operation, "the ID token has another audience")
	}
	if err := checkAnswer(value, claims.Expiry.Time, now); err != nil {
		return nil, unusable(operation, err.Error())
	}
	return &IDToken{value: redact.New(value), audience: audience, expiresAt: claims.Expiry.Time}, nil
}

func (t IDToken) summary() string {
	return fmt.Sprintf("Google ID token for %q, redacted, expires %s", t.audience, t.expiresAt.UTC().Format(time.RFC3339))
}

// String returns the redacted summary.
func (t IDToken) String() string { return t.summary() }

// Format prints the redacted summary under every verb.
func (t IDToken) Format(f fmt.State, _ rune) { redact.Print(f, t.summary()) }

// LogValue is the redacted summary for slog.
func (t IDToken) LogValue() slog.Value { return slog.StringValue(t.summary()) }

// MarshalLog is the redacted summary for logr.
func (t IDToken) MarshalLog() any { return t.summary() }

// MarshalJSON encodes the redacted summary.
func (t IDToken) MarshalJSON() ([]byte, error) { return json.Marshal(t.summary()) }
