package hub_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// installOCM serves what a hub of Open Cluster Management serves beside
// ManagedClusters.
func (k *hubKube) installOCM(t *testing.T) {
	t.Helper()
	for _, crd := range []string{regtest.WorkCRD, strings.TrimPrefix(addon.CRD(), "---\n")} {
		kubetest.Apply(t, k.Admin, crd)
	}
	kubetest.Eventually(t, "the API server serves ManifestWorks and add-ons", func() bool {
		k.Admin = regtest.NewClient(t, k.Hub.Config()) // a client may remember that there are none
		return apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "a"}, newWork("a"))) &&
			apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "a"}, newAddOn("v1beta1", "a")))
	})
}

func newWork(namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("work.open-cluster-management.io/v1")
	o.SetKind("ManifestWork")
	o.SetNamespace(namespace)
	o.SetName("deploy")
	return o
}

// leaveCluster creates what the hub of Open Cluster Management leaves of an
// accepted cluster.
func (k *hubKube) leaveCluster(t *testing.T, name string) {
	t.Helper()
	objects := append(regtest.LeftByOCM(name), newWork(name), newAddOn("v1beta1", name))
	for _, o := range objects {
		if o, ok := o.(*unstructured.Unstructured); ok {
			o.SetFinalizers(nil)
		}
		regtest.Must(t, k.Admin.Create(t.Context(), o))
	}
	cluster := k.Cluster(name)
	meta.SetStatusCondition(&cluster.Status.Conditions, regtest.AcceptedByOCM())
	regtest.Must(t, k.Admin.Status().Update(t.Context(), cluster))
}

// movedHub is our hub program for clusters of another one.
type movedHub struct {
	*hubKube
	hub *hub.Hub
}

func (k *hubKube) testMoved(t *testing.T) {
	c := regtest.NewClient(t, k.Hub.User(t, "hub-moved", "", k.rules...))
	h,
		err := hub.New(hub.Options{Client: c, Drivers: []registration.HubDriver{newHubDriver("one", driverAnnotation)},
		Default: "one"})
	regtest.Must(t, err)
	m := &movedHub{k, h}
	m.testRecord()
	m.testDenial()
	m.testDeletion()
}

func (k *movedHub) reconcileOnce(t *testing.T, name string) reconcile.Result {
	t.Helper()
	result, err := k.hub.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	regtest.Must(t, err)
	return result
}

func (k *movedHub) bindings(t *testing.T, name string) (all []client.Object) {
	t.Helper()
	for _, b := range bindingsFor(name) {
		err := k.Admin.Get(t.Context(), client.ObjectKeyFromObject(b), b)
		regtest.Must(t, client.IgnoreNotFound(err))
		if err == nil {
			all = append(all, b)
		}
	}
	return all
}

func (k *movedHub) testRecord() {
	k.Step("a cluster keeps its bindings, and gets a record", func(t *testing.T) {
		k.leaveCluster(t, "moved1")
		before := k.bindings(t, "moved1")
		k.reconcileOnce(t, "moved1")
		now := k.bindings(t, "moved1")
		if !slices.EqualFunc(before, now, func(a, b client.Object) bool { return a.GetUID() == b.GetUID() }) {
			t.Errorf("the bindings were replaced: %v", now)
		}
		role := roleFor("moved1")
		if err := k.Admin.Get(t.Context(), client.ObjectKeyFromObject(role), role); err != nil ||
			role.Annotations[ocm.AuthTypeAnnotation] != "one" {
			t.Errorf("the record is %v, %v", role.Annotations, err)
		}
		k.AwaitReason("moved1", ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	})
}

func (k *movedHub) testDenial() {
	k.Step("denial removes a binding that has the finalizer", func(t *testing.T) {
		k.SetAccepted("moved1", false)
		k.reconcileOnce(t, "moved1")
		if left := k.bindings(t, "moved1"); len(left) > 0 {
			t.Errorf("after the denial there is %v", left)
		}
	})
	k.Step("denial empties a binding that has another finalizer too", func(t *testing.T) {
		k.leaveCluster(t, "moved2")
		k.reconcileOnce(t, "moved2")
		add := client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":["`+regtest.WorkCleanup+`","example.com/other"]}}`))
		work := bindingsFor("moved2")[2]
		regtest.Must(t, k.Admin.Patch(t.Context(), work, add))
		k.SetAccepted("moved2", false)
		k.reconcileOnce(t, "moved2")
		left := k.bindings(t, "moved2")
		if len(left) != 1 || !slices.Equal(left[0].GetFinalizers(), []string{"example.com/other"}) {
			t.Fatalf("after the denial there is %v", left)
		}
		if _, subjects := partsOf(left[0]); len(*subjects) > 0 || left[0].GetDeletionTimestamp().IsZero() {
			t.Errorf("the binding still gives %v", *subjects)
		}
	})
	k.Step("denial leaves a binding of another role that has a finalizer", func(t *testing.T) {
		k.leaveCluster(t, "moved3")
		k.reconcileOnce(t, "moved3")
		foreign := bindingsFor("moved3")[1]
		regtest.Must(t, k.Admin.Delete(t.Context(), foreign))
		foreign = bindingsFor("moved3")[1]
		foreign.SetLabels(map[string]string{ocm.ClusterNameLabel: "moved3"})
		foreign.SetFinalizers([]string{"example.com/other"})
		role, subjects := partsOf(foreign)
		*subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
			Name: registration.ClusterGroup("moved3")}}
		*role = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
		regtest.Must(t, k.Admin.Create(t.Context(), foreign))
		k.SetAccepted("moved3", false)
		k.reconcileOnce(t, "moved3")
		if left := k.bindings(t, "moved3"); len(left) != 1 || left[0].GetDeletionTimestamp().IsZero() {
			t.Errorf("after the denial there is %v", left)
		}
		k.AwaitReason("moved3", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
	})
	k.Step("acceptance names the finalizers that keep a binding", func(t *testing.T) {
		k.SetAccepted("moved2", true)
		k.reconcileOnce(t, "moved2")
		c := meta.FindStatusCondition(k.Cluster("moved2").Status.Conditions, ocm.ConditionHubAccepted)
		if c == nil || c.Reason != "RBACTaken" || !strings.Contains(c.Message, "example.com/other") {
			t.Errorf("the condition is %+v", c)
		}
	})
}

func (k *movedHub) testDeletion() {
	k.Step("a deleted cluster waits until nothing is left of it", func(t *testing.T) {
		regtest.Must(t, k.Admin.Delete(t.Context(), managedCluster("moved1")))
		for _, left := range []struct {
			object client.Object
			kind   string
		}{{newAddOn("v1beta1", "moved1"), "ManagedClusterAddOn"}, {newWork("moved1"), "ManifestWork"}} {
			if k.reconcileOnce(t, "moved1").RequeueAfter == 0 {
				t.Error("the hub does not look again")
			}
			deleting := meta.FindStatusCondition(k.Cluster("moved1").Status.Conditions, "Deleting")
			if deleting == nil || deleting.Reason != "ResourceRemaining" || !strings.Contains(deleting.Message, left.kind) ||
				!strings.Contains(deleting.Message, left.object.GetName()) {
				t.Errorf("the condition is %+v", deleting)
			}
			regtest.Must(t, k.Admin.Delete(t.Context(), left.object))
		}
		k.reconcileOnce(t, "moved1")
		if err := k.Admin.Get(t.Context(), client.ObjectKey{Name: "moved1"},
			&ocm.ManagedCluster{}); !apierrors.IsNotFound(err) {
			t.Errorf("the cluster is still there: %v", err)
		}
	})
}
