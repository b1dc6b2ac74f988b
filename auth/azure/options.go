package azure

import (
	"encoding/json"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

type (
	authorityKey struct{}
	claimsKey    struct{}
	tenantKey    struct{}
)

// Values of auth.Error.Option.
const optionAuthority, optionClouds = "azure.WithAuthorityHost", "azure.Provider.PrivateClouds"

// WithAuthorityHost sets the authority of a call, https://<host>, and with it
// the cloud: one of Microsoft's, one of [Provider.PrivateClouds], or the cloud
// of the controller's environment. [auth.WithSTSEndpoint] must not name another
// one.
func WithAuthorityHost(authority string) auth.Option {
	return auth.WithProviderOption(authorityKey{}, authority)
}

// withClaims adds the claims parameter of OpenID Connect Core 1.0, section 5.5:
// a JSON object.
func withClaims(claims string) auth.Option { return auth.WithProviderOption(claimsKey{}, claims) }

// withTenant refuses identities of another tenant.
func withTenant(tenant string) auth.Option { return auth.WithProviderOption(tenantKey{}, tenant) }

func claimsOf(opts *provider.Options) string {
	claims, _ := opts.Value(claimsKey{}).(string)
	return claims
}

// checkTenant compares the tenant of an identity with the one that the caller
// wants. A managed identity's tenant is unknown.
func checkTenant(tenant string, opts *provider.Options) error {
	wanted, _ := opts.Value(tenantKey{}).(string)
	if wanted == "" || tenant == "" || strings.EqualFold(wanted, tenant) {
		return nil
	}
	return self.Misconfigured(
		"give the tenant of the resource to the ServiceAccount or the controller, as the client writes it",
		"the client of the SDK wants a token of tenant %.100q, the identity lies in tenant %.100q", wanted, tenant)
}

// maxClaims bounds the claims of a resource, in bytes.
const maxClaims = 16 << 10

// mergeClaims adds the client capability cp1 to the claims of a challenge: the
// client understands claims challenges (continuous access evaluation).
func mergeClaims(claims string, continuousAccess bool) (string, error) {
	if claims == "" && !continuousAccess {
		return "", nil
	}
	request := map[string]any{}
	if claims != "" && (len(claims) > maxClaims || json.Unmarshal([]byte(claims), &request) != nil || request == nil) {
		return "", self.Misconfigured("pass on the claims of the resource's challenge",
			"the claims are not a JSON object of reasonable size")
	}
	if continuousAccess {
		token, ok := request["access_token"].(map[string]any)
		if !ok {
			token = map[string]any{}
			request["access_token"] = token
		}
		token["xms_cc"] = map[string]any{"values": []string{"CP1"}}
	}
	merged, err := json.Marshal(request)
	return string(merged), err
}
