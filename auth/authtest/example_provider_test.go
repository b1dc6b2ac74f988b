package authtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// Vault logs in to HashiCorp Vault with the ServiceAccount's token, at the auth
// method "jwt". One value serves a whole controller.
type Vault struct {
	Address string // https://<host>[:<port>], set by the controller
	clients provider.HTTPClients
}

// self makes the errors of the provider.
const self = provider.Name("vault")

// RoleAnnotation names the role in Vault that the ServiceAccount logs in with.
const RoleAnnotation = "vault.example.com/role"

// VaultToken holds its secret in a function, because packages that print, log
// or encode values never call one.
type VaultToken struct {
	reveal    func() string
	expiresAt time.Time
}

func (t *VaultToken) Reveal() string             { return t.reveal() }
func (t *VaultToken) GetDuration() time.Duration { return time.Until(t.expiresAt) }

func (*Vault) GetName() string { return string(self) }

func (*Vault) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return []string{"vault"}, nil
}

var validRole = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (*Vault) GetIdentity(sa *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	role := sa.Annotations[RoleAnnotation]
	if !validRole.MatchString(role) {
		return "", self.Misconfigured("set it to the name of a role in Vault", "the annotation %q is not a role: %.100q",
			RoleAnnotation, role)
	}
	return role, nil
}

func (*Vault) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	return nil, self.Misconfigured("name a ServiceAccount", "Vault has no identity for the controller itself")
}

func (*Vault) GetAnnotations() []string { return []string{RoleAnnotation} }

func (v *Vault) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, _ *provider.Options) {
	key.Add("address", v.Address)
}

func (v *Vault) NewTokenForServiceAccount(ctx context.Context, jwt string, sa *corev1.ServiceAccount,
	opts *provider.Options,
) (auth.Token, error) {
	role, err := v.GetIdentity(sa, opts)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Auth struct {
			Token string `json:"client_token"`
			Lease int    `json:"lease_duration"` // seconds
		} `json:"auth"`
	}
	start := time.Now()
	if err := v.post(ctx, opts, "/v1/auth/jwt/login", map[string]string{"role": role, "jwt": jwt}, &answer); err != nil {
		return nil, err
	}
	token, expiresAt := answer.Auth.Token, start.Add(time.Duration(answer.Auth.Lease)*time.Second)
	if token == "" {
		return nil, self.Unusable(logIn, "Vault", "the token is missing")
	}
	if err := provider.CheckExpiry(expiresAt, start, longestLease); err != nil {
		return nil, self.Unusable(logIn, "Vault", "%s", err)
	}
	return &VaultToken{func() string { return token }, expiresAt}, nil
}

const (
	logIn        = "log in"        // the operation in errors
	longestLease = 768 * time.Hour // Vault's default maximum
)

// FromToken returns the Vault token in a token of auth.GetAccessToken.
func FromToken(token auth.Token) (*VaultToken, error) { return provider.As[VaultToken](self, token) }

func (v *Vault) post(ctx context.Context, opts *provider.Options, path string, body map[string]string, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.Address+path, bytes.NewReader(encoded))
	if err != nil {
		return self.Misconfigured("use https://<host>[:<port>]", "the address %q is not a URL", v.Address)
	}
	resp, err := v.clients.For(opts).Do(r) // follows no redirect, reads at most 1 MiB
	if err != nil {
		return self.Unanswered(logIn, err, body["jwt"])
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(resp.Body)
	switch status := resp.StatusCode; {
	case status == http.StatusBadRequest || status == http.StatusForbidden:
		return withStatus(self.Denied("bind the role in Vault to this ServiceAccount", "Vault refused the role %q",
			body["role"]), status)
	case status == http.StatusTooManyRequests:
		return throttled(resp)
	case status != http.StatusOK:
		return withStatus(self.Unavailable(logIn, "check that Vault runs and is unsealed", "Vault failed"), status)
	case err != nil || json.Unmarshal(content, into) != nil:
		return self.Unusable(logIn, "Vault", "it is not the JSON of a login")
	}
	return nil
}

// throttled also keeps the Retry-After header of the answer.
func throttled(resp *http.Response) error {
	e := self.Refused(logIn, resp.StatusCode, resp.Header)
	e.Reason, e.Message = auth.ErrThrottled, "Vault limits the rate of logins"
	return e
}

func withStatus(e *auth.Error, status int) error {
	e.StatusCode = status
	return e
}
