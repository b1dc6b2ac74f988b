package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// runCSR runs a hub with the driver csr as a user, until it has checked n
// clusters.
func (k *hubKube) runCSR(t *testing.T, user string, n int) (stop func()) {
	t.Helper()
	rules := append(regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:csr"), k.rules...)
	mgr := regtest.NewManager(t, k.Hub.User(t, user, "", rules...), hub.CacheOptions())
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	regtest.Must(t, err)
	metrics := prometheus.NewRegistry()
	h, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver},
		Default: registration.AuthTypeCSR, Registerer: metrics})
	regtest.Must(t, err)
	regtest.Must(t, h.SetupWithManager(mgr, 4))
	stop = kubetest.RunManager(t, mgr)
	want := fmt.Sprintf(`# HELP registration_hub_clusters Clusters of this hub, by state.
# TYPE registration_hub_clusters gauge
registration_hub_clusters{state="accepted"} %d
`, n)
	kubetest.Eventually(t, "the hub has checked all clusters", func() bool {
		return testutil.GatherAndCompare(metrics, strings.NewReader(want), "registration_hub_clusters") == nil
	})
	return stop
}

// After a restart the hub reads clusters that need nothing from two lists.
func (k *hubKube) testRestart(t *testing.T) {
	const clusters, constant = 20, 40 // the latter are discovery, lists and watches
	name := func(i int) string { return fmt.Sprint("restart", i) }
	for i := range clusters {
		regtest.Must(t, k.Admin.Create(t.Context(), managedCluster(name(i), accept)))
	}
	stop := k.runCSR(t, "hub-first", clusters)
	for i := range clusters {
		k.join(t, name(i))
	}
	stop()
	k.runCSR(t, "hub-second", clusters)
	requests := k.Hub.Audit(t, "hub-second")
	each := slices.DeleteFunc(slices.Clone(requests), func(r kubetest.Request) bool {
		return slices.Contains([]string{"list", "watch"}, r.Verb) || r.Resource == ""
	})
	t.Logf("%d requests, %d of them about one object: %+v", len(requests), len(each), each)
	if len(requests) > constant+clusters*12/10 || len(each) > clusters*12/10 {
		t.Errorf("the hub made %d requests for %d clusters, want %d", len(requests), clusters, constant+clusters*12/10)
	}
	regtest.Must(t, k.Admin.DeleteAllOf(t.Context(), &ocm.ManagedCluster{}))
	kubetest.Eventually(t, "the hub lets all clusters go", func() bool {
		left := &ocm.ManagedClusterList{}
		return k.Admin.List(t.Context(), left) == nil && len(left.Items) == 0
	})
}

// join records the agent of an accepted cluster, and reports as that agent.
func (k *hubKube) join(t *testing.T, name string) {
	t.Helper()
	k.AwaitReason(name, ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	role := &rbacv1.ClusterRole{}
	regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKeyFromObject(roleFor(name)), role))
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentAnnotation, "agent1")
	regtest.Must(t, k.Admin.Update(t.Context(), role))
	cluster := k.Cluster(name)
	setJoined(metav1.ConditionTrue)(cluster)
	regtest.Must(t, k.Admin.Status().Update(t.Context(), cluster))
}
