package azure

import (
	"encoding/json"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

type (
	authorityKey struct{}
	claimsKey    struct{}
	tenantKey    struct{}
)

// WithAuthorityHost sets the authority of a call, https://<host>, and so its cloud: that of one of Microsoft's clouds, of
// Provider.PrivateClouds, or of the controller's environment. It excludes another one in auth.WithSTSEndpoint.
func WithAuthorityHost(authority string) auth.Option {
	return auth.WithProviderOption(authorityKey{}, authority)
}

// withClaims adds the claims parameter of OpenID Connect Core 1.0, section 5.5: a JSON object.
func withClaims(claims string) auth.Option { return auth.WithProviderOption(claimsKey{}, claims) }

// withTenant has the call refused if its identity lies in another tenant.
func withTenant(tenant string) auth.Option { return auth.WithProviderOption(tenantKey{}, tenant) }

func claimsOf(opts *auth.Options) string {
	claims, _ := opts.ProviderOption(claimsKey{}).(string)
	return claims
}

// checkTenant compares the tenant of an identity with the one that the caller wants. An unknown one is that of a managed
// identity, which has no other.
func checkTenant(tenant string, opts *auth.Options) error {
	wanted, _ := opts.ProviderOption(tenantKey{}).(string)
	if wanted == "" || tenant == "" || strings.EqualFold(wanted, tenant) {
		return nil
	}
	return self.Misconfigured("give the tenant of the resource to the ServiceAccount or the controller, as the client writes it",
		"the client of the SDK wants a token of tenant %.100q, the identity lies in tenant %.100q", wanted, tenant)
}

// maxClaims bounds what a resource can have us ask for, in bytes.
const maxClaims = 16 << 10

// mergeClaims adds the client capability cp1, which says that claims challenges are understood (continuous access
// evaluation), to the claims of a challenge.
func mergeClaims(claims string, continuousAccess bool) (string, error) {
	if claims == "" && !continuousAccess {
		return "", nil
	}
	if len(claims) > maxClaims {
		return "", badClaims()
	}
	request := map[string]any{}
	if claims != "" {
		if err := json.Unmarshal([]byte(claims), &request); err != nil || request == nil {
			return "", badClaims()
		}
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
	if err != nil {
		return "", badClaims()
	}
	return string(merged), nil
}

func badClaims() error {
	return self.Misconfigured("pass on what the challenge of the resource says", "the claims are not a JSON object of reasonable size")
}
