package gcp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// target is the provider and the service account, and the token that should be able to use them.
type target struct {
	*doctor.TrustQuery

	provider, pool string // names; empty for the pool of a GKE cluster
}

// newTarget checks the names, which become parts of addresses.
func newTarget(q *doctor.TrustQuery) (*target, doctor.Finding) {
	t := &target{TrustQuery: q}
	named, universe := q.Annotations[annotation.GCPWorkloadIdentityProvider], ""
	if host, ok := strings.CutPrefix(strings.TrimPrefix(named, "https:"), "//iam."); ok {
		universe, _, _ = strings.Cut(host, "/")
	}
	if named != "" {
		w, err := gcpname.ParseWorkloadIdentityProvider(named, universe)
		if err != nil {
			return nil, doctor.Skipped("The annotation does not name a workload identity provider.")
		}
		t.provider = w.Name
		t.pool, _, _ = strings.Cut(w.Name, "/providers/")
	}
	if q.Identity != "" && gcpname.CheckServiceAccountEmail(q.Identity) != nil {
		return nil, doctor.Skipped("The identity is not the e-mail address of a service account.")
	}
	return t, doctor.Finding{}
}

const providersCommand = "gcloud iam workload-identity-pools providers "

func (t *target) showProvider() string { return providersCommand + "describe " + t.provider }

func (t *target) showPolicy() string {
	return "gcloud iam service-accounts get-iam-policy " + t.Identity
}

// correct is the remedy for an annotation that names the wrong object.
func (t *target) correct(when, key string) doctor.Remedy {
	value := map[string]string{annotation.GCPServiceAccount: "NAME@PROJECT_ID.iam.gserviceaccount.com",
		annotation.GCPWorkloadIdentityProvider: "projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"}[key]
	return doctor.Do(when, reading.Annotate(t.TrustQuery, key+"="+value))
}

func (t *target) correctProvider(when string) doctor.Remedy {
	return t.correct(when, annotation.GCPWorkloadIdentityProvider)
}

func (t *target) missingProvider() doctor.Finding {
	return doctor.Failed("G1", t.correctProvider("Correct the annotation:"), "Workload identity provider %s does not exist.", t.provider)
}

func (t *target) missingAccount() doctor.Finding {
	return doctor.Failed("G12", t.correct("Correct the annotation:", annotation.GCPServiceAccount), "Service account %s does not exist.", t.Identity)
}

func (t *target) offPool(state string) doctor.Finding {
	pools := "gcloud iam workload-identity-pools "
	return t.offObject("pool", state, pools+"undelete "+t.pool, pools+"update "+t.pool+" --no-disabled")
}

// offObject is the finding of a provider or a pool that is disabled or deleted.
func (t *target) offObject(what, state, undelete, enable string) doctor.Finding {
	change := enable
	if state == "DELETED" {
		change = undelete
	}
	remedy := t.correctProvider("If the provider is wrong:").OrTrust("If the "+what+" is meant to work", change)
	return doctor.Failed("G1", remedy, "The %s of the ServiceAccount does not work.", what).Compare("state", redact.Text(state), "needed", "ACTIVE")
}

