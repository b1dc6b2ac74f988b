package token

import (
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// Token is a ServiceAccount token. It is immutable and prints as a redacted
// summary.
type Token struct {
	summary
	jwt       redact.Secret
	expiresAt time.Time
}

// Reveal returns the JWT, for the Authorization header of a request to its
// audience.
func (t *Token) Reveal() string { return t.jwt.Reveal() }

// ExpiresAt returns the time at which the token expires.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// Reveal returns the JWT of a token that [auth.GetAccessToken] returned for
// this provider.
func Reveal(t auth.Token) (string, error) {
	own, err := FromToken(t)
	if err != nil {
		return "", err
	}
	return own.Reveal(), nil
}

// FromToken returns the ServiceAccount token in a token that
// [auth.GetAccessToken] returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	return provider.As[Token](self, t)
}
