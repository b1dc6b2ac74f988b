package agent_test

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// renew writes the Lease of the add-on a, renewed some time ago.
func (w *addOnEnvironment) renew(namespace string, ago time.Duration) {
	w.t.Helper()
	renewed := metav1.NewMicroTime(w.now.Add(-ago))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	regtest.Must(w.t, w.local.Create(w.t.Context(), lease))
}

// setMode sets status.healthCheck.mode, which the add-on's own controller does.
func (w *addOnEnvironment) setMode(mode string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"healthCheck":{"mode":"`+mode+`"}}}`))
	regtest.Must(w.t, w.hub.Status().Patch(w.t.Context(), w.get("a"), patch))
}

// An add-on is as healthy as its Lease is fresh, by the verdicts of Open
// Cluster Management's agent.
func TestAddOnsReportHealth(t *testing.T) {
	const grace = 5 * time.Minute
	for name, row := range map[string]struct {
		prepare func(w *addOnEnvironment)
		want    string // "/" for no condition
	}{
		"renewed": {func(w *addOnEnvironment) {
			w.renew(addOnNamespace, grace-time.Second)
		}, "True/ManagedClusterAddOnLeaseUpdated"},
		"renewed, mode Lease": {func(w *addOnEnvironment) {
			w.renew(addOnNamespace, 0)
			w.setMode("Lease")
		}, "True/ManagedClusterAddOnLeaseUpdated"},
		"in a namespace": {func(w *addOnEnvironment) {
			w.renew("other", 0)
			w.namespace("a", "other")
		}, "True/ManagedClusterAddOnLeaseUpdated"},
		"renewed elsewhere": {func(w *addOnEnvironment) {
			w.renew("other", 0)
		}, "Unknown/ManagedClusterAddOnLeaseNotFound"},
		"stopped": {func(w *addOnEnvironment) {
			w.renew(addOnNamespace, grace)
		}, "False/ManagedClusterAddOnLeaseUpdateStopped"},
		"no Lease ever":           {func(*addOnEnvironment) {}, "Unknown/ManagedClusterAddOnLeaseNotFound"},
		"another program reports": {func(w *addOnEnvironment) { w.renew(addOnNamespace, 0); w.setMode("Customized") }, "/"},
		"the agent's namespace": {func(w *addOnEnvironment) {
			w.renew(agentNamespace, 0)
			w.namespace("a", agentNamespace)
		}, "Unknown/ManagedClusterAddOnLeaseForbidden"},
		"a namespace without Role": {func(w *addOnEnvironment) {
			w.failIn("other", "get",
				apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "a", errors.New("no Role")))
		}, "Unknown/ManagedClusterAddOnLeaseForbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddOnEnvironment(t)
			w.create("a")
			row.prepare(w)
			w.mustReconcile("a")
			c := w.condition("a", "Available")
			if got := string(c.Status) + "/" + c.Reason; got != row.want {
				t.Errorf("got %s, want %s: %s", got, row.want, c.Message)
			}
		})
	}
}

// The mode is kept by writes of the agent, also in the older version.
func TestAddOnsKeepTheModeOfTheHealthCheck(t *testing.T) {
	w := newAddOnEnvironment(t, v1alpha1.GroupVersion)
	w.create("a", kubeClient)
	w.setMode("Customized")
	w.mustReconcile("a")
	w.mustReconcile("a")
	if got := addon.StatusOf(w.get("a")); got.HealthCheckMode != "Customized" ||
		w.condition("a", "Available").Type != "" || got.Items[0].Driver != "token" {
		t.Errorf("got %+v", got)
	}
}

// A Lease that cannot be read delays no credential, and is looked for again.
func TestAddOnsRegisterWhileALeaseIsUnreadable(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.renew(addOnNamespace, 0)
	w.create("a", kubeClient)
	w.mustReconcile("a")
	fault := errors.New("etcd is down")
	w.localErr = func(verb string, o client.Object) error {
		if _, ok := o.(*coordinationv1.Lease); ok && verb == "get" {
			return fault
		}
		return nil
	}
	if _, err := w.reconcile("a"); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	secret := &corev1.Secret{}
	if err := w.local.Get(t.Context(), client.ObjectKey{Namespace: addOnNamespace, Name: "a-hub-kubeconfig"},
		secret); err != nil {
		t.Error(err)
	}
	if got := w.condition("a", "Available").Reason; got != "ManagedClusterAddOnLeaseUpdated" {
		t.Errorf("the last verdict is %q", got)
	}
}
