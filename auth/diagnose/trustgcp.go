package diagnose

import (
	"context"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) gcpAnchor(ctx context.Context, anchors []Anchor) Finding {
	c := e.token.claims
	if len(anchors) == 0 {
		return skip("the pool of a GKE cluster trusts the token; it has no providers to look at")
	}
	a := anchors[0]
	allowed := a.Audiences
	if len(allowed) == 0 {
		resource := "//iam.googleapis.com/" + a.Name
		allowed = []string{resource, "https:" + resource}
	}
	switch {
	case a.Disabled != "":
		return fail("G1", "gcloud iam workload-identity-pools providers undelete (of a pool: workload-identity-pools undelete), or with --no-disabled: update-oidc (of a pool: update)",
			"the provider does not count: %s", shown(a.Disabled)).
			with(differs("state", a.Disabled, "ACTIVE"))
	case a.Issuer != c.Issuer:
		return fail("G4", "gcloud iam workload-identity-pools providers update-oidc --issuer-uri="+issuerOf(c),
			"the provider trusts another issuer: %s", difference(c.Issuer, a.Issuer)).with(differs("iss", c.Issuer, a.Issuer))
	case !slices.ContainsFunc(c.Audience, func(aud string) bool { return slices.Contains(allowed, aud) }):
		return fail("G3", "gcloud iam workload-identity-pools providers update-oidc --allowed-audiences="+shell.Word(strings.Join(c.Audience, ","), "<audience>"),
			"the provider does not allow the token's audience").with(differs("aud", audiences(c.Audience), "one of "+audiences(allowed)))
	}
	if len(a.JWKS) > 0 {
		if f := e.judgeKeys(ctx, parseKeys(a.JWKS), "the keys that were uploaded to the provider"); f.Result != Pass {
			return f
		}
	}
	admits, known := evaluateCondition(a.Condition, c)
	switch {
	case known && !admits:
		return fail("G8", "gcloud iam workload-identity-pools providers update-oidc --attribute-condition=<CEL>", "the attribute condition rejects the token").
			with(differs("assertion.sub", c.Subject, a.Condition))
	case !known:
		return unknown("the attribute condition is too much for this check: "+shown(a.Condition), "compare it with the claims by hand")
	}
	return pass("the provider trusts the token")
}

// evaluateCondition knows == and startsWith and in on assertion.sub and google.subject, alone.
func evaluateCondition(condition string, c *Claims) (admits, known bool) {
	condition = strings.TrimSpace(condition)
	if condition == "" {
		return true, true
	}
	for _, name := range []string{"assertion.sub", "google.subject"} {
		rest, ok := strings.CutPrefix(condition, name)
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		if value, ok := strings.CutPrefix(rest, "=="); ok {
			text, ok := quoted(value)
			return text == c.Subject, ok
		}
		if value, ok := strings.CutPrefix(rest, ".startsWith("); ok {
			text, ok := quoted(strings.TrimSuffix(value, ")"))
			return strings.HasPrefix(c.Subject, text), ok
		}
		if value, ok := strings.CutPrefix(rest, "in"); ok {
			list := strings.TrimSpace(value)
			if !strings.HasPrefix(list, "[") || !strings.HasSuffix(list, "]") {
				return false, false
			}
			for item := range strings.SplitSeq(list[1:len(list)-1], ",") {
				text, ok := quoted(item)
				if !ok {
					return false, false
				}
				admits = admits || text == c.Subject
			}
			return admits, true
		}
	}
	return false, false
}

// quoted takes the quotes off a text that holds none itself.
func quoted(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' || strings.ContainsAny(s[1:len(s)-1], `"'\`) {
		return "", false
	}
	return s[1 : len(s)-1], true
}

// judgeMembers looks for the principal among the members of the service account's policy.
func (e *examination) judgeMembers(trust *Trust) Finding {
	names, project := e.principals(trust)
	if len(names) == 0 {
		return unknown("the name by which policies know the ServiceAccount cannot be told without the provider", e.howToRead())
	}
	want := names[0]
	admits := func(list []string) bool {
		return slices.ContainsFunc(list, func(m string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return m == n || n[0] == '/' && strings.HasSuffix(m, n) })
		})
	}
	switch {
	case admits(trust.Members):
		return pass("the service account admits the ServiceAccount")
	case admits(trust.Conditional):
		return unknown("the service account admits the ServiceAccount under a condition",
			"compare the binding's condition by hand")
	case len(trust.Anchors) > 0 && !slices.Contains([]string{"", "assertion.sub"}, trust.Anchors[0].SubjectMapping):
		return unknown("the provider makes the subject with an expression: "+shown(trust.Anchors[0].SubjectMapping),
			"compare it with the members by hand")
	case slices.ContainsFunc(trust.Members, func(m string) bool {
		return strings.HasPrefix(m, project) && !strings.Contains(m, "/subject/")
	}):
		return unknown("the service account admits others of the pool by an attribute",
			"compare the attributes of the token with the members by hand")
	}
	closest := ""
	for _, m := range trust.Members {
		if strings.HasPrefix(m, "principal") && (closest == "" || strings.HasSuffix(m, e.token.claims.Subject)) {
			closest = m
		}
	}
	why := "the ServiceAccount has not the role roles/iam.workloadIdentityUser on the service account"
	if strings.HasSuffix(closest, "/subject/"+e.token.claims.Subject) {
		why = "the binding names another project or pool: it needs the project's number"
	}
	email := shell.Word(e.serviceAccount().Annotations["iam.gke.io/gcp-service-account"], "<email>")
	return fail("G10", "gcloud iam service-accounts add-iam-policy-binding "+email+" --role roles/iam.workloadIdentityUser --member "+shell.Word(want, "<member>"), "%s", why).
		with(differs("member", firstOf(closest, "none"), want))
}

// principals are the members by which policies mean the ServiceAccount, the usual one first (those that begin with / are
// what the member ends in), and the beginning of those that mean a set of the pool.
func (e *examination) principals(trust *Trust) (names []string, set string) {
	c := e.token.claims
	if len(trust.Anchors) > 0 {
		pool, _, _ := strings.Cut(trust.Anchors[0].Name, "/providers/")
		base := "//iam.googleapis.com/" + pool
		return []string{"principal:" + base + "/subject/" + c.Subject, "principalSet:" + base + "/*"}, "principalSet:" + base + "/"
	}
	for _, audience := range c.Audience {
		if strings.HasSuffix(audience, gkePool) {
			return []string{"serviceAccount:" + audience + "[" + c.Namespace + "/" + c.ServiceAccount + "]",
				"/workloadIdentityPools/" + audience + "/subject/ns/" + c.Namespace + "/sa/" + c.ServiceAccount}, "principal"
		}
	}
	return nil, ""
}

// gkePool ends the audience of tokens for the workload identity pool of a project with GKE.
const gkePool = ".svc.id.goog"
