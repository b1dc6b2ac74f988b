package exchange

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
)

// VaultRoleAnnotation names the role of Vault's JWT authentication as which a
// ServiceAccount logs in.
const VaultRoleAnnotation = annotationPrefix + "vault-role"

// VaultServer is where [NewVault] logs in. Address and KubernetesAudience are
// required.
type VaultServer struct {
	// Address is the server's https URL, such as
	// https://vault.example.com:8200.
	Address string
	// Mount is the path at which JWT authentication is mounted, perhaps of
	// several segments. Empty: jwt.
	Mount string
	// Namespace is a namespace of Vault Enterprise or OpenBao. Empty means the
	// root namespace.
	Namespace string
	// KubernetesAudience is the audience of the ServiceAccounts' tokens, one of
	// the role's bound_audiences.
	KubernetesAudience string
}

// NewVault returns a [Provider] for JWT authentication of Vault and OpenBao. A
// role has to bind the subject system:serviceaccount:<namespace>:<name> and the
// audience; each ServiceAccount needs [VaultRoleAnnotation]. Vault ignores the
// case of roles, so [auth.Policy.Authorize] sees them in lower case. Roles need
// token_type=batch and token_num_uses=0, because a cached token whose uses are
// limited fails others. The issued token is Vault's, for X-Vault-Token or
// Authorization: Bearer.
func NewVault(server VaultServer) *Provider {
	mount := strings.Trim(server.Mount, "/")
	if mount == "" {
		mount = "jwt"
	}
	return &Provider{
		Name: "vault", Endpoint: strings.TrimSuffix(server.Address, "/") + "/v1/auth/" +
			(&url.URL{Path: mount}).EscapedPath() + "/login",
		KubernetesAudience: server.KubernetesAudience, AnnotatedParameters: map[string]string{"role": VaultRoleAnnotation},
		service: vault{ownForm{oauthForm{name: "Vault", ownAudience: true}, []string{"role"}}, mount, server.Namespace},
	}
}

type vault struct {
	ownForm
	mount, namespace string
}

func (vault) ignoresCase(parameter string) bool { return parameter == "role" }

func (v vault) headers() map[string]string {
	if v.namespace == "" {
		return nil
	}
	return map[string]string{"X-Vault-Namespace": v.namespace}
}

func (v vault) reason(status int) (reason provider.Reason, place string) {
	if status != http.StatusNotFound {
		return "", ""
	}
	place = fmt.Sprintf("the mount %.200q", v.mount)
	if v.namespace != "" {
		place += fmt.Sprintf(" in the namespace %.200q", v.namespace)
	}
	return auth.ErrMisconfigured, place
}

func (vault) request(ctx context.Context, r *tokenRequest) (*http.Request, error) {
	return newJSONRequest(ctx, r.endpoint.String(), map[string]string{"role": r.parameters["role"], "jwt": r.SubjectToken})
}

func (vault) answer(_ *Provider, o exactjson.Object) (oauth.Answer, *auth.Error) {
	login := o.Object("auth")
	a := oauth.Answer{AccessToken: login.Text("client_token"), TokenType: "Bearer",
		ExpiresIn: login.Seconds("lease_duration"),
		Failed:    o.Has("errors"), Description: strings.Join(o.Texts("errors"), "; ")}
	switch {
	case a.Failed:
		return a, nil
	case login.Has("mfa_requirement"):
		return a, self.Misconfigured("exempt the role from MFA", "Vault requires a second factor for this role")
	case a.AccessToken == "":
		return a, self.Misconfigured("check the address and the mount", "the answer of Vault holds no client_token")
	}
	return a, nil
}