// judgeProvider compares in the order of Google's own checks.
func (t *target) judgeProvider(p *provider) doctor.Finding {
	update := providersCommand + "update-oidc " + t.provider
	if state := p.off(); state != "" {
		return t.offObject("provider", state, providersCommand+"undelete "+t.provider, update+" --no-disabled")
	}
	if p.OIDC.IssuerURI != t.Claims.Issuer {
		return t.otherIssuer(p.OIDC.IssuerURI, update)
	}
	allowed := p.OIDC.AllowedAudiences
	if len(allowed) == 0 {
		allowed = t.ownAudiences()
	}
	switch reading.Audience(t.Claims.Audiences, allowed) {
	case doctor.Unknown:
		return reading.SeveralAudiences(t.Claims.Audiences, allowed)
	case doctor.Fail:
		list := strings.Join(append(slices.Clone(allowed), t.audience()), ",") // the command replaces the list
		remedy := t.correctProvider("If the provider is wrong:").OrTrust(reading.IfMeant(t.TrustQuery), update+" --allowed-audiences="+shell.Word(list, "AUDIENCES"))
		return doctor.Failed("G3", remedy, "The provider does not allow the token's audience.").
			Compare("token", reading.List(t.Claims.Audiences), "provider", reading.List(allowed))
	}
	if p.OIDC.JWKS != "" && !hasKey(p.OIDC.JWKS, t.Claims.KeyID) {
		remedy := t.correctProvider("If the provider is wrong:").OrTrust("If the provider belongs to this cluster, upload its current keys",
			"kubectl get --raw /openid/v1/jwks > keys.json", update+" --jwk-json-path=keys.json")
		return doctor.Failed("G5", remedy, "The keys that were uploaded to the provider lack the token's key.").
			Compare("token", "kid "+redact.Text(t.Claims.KeyID), "provider", "other keys")
	}
	return t.judgeExpressions(p)
}

func (t *target) judgeExpressions(p *provider) doctor.Finding {
	mapping := p.AttributeMapping["google.subject"]
	switch {
	case strings.TrimSpace(p.Condition) != "":
		return t.unclear("attribute condition", p.Condition)
	case mapping != "" && !p.mapsSubject():
		return t.unclear("mapping of google.subject", mapping)
	}
	return doctor.Passed("The workload identity provider trusts the token.")
}

func (t *target) unclear(what, expression string) doctor.Finding {
	return doctor.Unclear(doctor.Do("Compare it with the token:", t.showProvider()), "The doctor does not judge the provider's %s: %s",
		what, reading.Excerpt(expression)).Detail("expression", redact.Text(expression))
}

// otherIssuer offers a pool of its own for another cluster: an IAM policy names pool and subject, so two clusters in one pool share
// their rights.
func (t *target) otherIssuer(issuer, update string) doctor.Finding {
	uri := " --issuer-uri=" + shell.Word(t.Claims.Issuer, "ISSUER")
	message := "The provider trusts another issuer."
	remedy := t.correctProvider("If the kube context is right, and the provider is wrong:")
	if slip := reading.Slip(issuer, t.Claims.Issuer); slip != "" {
		message = "The issuer of the provider differs from the token's " + slip + "."
		remedy = doctor.Do("Correct the issuer of the provider. It must equal the token's.").OrTrust("If the provider belongs to this cluster", update+uri)
	} else {
		base, _, _ := strings.Cut(t.pool, "/workloadIdentityPools/")
		pool := base + "/workloadIdentityPools/NEW_POOL"
		remedy = remedy.OrTrust("If the project is meant to trust this cluster", "gcloud iam workload-identity-pools create "+pool,
			providersCommand+"create-oidc "+pool+"/providers/NEW_PROVIDER"+uri+" --attribute-mapping=google.subject=assertion.sub")
	}
	return doctor.Failed("G4", remedy, "%s", message).Compare("token", t.Claims.Issuer, "provider", redact.Text(issuer))
}

// ownAudiences are the ones that a provider allows if it lists none.
func (t *target) ownAudiences() []string {
	return []string{"//iam.googleapis.com/" + t.provider, "https://iam.googleapis.com/" + t.provider}
}

// audience returns the token's audience if a cloud may trust it without a second look, else a word to fill in.
func (t *target) audience() string {
	return reading.SafeAudience(t.Claims.Audiences, t.ownAudiences()...)
}

// hasKey goes by the key IDs. The exchange verifies the signature.
func hasKey(jwks, kid string) bool {
	var set struct {
		Keys []struct{ Kid string } `json:"keys"`
	}
	_ = json.Unmarshal([]byte(jwks), &set) // no keys then
	return slices.Contains(set.Keys, struct{ Kid string }{kid})
}

