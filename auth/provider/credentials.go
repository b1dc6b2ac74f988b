package provider

import (
	"bytes"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a short-lived credential. Its content differs from provider to
// provider, which the adapters and the function FromToken of each provider give
// access to.
//
//	GetDuration() time.Duration // how long the credential is still valid, approximately from now
//
// A Token is immutable and is shared between all callers that ask for the same
// credential. Every Token of this module prints as a redacted summary under all
// formatting verbs, in slog, in logr and in JSON.
type Token = cache.Token

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// ArtifactRegistryCredentials are credentials for an artifact registry: a
// bearer token, or a user name and a password. They are a [Token] and an
// [authn.Authenticator] of go-containerregistry, are immutable, and print as a
// redacted summary.
type ArtifactRegistryCredentials struct {
	summary
	username         string
	password, bearer redact.Secret
	expiresAt        time.Time
}

var _ authn.Authenticator = (*ArtifactRegistryCredentials)(nil)

// NewArtifactRegistryCredentials returns the credentials that a provider
// obtained.
func NewArtifactRegistryCredentials(username, password string, expiresAt time.Time) *ArtifactRegistryCredentials {
	shown := fmt.Sprintf("registry credentials of user %q, redacted, expire %s", username, rfc3339(expiresAt))
	return &ArtifactRegistryCredentials{summary: summary(shown), username: username, password: redact.New(password),
		expiresAt: expiresAt}
}

// NewArtifactRegistryBearerCredentials returns credentials for registries that
// take a bearer token.
func NewArtifactRegistryBearerCredentials(token string, expiresAt time.Time) *ArtifactRegistryCredentials {
	shown := "registry credentials, a bearer token, redacted, expire " + rfc3339(expiresAt)
	return &ArtifactRegistryCredentials{summary: summary(shown), bearer: redact.New(token), expiresAt: expiresAt}
}

// Authorization implements [authn.Authenticator]. The result does not redact
// itself.
func (c *ArtifactRegistryCredentials) Authorization() (*authn.AuthConfig, error) {
	return &authn.AuthConfig{Username: c.username, Password: c.password.Reveal(), RegistryToken: c.bearer.Reveal()}, nil
}

// ExpiresAt returns the time at which the credentials expire.
func (c *ArtifactRegistryCredentials) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements [Token].
func (c *ArtifactRegistryCredentials) GetDuration() time.Duration { return time.Until(c.expiresAt) }

// GitCredentials are credentials for Git over HTTPS: a bearer token, or a user
// name and a password. They are a [Token], are immutable, and print as a
// redacted summary.
type GitCredentials struct {
	summary
	username         redact.Secret // may hold a session token
	password, bearer redact.Secret
	expiresAt        time.Time
}

// NewGitBasicCredentials returns credentials for Git servers that take a user
// name and a password.
func NewGitBasicCredentials(username, password string, expiresAt time.Time) *GitCredentials {
	return &GitCredentials{summary: gitSummary(expiresAt), username: redact.New(username), password: redact.New(password),
		expiresAt: expiresAt}
}

// NewGitBearerCredentials returns credentials for Git servers that take a
// bearer token.
func NewGitBearerCredentials(token string, expiresAt time.Time) *GitCredentials {
	return &GitCredentials{summary: gitSummary(expiresAt), bearer: redact.New(token), expiresAt: expiresAt}
}

func gitSummary(expiresAt time.Time) summary {
	return summary("Git credentials, redacted, expire " + rfc3339(expiresAt))
}

// Username returns the user name, "" if there is a bearer token. It can hold a
// session token (AWS CodeCommit), so treat it as a secret.
func (c *GitCredentials) Username() string { return c.username.Reveal() }

// Password returns the password, "" if there is a bearer token.
func (c *GitCredentials) Password() string { return c.password.Reveal() }

// BearerToken returns the token for the header "Authorization: Bearer", "" if
// there is a user name.
func (c *GitCredentials) BearerToken() string { return c.bearer.Reveal() }

// ExpiresAt returns the time at which the credentials expire.
func (c *GitCredentials) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements [Token].
func (c *GitCredentials) GetDuration() time.Duration { return time.Until(c.expiresAt) }

// RESTConfig is access to a Kubernetes cluster. It is a [Token], is immutable,
// and prints as a redacted summary. auth.GetClusterConfig makes a rest.Config
// of client-go from it that renews itself.
type RESTConfig struct {
	summary
	host      string
	bearer    redact.Secret
	caData    []byte
	expiresAt time.Time
}

// NewRESTConfig returns the access that a provider obtained. host is the
// canonical address ([ParseClusterAddress]). caData are PEM certificates;
// without them the system's roots are trusted.
func NewRESTConfig(host, bearerToken string, caData []byte, expiresAt time.Time) *RESTConfig {
	shown := fmt.Sprintf("access to the cluster at %q, redacted, expires %s", host, rfc3339(expiresAt))
	return &RESTConfig{summary(shown), host, redact.New(bearerToken), bytes.Clone(caData), expiresAt}
}

// Host returns the address of the API server, https://<host>:<port>.
func (c *RESTConfig) Host() string { return c.host }

// BearerToken returns the token for the API server.
func (c *RESTConfig) BearerToken() string { return c.bearer.Reveal() }

// CAData returns a copy of the cluster's CA certificates in PEM. Empty means
// that the system's roots are trusted.
func (c *RESTConfig) CAData() []byte { return bytes.Clone(c.caData) }

// ExpiresAt returns the time at which the bearer token expires.
func (c *RESTConfig) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements [Token].
func (c *RESTConfig) GetDuration() time.Duration { return time.Until(c.expiresAt) }

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
