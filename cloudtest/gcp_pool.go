package cloudtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// providerPermission returns the action of a request for a provider and its
// permission.
func providerPermission(method, name string) (action, permission string) {
	switch {
	case strings.Contains(name, "/operations/"):
		return "providers.operations.get", "iam.workloadIdentityPoolProviders.get"
	case method == http.MethodPatch:
		return "providers.patch", "iam.workloadIdentityPoolProviders.update"
	}
	return "providers.get", "iam.workloadIdentityPoolProviders.get"
}

// administers reports whether a caller may read and change the named provider.
// The name may also name an operation. The caller holds the lock.
func (g *GCP) administers(caller GCPIdentity, host, name string) bool {
	name, _, _ = strings.Cut(name, "/operations/")
	p := g.providers["//"+host+"/"+name]
	return p != nil && caller.isOneOf(p.config.Admins)
}

// patchProvider replaces the uploaded keys of a provider, and returns an
// operation that completes at once. The caller holds the lock.
func (g *GCP) patchProvider(host, name, mask string, body []byte) (any, *googleError) {
	invalid := func(message string) (any, *googleError) {
		return nil, &googleError{status: http.StatusBadRequest, message: message}
	}
	p := g.providers["//"+host+"/"+name]
	var patch struct {
		OIDC struct {
			JWKS string `json:"jwksJson"`
		} `json:"oidc"`
	}
	switch {
	case p == nil:
		return nil, googleNotFound("Requested entity was not found.")
	case mask != "oidc.jwksJson":
		return invalid("The update mask is not imitated.")
	case json.Unmarshal(body, &patch) != nil:
		return invalid("Invalid JSON payload received.")
	case patch.OIDC.JWKS != "" && !isUploadable(patch.OIDC.JWKS):
		return invalid("Invalid JWKS JSON.")
	}
	changed := *p
	changed.config.JWKS = []byte(patch.OIDC.JWKS)
	changed.trust = newPoolTrust(changed.config)
	g.providers["//"+host+"/"+name] = &changed
	operation := name + "/operations/" + strings.ReplaceAll(uuid.NewString(), "-", "")
	g.operations[operation] = true
	return map[string]any{"name": operation}, nil
}

// The caller of operation holds the lock.
func (g *GCP) operation(name string) (any, *googleError) {
	if !g.operations[name] {
		return nil, googleNotFound("Requested entity was not found.")
	}
	return map[string]any{"name": name, "done": true}, nil
}

// isUploadable accepts RSA and EC keys with the members that Google documents.
func isUploadable(document string) bool {
	documented := []string{"kty", "alg", "use", "kid", "n", "e", "x", "y", "crv"}
	var set map[string][]map[string]string
	if json.Unmarshal([]byte(document), &set) != nil || len(set) != 1 || set["keys"] == nil {
		return false
	}
	for _, key := range set["keys"] {
		for member := range key {
			if !slices.Contains(documented, member) {
				return false
			}
		}
		if key["kty"] != "RSA" && key["kty"] != "EC" || key["kid"] == "" {
			return false
		}
	}
	return true
}
