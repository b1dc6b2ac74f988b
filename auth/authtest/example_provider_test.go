package authtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// Vault logs in to HashiCorp Vault with the ServiceAccount's token, at the auth method "jwt". One value serves a whole controller.
type Vault struct {
	Address string // https://<host>[:<port>], set by the controller
	clients provider.HTTPClients
}

// RoleAnnotation names the role in Vault that the ServiceAccount logs in with.
const RoleAnnotation = "vault.example.com/role"

// VaultToken holds its secret in a function, because packages that print, log or encode values never call one.
type VaultToken struct {
	reveal    func() string
	expiresAt time.Time
}

func (t *VaultToken) Reveal() string             { return t.reveal() }
func (t *VaultToken) GetDuration() time.Duration { return time.Until(t.expiresAt) }

func (*Vault) GetName() string { return "vault" }

func (*Vault) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return []string{"vault"}, nil
}

var validRole = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (*Vault) GetIdentity(sa *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	role := sa.Annotations[RoleAnnotation]
	if !validRole.MatchString(role) {
		return "", vaultError(auth.ErrMisconfigured, "set it to the name of a role in Vault", "the annotation %q is not a role: %.100q",
			RoleAnnotation, role)
	}
	return role, nil
}

func (*Vault) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	return nil, vaultError(auth.ErrMisconfigured, "name a ServiceAccount", "Vault has no identity for the controller itself")
}

func (v *Vault) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, _ *provider.Options) {
	key.Add("address", v.Address)
}

func (v *Vault) NewTokenForServiceAccount(ctx context.Context, jwt string, sa *corev1.ServiceAccount, opts *provider.Options,
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
	token := answer.Auth.Token
	if token == "" || answer.Auth.Lease <= 0 {
		return nil, vaultError(auth.ErrUnavailable, "check that the address is that of Vault", "the answer holds no token, or no lease")
	}
	return &VaultToken{func() string { return token }, start.Add(time.Duration(answer.Auth.Lease) * time.Second)}, nil
}

func (v *Vault) post(ctx context.Context, opts *provider.Options, path string, body map[string]string, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.Address+path, bytes.NewReader(encoded))
	if err != nil {
		return vaultError(auth.ErrMisconfigured, "use https://<host>[:<port>]", "the address %q is not a URL", v.Address)
	}
	resp, err := v.clients.For(opts).Do(r) // follows no redirect, reads at most 1 MiB
	if err != nil {
		e := vaultError(auth.ErrUnavailable, "check the address and the network", "no answer from Vault")
		e.Err = err
		return e
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(resp.Body)
	switch status := resp.StatusCode; {
	case status == http.StatusBadRequest || status == http.StatusForbidden:
		return refused(status, auth.ErrDenied, "bind the role in Vault to this ServiceAccount")
	case status == http.StatusTooManyRequests:
		return refused(status, auth.ErrThrottled, "")
	case status != http.StatusOK:
		return refused(status, auth.ErrUnavailable, "check that Vault runs and is unsealed")
	case err != nil || json.Unmarshal(content, into) != nil:
		return vaultError(auth.ErrUnavailable, "check that the address is that of Vault", "the answer is not the JSON of a login")
	}
	return nil
}

func vaultError(reason provider.Reason, remedy, format string, args ...any) *auth.Error {
	return &auth.Error{Reason: reason, Operation: "log in", Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func refused(status int, reason provider.Reason, remedy string) error {
	e := vaultError(reason, remedy, "Vault refused")
	e.StatusCode = status
	return e
}
