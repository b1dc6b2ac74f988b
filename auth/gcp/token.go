package gcp

import (
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// Token is an access token of Google Cloud. It is immutable and prints as a
// redacted summary.
type Token struct {
	summary
	accessToken redact.Secret
	email       string
	expiresAt   time.Time
}

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// AccessToken returns the bearer token.
func (t *Token) AccessToken() string { return t.accessToken.Reveal() }

// ExpiresAt returns the time at which the token expires.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// ServiceAccountEmail returns the e-mail address of the impersonated service
// account. It is "" for the controller's own identity, and where the Kubernetes
// ServiceAccount itself has access.
func (t *Token) ServiceAccountEmail() string { return t.email }

const tokenType = "Bearer"

// FromToken returns the access token in a token that [auth.GetAccessToken]
// returned for this provider, without [WithIDTokenAudience].
func FromToken(t auth.Token) (*Token, error) {
	return provider.As[Token](self, t)
}

// newToken refuses an answer that cannot be used.
func newToken(operation, accessToken, kind, email string, expiresAt, now time.Time) (*Token, error) {
	if err := checkAnswer(accessToken, expiresAt, now); err != nil {
		return nil, self.Unusable(operation, service, "%v", err)
	}
	if kind != "" && !strings.EqualFold(kind, tokenType) {
		return nil, self.Unusable(operation, service, "its token_type is %.50q", kind)
	}
	of := ""
	if email != "" {
		of = " of " + email
	}
	shown := summary("GCP access token" + of + ", redacted, expires " + expiresAt.UTC().Format(time.RFC3339))
	return &Token{shown, redact.New(accessToken), email, expiresAt}, nil
}

const (
	service = "Google" // in messages about its answers

	// maxLife is the longest lifetime of a token, plus one hour of clock skew.
	maxLife = maxExtendedLifetime + time.Hour
)

func checkAnswer(token string, expiresAt, now time.Time) error {
	if err := oauth.CheckToken(token); err != nil {
		return err
	}
	return provider.CheckExpiry(expiresAt, now, maxLife)
}
