package token_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// olderCRD is the part of the released v1alpha1 that matters, without the
// driver field.
const olderCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: managedclusteraddons.addon.open-cluster-management.io}
spec:
  group: addon.open-cluster-management.io
  names: {kind: ManagedClusterAddOn, listKind: ManagedClusterAddOnList,
    plural: managedclusteraddons, singular: managedclusteraddon}
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

// The flow on a hub of v1alpha1: first with a CustomResourceDefinition from
// before the driver field, then with one that knows it.
func TestAddOnsOfAnOlderHub(t *testing.T) {
	w := newAddOnEnvironmentWith(t, kubetest.StartNew(t), olderCRD)
	s := w.runSigner()
	m := w.join("alpha")
	tokens := newToken(t, 0)
	m.run(tokens)
	w.Step("that drops the driver", func(t *testing.T) {
		m.NewAddOn("addon1", kubeClientItem, signerItem)
		m.UntilAddOn("addon1", "the agent says so", func() bool {
			return m.Says("addon1", "AddonTokenRefreshed") == "False/"+"TokenDriverNotDeclared"
		})
		if c := m.Condition("addon1", "AddonTokenRefreshed"); !strings.Contains(c.Message, "update the hub, or use csr") {
			t.Errorf("message %q", c.Message)
		}
		if _, ok := m.AddOn("addon1").(*v1alpha1.ManagedClusterAddOn); !ok || len(m.infrastructureOf("addon1")) > 0 {
			t.Errorf("%T, there are %q", m.AddOn("addon1"), m.infrastructureOf("addon1"))
		}
		m.expectSigned(s, "addon1") // the other item
	})
	w.Step("that is updated", func(*testing.T) {
		w.learnDriver()
		m.UntilAddOn("addon1", "the agent declares the driver again, each minute", func() bool {
			m.set(m.clock() + 61*time.Second)
			m.ReconcileAddOn("addon1")
			return m.Items("addon1")[0].Driver != ""
		})
		m.Registered("addon1", registration.AuthTypeToken)
		m.set(0)
		m.ExpectOnlyOwnRights("addon1")
	})
}

// learnDriver is the update of the hub's CustomResourceDefinition. Watches that
// began before show no new field, until the API server ends them after a
// second. A declaration of that second would reach the hub's cache with the
// next change of the add-on.
func (w *addOnEnvironment) learnDriver() {
	w.T.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("managedclusteraddons.addon.open-cluster-management.io")
	patch :=
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/kubeClientDriver","value":{"type":"string"}}]`
	watch, err := regtest.NewClient(w.T, w.Hub.Config()).Watch(w.T.Context(), &v1alpha1.ManagedClusterAddOnList{})
	if err == nil {
		err = w.Admin.Patch(w.T.Context(), crd, client.RawPatch("application/json-patch+json", []byte(patch)))
	}
	regtest.Must(w.T, err)
	for range watch.ResultChan() { //nolint:revive // until it ends
	}
}
