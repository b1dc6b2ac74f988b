package fleet

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

var (
	clusters = flag.Int("fleet.clusters", 1000, "number of joined clusters")
	pace     = flag.Duration("fleet.pace", time.Minute, "time between two renewals of a Lease; 0 for none")
)

// The aims of the hub program with 10,000 clusters.
const (
	maxMemory = 256 << 20
	maxTime   = time.Minute
	// maxRequests is for each cluster, beside otherRequests for lists, watches,
	// discovery and leader election.
	maxRequests, otherRequests = 1.2, 200
)

// atOnce is how many requests the test makes at a time.
const atOnce = 32

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

func TestFleet(t *testing.T) {
	f := &fleet{t: t, Cluster: kubetest.StartNew(t)}
	f.install()
	template := f.join()
	begin := time.Now()
	f.fill(template, *clusters)
	t.Logf("%d clusters created in %s", *clusters, time.Since(begin).Round(time.Second))
	stop := f.renew()
	defer stop()
	hub := f.startHub()
	took := hub.until(`registration_hub_clusters{state="accepted"}`, float64(*clusters))
	t.Logf("after a restart the hub has checked %d clusters in %s", *clusters, took.Round(100*time.Millisecond))
	f.checkRequests(hub)
	peak := hub.log("hub")
	if writes := hub.writes(); writes > float64(*clusters)/2 {
		t.Errorf("the hub made %d writes: the simulated clusters differ from joined ones", int(writes))
	}
	if *clusters >= 10_000 && (peak > maxMemory || took > maxTime) {
		t.Errorf("the aims are %d MiB and %s", maxMemory>>20, maxTime)
	}
	hub.stop()
	f.measureAgent()
}

// checkRequests counts the requests of the hub at the API server, whose log
// rotates after 100 MB, and at the client.
func (f *fleet) checkRequests(hub *program) {
	f.t.Helper()
	made, counted := hub.read("rest_client_requests_total{"), 0
	for _, r := range f.Audit(f.t, "system:serviceaccount:"+ocm.HubNamespace+":"+ocm.HubServiceAccount) {
		if r.Time.After(hub.began) {
			counted++
		}
	}
	all := max(made, float64(counted))
	f.t.Logf("the API server counted %d requests, the hub %d: %.2f for each cluster",
		counted, int(made), all/float64(*clusters))
	if all > maxRequests*float64(*clusters)+otherRequests {
		f.t.Errorf("the aim is %.1f for each cluster", maxRequests)
	}
}

type fleet struct {
	*kubetest.Cluster
	t       *testing.T
	c       client.WithWatch
	printed string // the manifests of the hub
}

func (f *fleet) hub() manifests.HubOptions {
	return manifests.HubOptions{Image: "x", AuthTypes: []string{registration.AuthTypeCSR},
		AddOnAuthTypes: []string{registration.AuthTypeCSR, registration.AuthTypeToken}}
}

func (f *fleet) startHub() *program {
	f.t.Helper()
	return f.start("wid-hub", f.AccountKubeconfig(f.t, ocm.HubNamespace, ocm.HubServiceAccount), f.printed,
		f.hub().Args())
}

func (f *fleet) install() {
	f.t.Helper()
	hub, err := manifests.Hub(f.hub())
	if err != nil {
		f.t.Fatal(err)
	}
	f.printed = hub
	f.apply(hub)
	f.c = regtest.NewClient(f.t, f.Config())
}

func (f *fleet) apply(printed string) {
	f.t.Helper()
	objects, err := manifests.Parse(printed)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range objects {
		if err := f.Client().Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
	}
}

// template holds the objects of a cluster that the hub has accepted.
type template struct {
	status  ocm.ManagedClusterStatus
	objects []client.Object
}

const first = "cluster-0"

