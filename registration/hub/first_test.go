package hub_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// recordedDriver grants what the ClusterRole records, as csr does.
type recordedDriver struct{ *hubDriver }

func (d recordedDriver) Granted(_ string, role *rbacv1.ClusterRole) bool {
	return role.Annotations[ocm.AuthTypeAnnotation] == d.name && role.Annotations[ocm.AgentAnnotation] != ""
}

// firstTest is a hub that starts with a joined cluster.
type firstTest struct {
	*hubTest
	mu    sync.Mutex
	reads []string // past the cache
}

func newFirstTest(t *testing.T) *firstTest {
	t.Helper()
	f := &firstTest{hubTest: newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))}
	f.mustReconcile("cluster1")
	f.changeRole(func(r *rbacv1.ClusterRole) { r.Annotations[ocm.AgentAnnotation] = "agent1" })
	f.edit("cluster1", setJoined(metav1.ConditionTrue))
	f.mustReconcile("cluster1")
	f.takeWrites()
	f.driver.take()
	return f
}

func setJoined(available metav1.ConditionStatus) func(*ocm.ManagedCluster) {
	return func(c *ocm.ManagedCluster) {
		for kind, status := range map[string]metav1.ConditionStatus{
			ocm.ConditionJoined: metav1.ConditionTrue, ocm.ConditionAvailable: available,
		} {
			meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Reported"})
		}
	}
}

func (f *firstTest) changeRole(change func(*rbacv1.ClusterRole)) {
	f.t.Helper()
	role := roleFor("cluster1")
	if !f.exists(role) {
		f.t.Fatal("there is no ClusterRole")
	}
	change(role)
	regtest.Must(f.t, f.client.Update(f.t.Context(), role))
}

// same edits the cluster in its generation, so that its condition is not an old
// one.
func (f *firstTest) same(change func(*ocm.ManagedCluster)) {
	f.t.Helper()
	f.edit("cluster1", func(c *ocm.ManagedCluster) { change(c); c.Generation-- })
}

func (f *firstTest) remove(o client.Object) {
	f.t.Helper()
	regtest.Must(f.t, f.client.Delete(f.t.Context(), o))
}

// start restarts the hub with a cache, and lists the clusters if the hub is to.
func (f *firstTest) start(cache func() client.Client, list bool) {
	f.t.Helper()
	f.restart(func(o *hub.Options) {
		o.Client, o.Reader = cachedClient{f.counting(), cache}, liveReader{f.client, f}
		o.Drivers = []registration.HubDriver{recordedDriver{f.driver}, f.other}
	})
	if list {
		regtest.Must(f.t, f.hub.List(f.t.Context()))
	}
}

// cachedClient reads from a cache.
type cachedClient struct {
	client.Client
	cache func() client.Client
}

func (c cachedClient) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	return c.cache().Get(ctx, key, o, opts...)
}

// liveReader records the objects that are read by name.
type liveReader struct {
	client.Reader
	f *firstTest
}

func (r liveReader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	r.f.mu.Lock()
	r.f.reads = append(r.f.reads, key.Name)
	r.f.mu.Unlock()
	return r.Reader.Get(ctx, key, o, opts...)
}

// live is a cache that never lags.
func (f *firstTest) live() client.Client { return f.client }

// snapshot returns a cache that knows nothing later.
func (f *firstTest) snapshot() client.Client {
	f.t.Helper()
	objects := append(bindingsFor("cluster1"), roleFor("cluster1"), managedCluster("cluster1"), namespaceOf("cluster1"))
	objects = slices.DeleteFunc(objects, func(o client.Object) bool { return !f.exists(o) })
	return fake.NewClientBuilder().WithScheme(regtest.Scheme(f.t)).WithObjects(objects...).Build()
}

func namespaceOf(cluster string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
}

func TestHubTrustsTheListOnce(t *testing.T) {
	f := newFirstTest(t)
	f.start(f.live, true)
	if wait := f.look(); wait != 150*time.Second {
		t.Errorf("the hub looks again after %s", wait)
	}
	if writes, calls := f.takeWrites(), f.driver.take(); len(f.reads)+len(writes)+len(calls) > 0 {
		t.Errorf("the first reconcile reads %q, writes %q and calls the driver: %q", f.reads, writes, calls)
	}
	f.look()
	want := []string{"cluster1", registration.ClusterRoleName("cluster1"), ocm.LeaseName}
	if !slices.Equal(f.reads, want) {
		t.Errorf("the second reconcile reads %q", f.reads)
	}
}

// The API server denies, deletes or changes something between the list and the
// first reconcile.
func TestHubDiscardsAnOldList(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*firstTest)
		check  func(*firstTest)
	}{
		"denied": {func(f *firstTest) { f.edit("cluster1", deny) }, func(f *firstTest) {
			f.wantAccepted("cluster1", isDenied)
			if got := f.driver.take(); !slices.Equal(got, []string{"revoke cluster1 id-1"}) {
				f.t.Errorf("the driver got %q", got)
			}
		}},
		"deleted": {func(f *firstTest) { f.remove(managedCluster("cluster1")) }, func(f *firstTest) {
			f.wantRevoked("cluster1")
		}},
		"another claim": {func(f *firstTest) { f.edit("cluster1", annotated(driverAnnotation, "id-2")) }, func(f *firstTest) {
			f.wantAccepted("cluster1", "True/"+ocm.ReasonClaimChanged)
		}},
		"the ClusterRole deleted": {func(f *firstTest) { f.deleteRole("cluster1") }, func(f *firstTest) {
			f.wantAccepted("cluster1", isLost)
		}},
		"the rules of the ClusterRole": {func(f *firstTest) {
			f.changeRole(func(r *rbacv1.ClusterRole) { r.Rules = nil })
		}, func(f *firstTest) {
			if role := roleFor("cluster1"); !f.exists(role) || len(role.Rules) == 0 {
				f.t.Errorf("the role is %+v", role)
			}
		}},
		"a binding deleted": {func(f *firstTest) { f.remove(bindingsFor("cluster1")[2]) }, func(f *firstTest) {
			if got := f.rbac("cluster1"); len(got) != 4 {
				f.t.Errorf("the cluster has %q", got)
			}
		}},
		"the namespace deleted": {func(f *firstTest) { f.remove(namespaceOf("cluster1")) }, func(f *firstTest) {
			if !f.exists(namespaceOf("cluster1")) {
				f.t.Error("there is no namespace")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstTest(t)
			f.start(f.live, true)
			test.change(f)
			f.look()
			test.check(f)
		})
	}
}

