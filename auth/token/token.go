package token

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a ServiceAccount token. It is immutable and prints as a redacted summary.
type Token struct {
	jwt       redact.Secret
	expiresAt time.Time
}

// Reveal returns the JWT, for the Authorization header of the service that it is meant for.
func (t *Token) Reveal() string { return t.jwt.Reveal() }

// ExpiresAt returns the time at which the token expires.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// GetDuration implements auth.Token.
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// Reveal returns the JWT of a token that auth.GetAccessToken returned for this provider.
func Reveal(t auth.Token) (string, error) {
	own, err := FromToken(t)
	if err != nil {
		return "", err
	}
	return own.Reveal(), nil
}

// FromToken returns the ServiceAccount token in a token that auth.GetAccessToken returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	own, ok := t.(*Token)
	if !ok || own == nil {
		return nil, self.Misconfigured("get it from auth.GetAccessToken with this provider",
			"the token is a %T, not a *token.Token", t)
	}
	return own, nil
}

func (t Token) summary() string {
	return "ServiceAccount token, redacted, expires " + t.expiresAt.UTC().Format(time.RFC3339)
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
