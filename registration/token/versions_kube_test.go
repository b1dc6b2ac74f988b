package token_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/addonapi"
	"github.com/workloadid/workloadid/internal/addonapi/v1alpha1"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// olderCRD is the part of the released v1alpha1 that matters, without the driver field.
const olderCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: managedclusteraddons.addon.open-cluster-management.io}
spec:
  group: addon.open-cluster-management.io
  names: {kind: ManagedClusterAddOn, listKind: ManagedClusterAddOnList, plural: managedclusteraddons, singular: managedclusteraddon}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
              registrations: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A hub of v1alpha1 that does not know the driver drops it, and the agent says so. When the hub knows it, the add-on gets its token.
func TestOlderAPIVersion(t *testing.T) {
	cluster := kubetest.StartSecond(t)
	admin := newClient(t, cluster.Config())
	apply(t, admin, ocm.CRD)
	apply(t, admin, olderCRD)
	var api addonapi.API
	eventually(t, "the hub serves v1alpha1", func() (ok bool) {
		admin = newClient(t, cluster.Config())
		var err error
		api, err = addonapi.Discover(admin.RESTMapper())
		return err == nil && admin.List(t.Context(), &ocm.ManagedClusterList{}) == nil && admin.List(t.Context(), api.NewList()) == nil
	})
	a, ok := api.New().(*v1alpha1.ManagedClusterAddOn)
	if !ok {
		t.Fatalf("found %T", api.New())
	}
	a.Namespace, a.Name = "older", "addon1"
	a.Status.Registrations = []v1alpha1.RegistrationConfig{{SignerName: v1alpha1.KubeClientSigner}}
	status := a.Status
	for _, o := range []client.Object{managedCluster("older", true), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "older", Labels: map[string]string{ocm.ClusterNameLabel: "older"}}}, a} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	a.Status = status
	if err := admin.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	driver, err := token.New(token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	now, in := time.Now(), registration.Input{Cluster: "older", Agent: "agent1", Addon: "addon1", Hub: admin}
	pass := func() *metav1.Condition {
		t.Helper()
		o := api.New()
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a), o); err != nil {
			t.Fatal(err)
		}
		in.Now, in.Item, in.Conditions = now, addon.StatusOf(o).Items[0], addon.StatusOf(o).Conditions
		step, err := driver.Next(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in.State = step.State
		if step.Declare != nil {
			if err := addon.PatchStatus(t.Context(), admin, o, func(s *addon.Status) bool { s.Items[0] = *step.Declare; return true }); err != nil {
				t.Fatal(err)
			}
		}
		return step.Condition
	}
	pass()
	if c := pass(); c.Reason != "TokenDriverNotDeclared" || !strings.Contains(c.Message, "does not know the driver") {
		t.Errorf("condition %+v", c)
	}
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("managedclusteraddons.addon.open-cluster-management.io")
	patch := `{"spec":{"versions":[{"name":"v1alpha1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":
		{"type":"object","properties":{"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`
	if err := admin.Patch(t.Context(), crd, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	hub, err := token.NewHub(token.HubOptions{Client: admin})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the add-on has its token", func() bool {
		now = now.Add(time.Minute)
		c := pass()
		if _, err := hub.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
			t.Fatal(err)
		}
		return c.Status == metav1.ConditionTrue
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil || a.Status.KubeClientDriver != "token" ||
		!meta.IsStatusConditionTrue(a.Status.Conditions, addon.ConditionTokenInfrastructureReady) {
		t.Errorf("status %+v, %v", a.Status, err)
	}
}
