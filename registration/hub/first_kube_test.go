package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// runCSR runs a hub with the driver csr as a user, until it has checked n clusters.
func (k *hubKube) runCSR(t *testing.T, user string, n int) (stop func()) {
	t.Helper()
	rules := append(regtest.RulesOf(t, registration.HubManifest(), "open-cluster-management:hub:csr"), k.rules...)
	mgr, err := ctrl.NewManager(k.User(t, user, "", rules...), ctrl.Options{
		Scheme: regtest.Scheme(t), Cache: hub.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{UsePriorityQueue: new(false)}, // its workers may block the stop of a manager
	})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	h, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver},
		Default: registration.AuthTypeCSR, Registerer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SetupWithManager(mgr, 4); err != nil {
		t.Fatal(err)
	}
	stop = regtest.RunManager(t, mgr)
	want := fmt.Sprintf(`# HELP registration_hub_clusters Clusters of this hub, by state.
# TYPE registration_hub_clusters gauge
registration_hub_clusters{state="accepted"} %d
`, n)
	regtest.Eventually(t, "the hub has checked all clusters", func() bool {
		return testutil.GatherAndCompare(metrics, strings.NewReader(want), "registration_hub_clusters") == nil
	})
	return stop
}

// After a restart the hub reads clusters that need nothing from two lists. It still finds an agent that stopped before.
func TestHubRestartsWithFewRequests(t *testing.T) {
	const clusters, constant = 20, 40 // the latter are discovery, lists and watches
	ctrl.SetLogger(logr.Discard())
	k := startHub(t)
	for i := range clusters {
		cluster := managedCluster(fmt.Sprint("cluster", i), accept)
		cluster.Spec.LeaseDurationSeconds = 60
		if i == 0 {
			cluster.Spec.LeaseDurationSeconds = 4
		}
		if err := k.admin.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	stop := k.runCSR(t, "hub-first", clusters)
	for i := range clusters {
		k.join(t, fmt.Sprint("cluster", i))
	}
	stop()
	k.runCSR(t, "hub-second", clusters)
	k.awaitCondition(t, "cluster0", ocm.ConditionAvailable, "Reported")
	requests := k.Audit(t, "hub-second")
	each := slices.DeleteFunc(slices.Clone(requests), func(r kubetest.Request) bool {
		return slices.Contains([]string{"list", "watch"}, r.Verb) || r.Resource == ""
	})
	t.Logf("%d requests, %d of them about one object: %+v", len(requests), len(each), each)
	if len(requests) > constant+clusters*12/10 || len(each) > clusters*12/10 {
		t.Errorf("the hub made %d requests for %d clusters", len(requests), clusters)
	}
	k.awaitCondition(t, "cluster0", ocm.ConditionAvailable, regname.ReasonLeaseStopped)
}

// join records the agent of an accepted cluster, and reports as that agent.
func (k *hubKube) join(t *testing.T, name string) {
	t.Helper()
	k.awaitCondition(t, name, ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	role := &rbacv1.ClusterRole{}
	if err := k.admin.Get(t.Context(), client.ObjectKeyFromObject(roleFor(name)), role); err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, regname.AgentAnnotation, "agent1")
	if err := k.admin.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	cluster := k.get(t, name)
	setJoined(metav1.ConditionTrue)(cluster)
	if err := k.admin.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}
