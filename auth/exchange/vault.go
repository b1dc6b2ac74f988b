package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/oauth"
)

// VaultRoleAnnotation names the role of Vault's JWT authentication as which a ServiceAccount logs in.
const VaultRoleAnnotation = annotationPrefix + "vault-role"

// VaultServer is where NewVault logs in. Address and KubernetesAudience are required.
type VaultServer struct {
	// Address is the server's https URL, such as https://vault.example.com:8200.
	Address string
	// Mount is the path at which JWT authentication is mounted, perhaps of several segments. Empty: jwt.
	Mount string
	// Namespace is that of Vault Enterprise and OpenBao. Empty: the root namespace.
	Namespace string
	// KubernetesAudience is the audience of the ServiceAccounts' tokens, one of the role's bound_audiences.
	KubernetesAudience string
}

// NewVault returns a Provider for JWT authentication of Vault and OpenBao. A role has to bind the subject
// system:serviceaccount:<namespace>:<name> and the audience; each ServiceAccount needs VaultRoleAnnotation. Vault ignores the case
// of roles, so auth.Policy.Authorize sees them in lower case. Roles need token_type=batch and token_num_uses=0, because a cached
// token whose uses are limited fails others. The issued token is Vault's, for X-Vault-Token or Authorization: Bearer.
func NewVault(server VaultServer) *Provider {
	mount := strings.Trim(server.Mount, "/")
	if mount == "" {
		mount = "jwt"
	}
	p := &Provider{
		Name: "vault", Endpoint: strings.TrimSuffix(server.Address, "/") + "/v1/auth/" + (&url.URL{Path: mount}).EscapedPath() + "/login",
		KubernetesAudience: server.KubernetesAudience, AnnotatedParameters: map[string]string{"role": VaultRoleAnnotation},
		protocol: &protocol{name: "Vault", ownAudience: true, foldsCase: []string{"role"}, parameters: []string{"role"}, answer: vaultAnswer,
			reasons: map[int]provider.Reason{http.StatusNotFound: auth.ErrMisconfigured}, place: fmt.Sprintf("the mount %.200q", mount),
			request: func(ctx context.Context, r *tokenRequest) (*http.Request, error) {
				return newJSONRequest(ctx, r.endpoint.String(), map[string]string{"role": r.parameters["role"], "jwt": r.SubjectToken})
			}},
	}
	if server.Namespace != "" {
		p.protocol.headers = map[string]string{"X-Vault-Namespace": server.Namespace}
		p.protocol.place += fmt.Sprintf(" in the namespace %.200q", server.Namespace)
	}
	return p
}

func vaultAnswer(o oauth.Object) (oauth.Answer, *auth.Error) {
	var refusals []string
	_ = json.Unmarshal(o["errors"], &refusals) // stays empty
	login, _ := oauth.ParseObject(o["auth"])   // nil if it is no object
	a := oauth.Answer{AccessToken: login.Text("client_token"), TokenType: "Bearer", ExpiresIn: login.Seconds("lease_duration"),
		Failed: o["errors"] != nil && string(o["errors"]) != "null", Description: strings.Join(refusals, "; ")}
	switch {
	case a.Failed:
		return a, nil
	case login["mfa_requirement"] != nil && string(login["mfa_requirement"]) != "null":
		return a, self.Misconfigured("exempt the role from MFA", "Vault requires a second factor for this role")
	case a.AccessToken == "":
		return a, self.Misconfigured("check the address and the mount", "the answer of Vault holds no client_token")
	}
	return a, nil
}
