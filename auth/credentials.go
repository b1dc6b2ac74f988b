package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/workloadid/workloadid/internal/redact"
)

// ArtifactRegistryCredentials are credentials for an artifact registry: a bearer token, or a user name and a password. They are
// a Token and an authn.Authenticator of go-containerregistry, are immutable, and print as a redacted summary.
type ArtifactRegistryCredentials struct {
	username         string
	password, bearer redact.Secret
	expiresAt        time.Time
}

var _ authn.Authenticator = (*ArtifactRegistryCredentials)(nil)

// NewArtifactRegistryCredentials returns credentials for registries that take a user name and a password. Providers call it.
func NewArtifactRegistryCredentials(username, password string, expiresAt time.Time) *ArtifactRegistryCredentials {
	return &ArtifactRegistryCredentials{username: username, password: redact.New(password), expiresAt: expiresAt}
}

// NewArtifactRegistryBearerCredentials returns credentials for registries that take a bearer token. Providers call it.
func NewArtifactRegistryBearerCredentials(token string, expiresAt time.Time) *ArtifactRegistryCredentials {
	return &ArtifactRegistryCredentials{bearer: redact.New(token), expiresAt: expiresAt}
}

// Authorization implements authn.Authenticator: the fields Username and Password, or RegistryToken for a bearer token. What it
// returns does not redact itself.
func (c *ArtifactRegistryCredentials) Authorization() (*authn.AuthConfig, error) {
	return &authn.AuthConfig{Username: c.username, Password: c.password.Reveal(), RegistryToken: c.bearer.Reveal()}, nil
}

// ExpiresAt returns the time at which the credentials expire.
func (c *ArtifactRegistryCredentials) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements Token.
func (c *ArtifactRegistryCredentials) GetDuration() time.Duration { return time.Until(c.expiresAt) }

func (c ArtifactRegistryCredentials) summary() string {
	return fmt.Sprintf("registry credentials of user %q, redacted, expire %s", c.username, rfc3339(c.expiresAt))
}

// String returns the redacted summary.
func (c ArtifactRegistryCredentials) String() string { return c.summary() }

// Format prints the redacted summary under every verb.
func (c ArtifactRegistryCredentials) Format(f fmt.State, _ rune) { redact.Print(f, c.summary()) }

// LogValue is the redacted summary for slog.
func (c ArtifactRegistryCredentials) LogValue() slog.Value { return slog.StringValue(c.summary()) }

// MarshalLog is the redacted summary for logr.
func (c ArtifactRegistryCredentials) MarshalLog() any { return c.summary() }

// MarshalJSON encodes the redacted summary.
func (c ArtifactRegistryCredentials) MarshalJSON() ([]byte, error) { return json.Marshal(c.summary()) }

// GitCredentials are credentials for Git over HTTPS: a bearer token, or a user name and a password. They are a Token, are
// immutable, and print as a redacted summary.
type GitCredentials struct {
	username         redact.Secret // may hold a session token
	password, bearer redact.Secret
	expiresAt        time.Time
}

// NewGitBasicCredentials is for providers whose Git servers want a user name and a password.
func NewGitBasicCredentials(username, password string, expiresAt time.Time) *GitCredentials {
	return &GitCredentials{username: redact.New(username), password: redact.New(password), expiresAt: expiresAt}
}

// NewGitBearerCredentials is for providers whose Git servers want a bearer token.
func NewGitBearerCredentials(token string, expiresAt time.Time) *GitCredentials {
	return &GitCredentials{bearer: redact.New(token), expiresAt: expiresAt}
}

// Username returns the user name, "" if there is a bearer token. It can hold a session token (AWS CodeCommit), so treat it
// as a secret.
func (c *GitCredentials) Username() string { return c.username.Reveal() }

// Password returns the password, "" if there is a bearer token.
func (c *GitCredentials) Password() string { return c.password.Reveal() }

// BearerToken returns the token for the header "Authorization: Bearer", "" if there is a user name.
func (c *GitCredentials) BearerToken() string { return c.bearer.Reveal() }

// ExpiresAt returns the time at which the credentials expire.
func (c *GitCredentials) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements Token.
func (c *GitCredentials) GetDuration() time.Duration { return time.Until(c.expiresAt) }

func (c GitCredentials) summary() string {
	return "Git credentials, redacted, expire " + rfc3339(c.expiresAt)
}

// String returns the redacted summary.
func (c GitCredentials) String() string { return c.summary() }

// Format prints the redacted summary under every verb.
func (c GitCredentials) Format(f fmt.State, _ rune) { redact.Print(f, c.summary()) }

// LogValue is the redacted summary for slog.
func (c GitCredentials) LogValue() slog.Value { return slog.StringValue(c.summary()) }

// MarshalLog is the redacted summary for logr.
func (c GitCredentials) MarshalLog() any { return c.summary() }

// MarshalJSON encodes the redacted summary.
func (c GitCredentials) MarshalJSON() ([]byte, error) { return json.Marshal(c.summary()) }

// RESTConfig is access to a Kubernetes cluster. It is a Token, is immutable, and prints as a redacted summary.
// GetClusterConfig makes a rest.Config of client-go from it that renews itself.
type RESTConfig struct {
	host      string
	bearer    redact.Secret
	caData    []byte
	expiresAt time.Time
}

// NewRESTConfig is for providers. host is the canonical address (ParseClusterAddress). caData are PEM certificates; without
// them the system's roots are trusted.
func NewRESTConfig(host, bearerToken string, caData []byte, expiresAt time.Time) *RESTConfig {
	return &RESTConfig{host: host, bearer: redact.New(bearerToken), caData: bytes.Clone(caData), expiresAt: expiresAt}
}

// Host returns the address of the API server, https://<host>:<port>.
func (c *RESTConfig) Host() string { return c.host }

// BearerToken returns the token for the API server.
func (c *RESTConfig) BearerToken() string { return c.bearer.Reveal() }

// CAData returns a copy of the cluster's certificate authority in PEM. Empty means that the system's roots are trusted.
func (c *RESTConfig) CAData() []byte { return bytes.Clone(c.caData) }

// ExpiresAt returns the time at which the bearer token expires.
func (c *RESTConfig) ExpiresAt() time.Time { return c.expiresAt }

// GetDuration implements Token.
func (c *RESTConfig) GetDuration() time.Duration { return time.Until(c.expiresAt) }

func (c RESTConfig) summary() string {
	return fmt.Sprintf("access to the cluster at %q, redacted, expires %s", c.host, rfc3339(c.expiresAt))
}

// String returns the redacted summary.
func (c RESTConfig) String() string { return c.summary() }

// Format prints the redacted summary under every verb.
func (c RESTConfig) Format(f fmt.State, _ rune) { redact.Print(f, c.summary()) }

// LogValue is the redacted summary for slog.
func (c RESTConfig) LogValue() slog.Value { return slog.StringValue(c.summary()) }

// MarshalLog is the redacted summary for logr.
func (c RESTConfig) MarshalLog() any { return c.summary() }

// MarshalJSON encodes the redacted summary.
func (c RESTConfig) MarshalJSON() ([]byte, error) { return json.Marshal(c.summary()) }

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
