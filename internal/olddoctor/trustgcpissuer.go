package doctor

import (
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

// trustIssuer is the remedy for a provider with another issuer. A provider of another cluster stays that: changed, it would
// lock that cluster's workloads out, and let this one's be whom the pool's members mean there. For the same reason a provider
// for this cluster belongs into a pool of its own: members are meant by pool and subject, whichever provider has vouched.
func (e *examination) trustIssuer(a Anchor) string {
	c := e.token.claims
	const providers = "gcloud iam workload-identity-pools providers "
	if meansIssuer(a.Issuer, c.Issuer) {
		return providers + "update-oidc " + shell.Word(a.Name, "PROVIDER_NAME") + " --issuer-uri=" + issuerOf(c)
	}
	base, _, ok := strings.Cut(a.Name, "/workloadIdentityPools/")
	if !ok {
		base = "projects/PROJECT_NUMBER/locations/global"
	}
	pool := base + "/workloadIdentityPools/NEW_POOL"
	return "if the provider is another cluster's, make one for this cluster and name that in the annotation:\n" +
		"gcloud iam workload-identity-pools create " + shell.Word(pool, "NEW_POOL") + "\n" +
		providers + "create-oidc " + shell.Word(pool+"/providers/NEW_PROVIDER", "NEW_PROVIDER") + " --issuer-uri=" + issuerOf(c) +
		" --attribute-mapping=google.subject=assertion.sub"
}

// sameIssuer is the correction of an issuer that is trusted. It is empty unless the token's is meant.
func sameIssuer(trusted, issuer string) string {
	if !meansIssuer(trusted, issuer) {
		return ""
	}
	return sameText
}

// sameText is the correction of an issuer or a subject that is trusted.
const sameText = "correct the text that the cloud trusts: it has to be exactly that of the token"

// meansIssuer says that one text is the other, written wrongly: with a slash at the end, or the host in capitals. Paths are
// compared as they stand, since somebody else may own the other one.
func meansIssuer(a, b string) bool {
	ua, errA := url.Parse(strings.TrimSuffix(a, "/"))
	ub, errB := url.Parse(strings.TrimSuffix(b, "/"))
	if errA != nil || errB != nil || ua.User != nil || ub.User != nil {
		return false
	}
	ua.Host, ub.Host = strings.ToLower(ua.Host), strings.ToLower(ub.Host)
	return ua.Host != "" && ua.String() == ub.String()
}