// join lets the hub program accept the first cluster, and returns its objects.
func (f *fleet) join() template {
	f.t.Helper()
	hub := f.startHub()
	defer hub.stop()
	f.create(f.t.Context(), newCluster(first))
	hub.until(`registration_hub_clusters{state="accepted"}`, 1)
	cluster := &ocm.ManagedCluster{}
	regtest.Eventually(f.t, "the hub has accepted a cluster", func() bool {
		err := f.c.Get(f.t.Context(), client.ObjectKey{Name: first}, cluster)
		return err == nil && len(cluster.Status.Conditions) > 0
	})
	role := registration.ClusterRoleName(first)
	made := template{status: joined(cluster.Status)}
	for _, o := range []struct {
		key    client.ObjectKey
		object client.Object
	}{
		{client.ObjectKey{Name: first}, &corev1.Namespace{}},
		{client.ObjectKey{Name: role}, &rbacv1.ClusterRole{}},
		{client.ObjectKey{Name: role}, &rbacv1.ClusterRoleBinding{}},
		{client.ObjectKey{Namespace: first, Name: role + ":registration"}, &rbacv1.RoleBinding{}},
		{client.ObjectKey{Namespace: first, Name: role + ":work"}, &rbacv1.RoleBinding{}},
		{client.ObjectKey{Namespace: first, Name: ocm.LeaseName}, &coordinationv1.Lease{}},
	} {
		regtest.Eventually(f.t, "the hub has created "+o.key.String(), func() bool {
			return f.c.Get(f.t.Context(), o.key, o.object) == nil
		})
		made.objects = append(made.objects, o.object)
	}
	// as the approver records it
	metav1.SetMetaDataAnnotation(&made.objects[1].(*rbacv1.ClusterRole).ObjectMeta, ocm.AgentAnnotation, "agent1")
	made.objects = append(made.objects,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: first, Name: "default"}})
	cluster.Status = made.status
	if err := f.c.Status().Update(f.t.Context(), cluster); err != nil {
		f.t.Fatal(err)
	}
	return made
}

func newCluster(name string) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{ocm.Finalizer},
		Labels: map[string]string{"env": "production", "region": "eu-central-1"}},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60,
			ManagedClusterClientConfigs: []ocm.ClientConfig{{URL: "https://api." + name + ".example:6443",
				CABundle: make([]byte, 1100)}}}}
}

// joined adds what an agent reports.
func joined(s ocm.ManagedClusterStatus) ocm.ManagedClusterStatus {
	for _, kind := range []string{ocm.ConditionJoined, ocm.ConditionAvailable, ocm.ConditionCertificateRotated} {
		s.Conditions = append(s.Conditions,
			metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Reported",
				Message: "the agent of the cluster reports that all is well", LastTransitionTime: metav1.Now()})
	}
	for i := range 10 {
		s.ClusterClaims = append(s.ClusterClaims,
			ocm.ManagedClusterClaim{Name: fmt.Sprintf("claim%d.example", i), Value: "some text"})
	}
	return s
}

func (f *fleet) create(ctx context.Context, o client.Object) {
	if err := client.IgnoreAlreadyExists(f.c.Create(ctx, o)); err != nil {
		f.t.Error(err)
	}
}

// fill creates clusters as copies of the first, until there are n.
func (f *fleet) fill(made template, n int) {
	f.t.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := 1; i < n; i++ {
		group.Go(func() error {
			name := clusterName(i)
			cluster := newCluster(name)
			if err := f.c.Create(f.t.Context(), cluster); err != nil {
				return err
			}
			cluster.Status = *made.status.DeepCopy()
			if err := f.c.Status().Update(f.t.Context(), cluster); err != nil {
				return err
			}
			for _, o := range made.objects {
				if err := f.c.Create(f.t.Context(), copyOf(o, name)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%d", i) }

// renew renews all Leases at the pace of their agents.
func (f *fleet) renew() (stop func()) {
	if *pace == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(*pace / time.Duration(*clusters))
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i = (i + 1) % *clusters {
			<-tick.C
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: clusterName(i), Name: ocm.LeaseName}}
			body := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
			_ = f.c.Patch(ctx, lease, client.RawPatch("application/merge-patch+json", body)) // a lost renewal counts for nothing
		}
	})
	return func() { cancel(); running.Wait() }
}
