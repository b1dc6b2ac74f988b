package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) gcpAnchor(ctx context.Context, anchors []Anchor) Finding {
	c := e.token.claims
	if len(anchors) == 0 {
		return skip("the pool of a GKE cluster trusts the token; it has no providers to look at")
	}
	a, ok := e.providerAmong(anchors)
	if !ok {
		return unknown("what was read is not the provider that the ServiceAccount names: "+shown(anchors[0].Name), e.howToRead())
	}
	allowed := a.Audiences
	if len(allowed) == 0 {
		resource := "//iam.googleapis.com/" + a.Name
		allowed = []string{resource, "https:" + resource}
	}
	switch {
	case a.Disabled != "":
		return fail("G1", "undelete what was deleted, or enable what is disabled; for its pool the same without \"providers\":\n"+
			"gcloud iam workload-identity-pools providers undelete "+shell.Word(a.Name, "PROVIDER_NAME")+"\n"+
			"gcloud iam workload-identity-pools providers update-oidc "+shell.Word(a.Name, "PROVIDER_NAME")+" --no-disabled",
			"the provider does not count: %s", shown(a.Disabled)).
			with(differs("state", a.Disabled, "ACTIVE"))
	case a.Issuer != c.Issuer:
		return fail("G4", e.trustIssuer(a), "the provider trusts another issuer: %s", difference(c.Issuer, a.Issuer)).
			with(differs("iss", c.Issuer, a.Issuer)).near(sameIssuer(a.Issuer, c.Issuer))
	case fitsAudience(allowed, c) == Unknown:
		return severalAudiences(allowed, c)
	case fitsAudience(allowed, c) == Fail:
		// The list is replaced.
		list := shell.Word(strings.Join(append(slices.Clone(allowed), e.audience), ","), "AUDIENCES")
		return fail("G3", "gcloud iam workload-identity-pools providers update-oidc "+
			shell.Word(a.Name, "PROVIDER_NAME")+" --allowed-audiences="+list,
			"the provider does not allow the token's audience").with(differs("aud", audiences(c.Audience), "one of "+audiences(allowed)))
	}
	if len(a.JWKS) > 0 {
		if f := e.judgeKeys(ctx, parseKeys(a.JWKS), "the keys that were uploaded to the provider"); f.Result != Pass {
			return f
		}
	}
	return e.judgeCEL(ctx, a)
}

// providerAmong finds the provider that the annotation names.
func (e *examination) providerAmong(anchors []Anchor) (a Anchor, ok bool) {
	named := e.serviceAccount().Annotations[poolProviderAnnotation]
	i := slices.IndexFunc(anchors, func(a Anchor) bool { return named == a.Name || a.Name != "" && strings.HasSuffix(named, "/"+a.Name) })
	if i < 0 {
		return a, false
	}
	return anchors[i], true
}

// maxGoogleSubject is how long google.subject may be, in bytes.
const maxGoogleSubject = 127

// judgeCEL is about the mapping of google.subject and the attribute condition.
func (e *examination) judgeCEL(ctx context.Context, a Anchor) Finding {
	subject, known := e.googleSubject(ctx, a)
	if known && len(subject) > maxGoogleSubject {
		return fail("G9", "map a shorter claim, or a part of one, to google.subject",
			"the mapped subject has %d bytes; Google allows %d", len(subject), maxGoogleSubject).with(differs("google.subject", subject, fmt.Sprintf("at most %d bytes", maxGoogleSubject)))
	}
	good := pass("the provider trusts the token")
	if !known && strings.TrimSpace(a.SubjectMapping) != "" { // without a subject, the token is refused
		good = unknown("what the provider makes of the token cannot be told: google.subject is "+shown(a.SubjectMapping),
			"see that the claims give a text of 1 to 127 bytes for it")
	}
	if strings.TrimSpace(a.Condition) == "" {
		return good
	}
	mapped := &subject
	if !known {
		mapped = nil
	}
	names := namesOf(e.payload(), mapped)
	admits, known := evaluateCEL(ctx, a.Condition, names).(bool)
	switch {
	case !known:
		return unknown("the attribute condition is too much for this check: "+shown(a.Condition), "compare it with the claims by hand")
	case !admits:
		f := fail("G8", "gcloud iam workload-identity-pools providers update-oidc "+shell.Word(a.Name, "PROVIDER_NAME")+
			" --attribute-condition=CONDITION", "the attribute condition rejects the token")
		return e.rejected(ctx, f, a.Condition, names, subject)
	}
	return good
}

