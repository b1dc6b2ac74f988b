package gcp

import (
	"slices"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/shell"
)

// names are the texts by which IAM policies name the ServiceAccount.
type names struct {
	// usual is the one to grant. Empty if the provider makes the subject with an expression.
	usual string
	// all are complete members, and, with a slash at the beginning, their ends.
	all []string
	// set begins the members that stand for a set of the pool.
	set string
}

// names returns false for a token of neither a provider nor GKE. p is nil if the provider could not be read.
func (t *target) names(p *provider) (n names, ok bool) {
	c := &t.Claims
	if t.provider != "" {
		base := "//iam.googleapis.com/" + t.pool
		n.set = "principalSet:" + base + "/"
		n.all = []string{n.set + "*"}
		if p != nil && p.mapsSubject() {
			n.usual = "principal:" + base + "/subject/" + c.Subject
			n.all = append(n.all, n.usual)
		}
		return n, true
	}
	i := slices.IndexFunc(c.Audiences, func(a string) bool { return strings.HasSuffix(a, ".svc.id.goog") })
	if i < 0 {
		return n, false
	}
	pool := c.Audiences[i]
	n.set, n.usual = "principalSet:", "serviceAccount:"+pool+"["+c.Namespace+"/"+c.ServiceAccount+"]"
	n.all = []string{n.usual, "/workloadIdentityPools/" + pool + "/subject/ns/" + c.Namespace + "/sa/" + c.ServiceAccount}
	return n, true
}

func (n *names) in(list []string) bool {
	return slices.ContainsFunc(list, func(member string) bool {
		return slices.ContainsFunc(n.all, func(name string) bool {
			return member == name || name[0] == '/' && strings.HasPrefix(member, "principal://") && strings.HasSuffix(member, name)
		})
	})
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
	case n.in(b.members):
		return doctor.Passed("Service account %s admits the ServiceAccount.", t.Identity)
	case n.in(b.doubtful):
		return unclear("The service account admits the ServiceAccount under a condition, or by a custom role.")
	case n.usual == "":
		return unclear("The members are not comparable, because the mapping of google.subject is not known.")
	case slices.ContainsFunc(all, isSet):
		return unclear("The service account admits members that are named by an attribute.")
	}
	return t.notMember(&n, b)
}

func (t *target) notMember(n *names, b *bindings) doctor.Finding {
	closest, message := "no member", "Service account "+t.Identity+" does not admit the ServiceAccount."
	_, subject, _ := strings.Cut(n.usual, "/subject/")
	remedy := t.correct("If the service account is wrong:", annotation.GCPServiceAccount)
	for _, m := range b.members {
		if strings.HasPrefix(m, "principal") && closest == "no member" {
			closest = m
		}
		if subject != "" && strings.HasSuffix(m, "/subject/"+subject) {
			closest = m
			message = "The policy of the service account names the subject in another project or pool."
			remedy = doctor.Do("Correct the member of the binding. It must hold the project's number.")
		}
	}
	remedy = remedy.OrTrust(reading.IfMeant(t.TrustQuery), "gcloud iam service-accounts add-iam-policy-binding "+t.Identity+
		" --role roles/iam.workloadIdentityUser --member "+shell.Word(n.usual, "PRINCIPAL"))
	return doctor.Failed("G10", remedy, "%s", message).Compare("needed", n.usual, "policy", reading.List([]string{closest}))
}
