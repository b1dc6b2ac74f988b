package agent_test

import (
	"maps"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// The agent reports the health of an add-on with the rights of AgentAddOnRBAC,
// and reads no Lease elsewhere.
func TestAddOnHealthOnTwoAPIServers(t *testing.T) {
	k := newAgentKube(t, "cluster3")
	k.ServeAddOns(addon.CRD())
	k.process(&regtest.Recorder{})
	k.RunAddOns(agent.AddOnOptions{KubeClient: &addOnDriver{name: "token", condition: "AddonTokenRefreshed"}}, 1)
	kubetest.Eventually(t, "the agent creates a ManagedCluster", func() bool { return k.Cluster(k.Name).Name != "" })
	k.accept()
	k.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: "addons"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "open-cluster-management:managedcluster:registration"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: k.Name, Name: "agent"}}})
	k.NewAddOn("search")
	says := func(what, want string) {
		t.Helper()
		k.UntilAddOn("search", what, func() bool {
			k.ReconcileAddOn("search") // the agent itself looks once a minute
			return k.Says("search", "Available") == want
		})
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.AddOnNamespace(), Name: "search"},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	regtest.Must(t, k.Local.Create(t.Context(), lease))
	says("a fresh Lease", "True/ManagedClusterAddOnLeaseUpdated")
	on, ok := k.AddOn("search").(*addon.ManagedClusterAddOn)
	if !ok {
		t.Fatal("not v1beta1")
	}
	on.Status.Namespace = "default"
	regtest.Must(t, k.Admin.Status().Update(t.Context(), on))
	says("a namespace without the agent's Role", "Unknown/ManagedClusterAddOnLeaseForbidden")
	used := map[string]bool{}
	for _, r := range k.Managed.Audit(t, "system:serviceaccount:"+k.Namespace+":registration-agent") {
		if r.Resource == "leases" && r.Namespace == k.AddOnNamespace() {
			used[r.Verb] = true
		}
	}
	if got := slices.Collect(maps.Keys(used)); !slices.Equal(got, []string{"get"}) {
		t.Errorf("the agent used the verbs %q of Leases", got)
	}
}