// googleSubject is what the provider makes of the token. It reports false if that is not known.
func (e *examination) googleSubject(ctx context.Context, a Anchor) (string, bool) {
	subject, ok := evaluateCEL(ctx, a.SubjectMapping, namesOf(e.payload(), nil)).(string)
	return subject, ok && subject != ""
}

// judgeMembers looks for the principal among the members of the service account's policy.
func (e *examination) judgeMembers(ctx context.Context, trust *Trust) Finding {
	names, project := e.principals(ctx, trust)
	if project == "" {
		return unknown("the name by which policies know the ServiceAccount cannot be told without the provider", e.howToRead())
	}
	admits := func(list []string) bool {
		return slices.ContainsFunc(list, func(m string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return m == n || n[0] == '/' && strings.HasSuffix(m, n) })
		})
	}
	switch {
	case admits(trust.Members):
		return pass("the service account admits the ServiceAccount")
	case admits(trust.Conditional):
		return unknown("the service account admits the ServiceAccount under a condition, or by a role that is not known here",
			"compare the binding by hand")
	case len(names) == 1:
		provider, _ := e.providerAmong(trust.Anchors)
		return unknown("the provider makes the subject with an expression: "+firstOf(shown(provider.SubjectMapping), "which was not read"),
			"compare it with the members by hand")
	case slices.ContainsFunc(slices.Concat(trust.Members, trust.Conditional), func(m string) bool {
		return strings.HasPrefix(m, project) && !strings.Contains(m, "/subject/") || m == "allUsers" || m == "allAuthenticatedUsers"
	}):
		return unknown("the service account admits others of the pool by an attribute",
			"compare the attributes of the token with the members by hand")
	}
	return e.notMember(trust, names[0])
}

func (e *examination) notMember(trust *Trust, want string) Finding {
	_, subject, _ := strings.Cut(want, "/subject/")
	closest := ""
	for _, m := range trust.Members {
		if strings.HasPrefix(m, "principal") && (closest == "" || subject != "" && strings.HasSuffix(m, "/subject/"+subject)) {
			closest = m
		}
	}
	why := "the ServiceAccount has not the role roles/iam.workloadIdentityUser on the service account itself (grants on its project were not read)"
	if subject != "" && strings.HasSuffix(closest, "/subject/"+subject) {
		why = "the binding names another project or pool: it needs the project's number"
	}
	return fail("G10", "gcloud iam service-accounts add-iam-policy-binding "+e.emailWord()+" --role roles/iam.workloadIdentityUser --member "+shell.Word(want, "PRINCIPAL"), "%s", why).
		with(differs("member", firstOf(closest, "none"), want))
}

// principals are the members by which policies mean the ServiceAccount, the usual one first (those that begin with / are
// what the member ends in), and the beginning of those that mean a set of the pool. Where the subject is not known, the only
// name is that of everybody.
func (e *examination) principals(ctx context.Context, trust *Trust) (names []string, set string) {
	c := e.token.claims
	if len(trust.Anchors) > 0 {
		provider, ok := e.providerAmong(trust.Anchors)
		if !ok {
			return nil, ""
		}
		pool, _, _ := strings.Cut(provider.Name, "/providers/")
		base := "//iam.googleapis.com/" + pool
		everybody, set := "principalSet:"+base+"/*", "principalSet:"+base+"/"
		if subject, known := e.googleSubject(ctx, provider); known {
			return []string{"principal:" + base + "/subject/" + subject, everybody}, set
		}
		return []string{everybody}, set
	}
	for _, audience := range c.Audience {
		if strings.HasSuffix(audience, gkePool) {
			return []string{"serviceAccount:" + audience + "[" + c.Namespace + "/" + c.ServiceAccount + "]",
				"/workloadIdentityPools/" + audience + "/subject/ns/" + c.Namespace + "/sa/" + c.ServiceAccount}, "principal"
		}
	}
	return nil, ""
}

// withoutProvider names the annotation that is missing, where the metadata server of GKE was asked for want of it.
func (e *examination) withoutProvider(f Finding) Finding {
	if f.Class == "G15" && e.serviceAccount().Annotations[poolProviderAnnotation] == "" {
		f.Message = "the annotation " + poolProviderAnnotation + " is missing, without which a metadata server of GKE has to answer: " + f.Message
	}
	return f
}

// gkePool ends the audience of tokens for the workload identity pool of a project with GKE.
const gkePool = ".svc.id.goog"