// The cache still shows the cluster as accepted. The hub neither grants nor
// writes, and revokes when the event arrives.
func TestHubRevokesAfterACacheThatLags(t *testing.T) {
	for name, bound := range map[string]bool{"with its bindings": true, "without a binding": false} {
		t.Run(name, func(t *testing.T) {
			f := newFirstTest(t)
			if !bound {
				f.remove(bindingsFor("cluster1")[0])
			}
			old := f.snapshot()
			cache := old
			f.start(func() client.Client { return cache }, true)
			f.edit("cluster1", deny)
			f.look()
			for _, w := range f.takeWrites() {
				if bound || w[:6] == "create" {
					t.Errorf("the hub writes by an old copy: %s", w)
				}
			}
			cache = f.client
			f.look()
			f.wantAccepted("cluster1", isDenied)
			got := append(f.driver.take(), f.rbac("cluster1")...)
			if len(got) != 2 || got[0] != "revoke cluster1 id-1" { // the role keeps the agent
				t.Errorf("the driver got and the cluster has %q", got)
			}
		})
	}
}

// A cluster that needs anything gets it in the first reconcile, as without the
// list.
func TestHubListsSettledClustersOnly(t *testing.T) {
	for name, change := range map[string]func(*firstTest){
		"denied":                func(f *firstTest) { f.same(deny) },
		"without the finalizer": func(f *firstTest) { f.same(func(c *ocm.ManagedCluster) { c.Finalizers = nil }) },
		"deleted":               func(f *firstTest) { f.remove(managedCluster("cluster1")) },
		"an old condition":      func(f *firstTest) { f.edit("cluster1", func(*ocm.ManagedCluster) {}) },
		"without a condition":   func(f *firstTest) { f.same(func(c *ocm.ManagedCluster) { c.Status.Conditions = nil }) },
		"a false condition": func(f *firstTest) {
			f.same(func(c *ocm.ManagedCluster) {
				meta.FindStatusCondition(c.Status.Conditions, ocm.ConditionHubAccepted).Message = "accepted by me"
			})
		},
		"not available":        func(f *firstTest) { f.same(setJoined(metav1.ConditionUnknown)) },
		"rules that differ":    func(f *firstTest) { f.changeRole(func(r *rbacv1.ClusterRole) { r.Rules = r.Rules[1:] }) },
		"a role without label": func(f *firstTest) { f.changeRole(func(r *rbacv1.ClusterRole) { r.Labels = nil }) },
		"no recorded agent": func(f *firstTest) {
			f.changeRole(func(r *rbacv1.ClusterRole) { delete(r.Annotations, ocm.AgentAnnotation) })
		},
		"no record": func(f *firstTest) {
			f.changeRole(func(r *rbacv1.ClusterRole) { delete(r.Annotations, ocm.AuthTypeAnnotation) })
		},
		"of another driver": func(f *firstTest) {
			f.changeRole(func(r *rbacv1.ClusterRole) { r.Annotations[ocm.AuthTypeAnnotation] = "two" })
		},
		"of no driver": func(f *firstTest) {
			f.changeRole(func(r *rbacv1.ClusterRole) { r.Annotations[ocm.AuthTypeAnnotation] = "three" })
		},
		"no role": func(f *firstTest) { f.deleteRole("cluster1") },
	} {
		t.Run(name, func(t *testing.T) {
			var done [2][]string
			for i, list := range []bool{false, true} {
				f := newFirstTest(t)
				change(f)
				f.start(f.live, list)
				_, err := f.reconcile("cluster1")
				done[i] = append(append(append(f.takeWrites(), f.driver.take()...), f.other.take()...), f.reads...)
				if err != nil {
					done[i] = append(done[i], err.Error())
				}
			}
			if len(done[0]) < 2 || !slices.Equal(done[0], done[1]) {
				t.Errorf("without a list %q, with it %q", done[0], done[1])
			}
		})
	}
}

// An agent that stopped before the restart gets five lease durations since the
// first look.
func TestHubFindsAnAgentThatStoppedBeforeTheRestart(t *testing.T) {
	f := newFirstTest(t)
	f.now = f.now.Add(time.Hour)
	f.start(f.live, true)
	begin := f.now
	for f.now.Sub(begin) < time.Hour {
		wait := f.look()
		if f.condition("cluster1", ocm.ConditionAvailable) != "True/Reported" {
			break
		}
		f.now = f.now.Add(wait)
	}
	took, got := f.now.Sub(begin), f.condition("cluster1", ocm.ConditionAvailable)
	if took != 5*time.Minute || got != "Unknown/"+ocm.ReasonLeaseStopped {
		t.Errorf("after %s Available is %s", took, got)
	}
}
