package fleet

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

var addOnClusters = flag.Int("fleet.addonclusters", 1000, "number of joined clusters with 10 token add-ons each")

const (
	addOnsOfOne, addOnsOfEach = 200, 10

	reconciled = `controller_runtime_reconcile_total{controller="addon-token-infrastructure",result="success"`
)

// TestTokenAddOns measures the hub and the agent program with 200 token add-ons
// of one cluster, then the hub program with 10 of each cluster. The agents of
// these have declared the driver, and request no tokens.
func TestTokenAddOns(t *testing.T) {
	f := &fleet{t: t, Cluster: kubetest.StartNew(t)}
	f.ControllerManager(t, "csrsigning")
	f.install()
	template := f.join()
	f.measureAddOnsOfOne("measured")
	f.fill(template, *addOnClusters)
	n := f.measureAddOnsOfEach()
	hub := f.startHub()
	took := hub.until(reconciled, float64(n+addOnsOfOne))
	f.report(hub, "hub, restarted", n+addOnsOfOne, took)
	if writes := hub.writes(); writes > float64(n)/2 {
		t.Errorf("the restarted hub made %d writes, want none for an add-on", int(writes))
	}
	if peak := hub.status("VmHWM"); n >= 10_000 && (peak > maxMemory || took > maxTime) {
		t.Errorf("the aims are %d MiB and %s", maxMemory>>20, maxTime)
	}
}

// report logs what a program took for n add-ons.
func (f *fleet) report(p *program, name string, n int, took time.Duration) {
	f.t.Helper()
	all, writes := p.read("rest_client_requests_total{"), p.writes()
	f.t.Logf("%s: %d add-ons in %s, %.1f requests for each, of which %.1f write", name, n,
		took.Round(100*time.Millisecond), all/float64(n), writes/float64(n))
	p.log(name)
}

// measureAddOnsOfOne lets a cluster join, and registers its add-ons.
func (f *fleet) measureAddOnsOfOne(cluster string) {
	f.t.Helper()
	hub := f.startHub()
	defer hub.stop()
	agent := f.startAgent(cluster, f.bootstrapToken())
	defer agent.stop()
	accept := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hubAcceptsClient":true}}`))
	regtest.Eventually(f.t, "the cluster shows up and is accepted", func() bool {
		return f.c.Patch(f.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, accept) == nil
	})
	regtest.Eventually(f.t, "the cluster joins", func() bool {
		c := &ocm.ManagedCluster{}
		err := f.c.Get(f.t.Context(), client.ObjectKey{Name: cluster}, c)
		return err == nil && meta.IsStatusConditionTrue(c.Status.Conditions, ocm.ConditionJoined)
	})
	begin, done := time.Now(), f.awaitAll(cluster, ocm.ConditionAddOnTokenRefreshed, addOnsOfOne)
	f.createAddOns([]string{cluster}, addOnsOfOne, false)
	created := time.Since(begin)
	took := done().Sub(begin)
	f.t.Logf("%d add-ons created in %s", addOnsOfOne, created.Round(100*time.Millisecond))
	f.report(hub, "hub, one cluster", addOnsOfOne, took)
	f.report(agent, "agent", addOnsOfOne, took)
}

func (f *fleet) bootstrapToken() string {
	f.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}}
	f.create(f.t.Context(), namespace)
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "agent-registration-bootstrap"}}
	f.create(f.t.Context(), account)
	return (&regtest.Environment{T: f.t}).Token(f.c, account.Namespace, account.Name)
}

// measureAddOnsOfEach lets the hub program provide the add-ons of all clusters,
// and returns their number.
func (f *fleet) measureAddOnsOfEach() int {
	f.t.Helper()
	var names []string
	for i := range *addOnClusters {
		names = append(names, clusterName(i))
	}
	n := len(names) * addOnsOfEach
	begin := time.Now()
	f.createAddOns(names, addOnsOfEach, true)
	f.t.Logf("%d add-ons created in %s", n, time.Since(begin).Round(time.Second))
	hub := f.startHub()
	defer hub.stop()
	done := f.awaitAll("", addon.ConditionTokenInfrastructureReady, n+addOnsOfOne)
	f.report(hub, "hub, all clusters", n, done().Sub(hub.began))
	return n
}

// createAddOns creates add-ons as their hub controllers do and, if declared, as
// agents leave them that have declared the driver.
func (f *fleet) createAddOns(clusters []string, each int, declared bool) {
	f.t.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, cluster := range clusters {
		for i := range each {
			group.Go(func() error {
				a := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster,
					Name: fmt.Sprintf("addon-%d", i)}}
				if err := f.c.Create(f.t.Context(), a); err != nil {
					return err
				}
				item := &addon.KubeClientConfig{}
				if account := registration.AddOnServiceAccounts(cluster, a.Name)[0]; declared {
					item.Driver = registration.AuthTypeToken
					item.Subject.User = "system:serviceaccount:" + cluster + ":" + account
				}
				a.Status.Registrations = []addon.RegistrationConfig{{Type: ocm.KubeClient, KubeClient: item}}
				return f.c.Status().Update(f.t.Context(), a)
			})
		}
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

// awaitAll watches add-ons from now on, and returns a function that waits until
// the condition of n is True, and returns when.
func (f *fleet) awaitAll(namespace, condition string, n int) (done func() time.Time) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Minute)
	f.t.Cleanup(cancel)
	w, err := f.c.Watch(ctx, &addon.ManagedClusterAddOnList{}, client.InNamespace(namespace))
	if err != nil {
		f.t.Fatal(err)
	}
	return func() time.Time {
		defer w.Stop()
		ready := map[client.ObjectKey]bool{}
		for e := range w.ResultChan() {
			if a, ok := e.Object.(*addon.ManagedClusterAddOn); ok && e.Type != watch.Deleted &&
				meta.IsStatusConditionTrue(a.Status.Conditions, condition) {
				ready[client.ObjectKeyFromObject(a)] = true
			}
			if len(ready) == n {
				return time.Now()
			}
		}
		f.t.Fatalf("the watch ended with %d of %d add-ons whose %s is True", len(ready), n, condition)
		return time.Time{}
	}
}