// names are the texts by which IAM policies name the ServiceAccount. Empty ones do not exist.
type names struct {
	usual    string // the one to grant, unless the provider makes the subject with an expression
	end      string // of the principal of a GKE cluster, whose project number is not known
	set, all string // the beginning of every set of the pool, and the whole pool
}

// names returns false for a token of neither a provider nor GKE. p is nil if the provider could not be read.
func (t *target) names(p *provider) (n names, ok bool) {
	c := &t.Claims
	i := slices.IndexFunc(c.Audiences, func(a string) bool { return strings.HasSuffix(a, ".svc.id.goog") })
	switch base := "//iam.googleapis.com/" + t.pool; {
	case t.provider != "":
		n.set, n.all = "principalSet:"+base+"/", "principalSet:"+base+"/*"
		if p != nil && p.mapsSubject() {
			n.usual = "principal:" + base + "/subject/" + c.Subject
		}
	case i >= 0:
		n.set, n.usual = "principalSet:", "serviceAccount:"+c.Audiences[i]+"["+c.Namespace+"/"+c.ServiceAccount+"]"
		n.end = "/workloadIdentityPools/" + c.Audiences[i] + "/subject/ns/" + c.Namespace + "/sa/" + c.ServiceAccount
	default:
		return n, false
	}
	return n, true
}

func (n *names) match(member string) bool {
	return member != "" && (member == n.usual || member == n.all) ||
		n.end != "" && strings.HasPrefix(member, "principal://") && strings.HasSuffix(member, n.end)
}

// judgeMembers looks for the ServiceAccount among the members that may act as the service account.
func (t *target) judgeMembers(p *provider, b *bindings) doctor.Finding {
	n, ok := t.names(p)
	unclear := func(why string) doctor.Finding {
		return doctor.Unclear(doctor.Do("Compare the bindings with the token:", t.showPolicy()), "%s", why)
	}
	isSet := func(m string) bool {
		return strings.HasPrefix(m, n.set) && !strings.HasSuffix(m, "/*") || m == "allUsers" || m == "allAuthenticatedUsers"
	}
	switch all := slices.Concat(b.members, b.doubtful); {
	case !ok:
		return doctor.Skipped("The token belongs to neither a workload identity provider nor GKE.")
	case slices.ContainsFunc(b.members, n.match):
		return doctor.Passed("Service account %s admits the ServiceAccount.", t.Identity)
	case slices.ContainsFunc(b.doubtful, n.match):
		return unclear("The service account admits the ServiceAccount under a condition, or by a custom role.")
	case n.usual == "":
		return unclear("The members are not comparable, because the mapping of google.subject is not known.")
	case slices.ContainsFunc(all, isSet):
		return unclear("The service account admits members that are named by an attribute.")
	}
	return t.notMember(&n, b)
}

// notMember recognizes the project's ID in place of its number. Roles on the project may admit the ServiceAccount nevertheless.
func (t *target) notMember(n *names, b *bindings) doctor.Finding {
	closest, message := "no member", "No binding on service account "+t.Identity+" names the ServiceAccount. Its project was not read."
	remedy := t.correct("If the service account is wrong:", annotation.GCPServiceAccount)
	_, end, _ := strings.Cut(n.usual, "/locations/")
	for _, m := range b.members {
		start, ok := strings.CutSuffix(m, "/locations/"+end)
		if strings.HasPrefix(m, "principal") && closest == "no member" {
			closest = m
		}
		if ok && !gcpname.ValidProjectNumber(start[strings.LastIndexByte(start, '/')+1:]) {
			closest, message = m, "The binding on the service account holds the project's ID in place of its number."
			remedy = doctor.Do("Write the project's number in the member of the binding.")
		}
	}
	remedy = remedy.OrTrust(reading.IfMeant(t.TrustQuery), "gcloud iam service-accounts add-iam-policy-binding "+t.Identity+
		" --role roles/iam.workloadIdentityUser --member "+shell.Word(n.usual, "PRINCIPAL"))
	return doctor.Failed("G10", remedy, "%s", message).Compare("needed", n.usual, "policy", redact.Text(closest))
}
