package hub_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

func withRelay(o *hub.Options) { o.Relay = true }

func relayRoleFor(cluster string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster) + ":relay"}}
}

// relayNames returns the users and groups that the relay may impersonate for a
// cluster.
func (h *hubTest) relayNames(cluster string) (names string) {
	h.t.Helper()
	role, binding := relayRoleFor(cluster), &rbacv1.ClusterRoleBinding{ObjectMeta: relayRoleFor(cluster).ObjectMeta}
	if bound := h.exists(binding); bound != h.exists(role) || bound && binding.Subjects[0].Name != "registration-relay" {
		h.t.Errorf("binding %+v of role %+v", binding, role)
	}
	for _, rule := range role.Rules {
		if len(rule.ResourceNames) == 0 {
			h.t.Errorf("a rule for all names: %+v", rule)
		}
		names += " " + strings.Join(rule.ResourceNames, " ")
	}
	return strings.TrimSpace(names)
}

// record names an agent in the role of a cluster, as the driver csr does.
func (h *hubTest) record(cluster, agent string) {
	h.t.Helper()
	role := roleFor(cluster)
	h.exists(role)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentAnnotation, agent)
	regtest.Must(h.t, h.client.Update(h.t.Context(), role))
}

func TestRelayActsAsRecordedAgents(t *testing.T) {
	h := newHubTest(t, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
	h.restart(withRelay)
	h.edit("c1", accept)
	expect := func(want string) {
		t.Helper()
		h.mustReconcile("c1")
		if got := h.relayNames("c1"); got != want {
			t.Errorf("the relay may act as %q, want %q", got, want)
		}
	}
	const groups = " system:open-cluster-management:c1 system:open-cluster-management:managed-clusters"
	expect("") // no agent is recorded
	h.record("c1", "first")
	expect("system:open-cluster-management:c1:first" + groups)
	h.record("c1", "second")
	expect("system:open-cluster-management:c1:second" + groups)
	role := relayRoleFor("c1")
	h.exists(role)
	role.Rules[0].ResourceNames = nil
	regtest.Must(t, h.client.Update(t.Context(), role))
	expect("system:open-cluster-management:c1:second" + groups)
	h.edit("c1", deny)
	expect("")
	h.edit("c1", accept)
	expect("system:open-cluster-management:c1:second" + groups)
	h.restart() // without the option
	expect("")
}

// The hub neither changes nor binds a role that something else has made.
func TestRelayRoleOfOthers(t *testing.T) {
	other := relayRoleFor("c1")
	other.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	h := newHubTest(t, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, other)
	h.restart(withRelay)
	h.edit("c1", accept)
	h.mustReconcile("c1")
	h.record("c1", "first")
	h.mustReconcile("c1")
	h.wantAccepted("c1", "False/RBACTaken")
	if h.exists(other); other.Rules[0].Verbs[0] != "*" ||
		h.exists(&rbacv1.ClusterRoleBinding{ObjectMeta: relayRoleFor("c1").ObjectMeta}) {
		t.Errorf("role %+v", other)
	}
}

// What the hub gives to clusters, the relay may do for them. Two of these
// resources occur only in SubjectAccessReviews about the agent itself.
func TestRelayMayDoWhatAgentsMayDo(t *testing.T) {
	h := newHubTest(t, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
	h.restart(func(o *hub.Options) { o.OCMAgents = true })
	h.edit("c1", accept)
	h.mustReconcile("c1")
	own := roleFor("c1")
	h.exists(own)
	// of TokenRBAC
	given := append(own.Rules,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
	for _, shared := range []string{"registration", "work"} {
		given = append(given, regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:managedcluster:"+shared)...)
	}
	asked := []string{"managedclustersets/join", "managedclusters/clientcertificates"}
	want := rightsIn(given, "impersonate-on:user-info:", asked)
	got := rightsIn(regtest.RulesOf(t, manifests.RelayConstrainedRBAC(), "open-cluster-management:relay"), "", nil)
	about := []string{"authentication.k8s.io selfsubjectreviews impersonate-on:user-info:create",
		"authorization.k8s.io selfsubjectaccessreviews impersonate-on:user-info:create"}
	want = append(want, about...)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("the relay may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// rightsIn returns each group, resource and verb of rules but for some
// resources.
func rightsIn(rules []rbacv1.PolicyRule, prefix string, without []string) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !slices.Contains(without, resource) {
						all = append(all, group+" "+resource+" "+prefix+verb)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
