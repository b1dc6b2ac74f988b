package token_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// bothCRD has both versions without a conversion webhook, and serves the older
// one.
const bothCRD = `apiVersion: apiextensions.k8s.io/v1
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
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v1beta1
    served: false
    storage: false
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// serve changes which versions of the add-on API the hub serves.
func (w *addOnEnvironment) serve(v1alpha1, v1beta1 bool) {
	w.T.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("managedclusteraddons.addon.open-cluster-management.io")
	patch := fmt.Sprintf(
		`[{"op":"add","path":"/spec/versions/0/served","value":%t},{"op":"add","path":"/spec/versions/1/served","value":%t}]`,
		v1alpha1, v1beta1)
	regtest.Must(w.T, w.Admin.Patch(w.T.Context(), crd, client.RawPatch("application/json-patch+json", []byte(patch))))
	kubetest.Eventually(w.T, "the hub serves the versions", func() bool {
		w.Admin = regtest.NewClient(w.T, w.Hub.Config()) // a client remembers what was served
		api, err := addon.Discover(w.Admin.RESTMapper())
		return (err == nil) == (v1alpha1 || v1beta1) && (api == addon.API{}) == !v1alpha1
	})
}

// Tokens end with the cluster, and go on with the add-on, whatever versions of
// the add-on API the hub serves meanwhile.
func TestHubStopsServingAddOns(t *testing.T) {
	w := newAddOnEnvironmentWith(t, kubetest.StartNew(t), bothCRD)
	tokens := newToken(t, 0)
	users := map[string]client.Client{}
	join := func(name string) *addOnMember {
		m := w.join(name)
		m.run(tokens)
		m.NewAddOn("addon1", kubeClientItem)
		m.Registered("addon1", registration.AuthTypeToken)
		m.UntilAddOn("addon1", "the token is reported", func() bool {
			return m.Says("addon1", "AddonTokenRefreshed") == "True/AddonTokenRefreshed"
		})
		users[name] = m.AddOnClient("addon1")
		m.stop()
		return m
	}
	denied := func(name string) {
		w.T.Helper()
		w.SetAccepted(name, false)
		kubetest.Eventually(w.T, "the token is refused", func() bool { return !isGood(w.T, users[name]) })
	}
	restarted, gone := join("restarted"), join("gone")
	join("running")
	join("unserved")
	w.Step("v1alpha1, while the hub's program runs", func(*testing.T) {
		w.serve(false, true)
		denied("running")
	})
	w.Step("v1alpha1, and the hub's program starts again", func(t *testing.T) {
		w.stopTokens()
		gone.DeleteAddOn("addon1") // the garbage collector finds no owner of that version
		uid := restarted.account("addon1").UID
		restarted.PatchAddOn("addon1", func(s *addon.Status) { // as the agent or a conversion webhook does
			s.Items = []ocm.Registration{{Type: ocm.KubeClient, Driver: registration.AuthTypeToken,
				Subject: ocm.Subject{User: "system:serviceaccount:restarted:restarted-addon1-agent"}}}
		})
		w.runTokens()
		restarted.UntilAddOn("addon1", "the owner has the served version", func() bool {
			return restarted.account("addon1").OwnerReferences[0].APIVersion == addon.GroupVersion.String()
		})
		if got := restarted.account("addon1").UID; got != uid || !isGood(t, users["restarted"]) {
			t.Errorf("UID %q instead of %q, the token works: %t", got, uid, isGood(t, users["restarted"]))
		}
	})
	w.Step("an add-on that was deleted in between", func(t *testing.T) {
		kubetest.Eventually(t, "the token is refused", func() bool { return !isGood(t, users["gone"]) })
	})
	w.Step("all, and the hub's program starts again", func(t *testing.T) {
		w.serve(false, false)
		w.stopTokens()
		w.stopTokens = w.RunControllers(func(mgr ctrl.Manager) error {
			hub, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), RemoveOnly: true})
			if err != nil {
				return err
			}
			return hub.SetupWithManager(mgr, addOnWorkers)
		})
		denied("unserved")
		if !isGood(t, users["restarted"]) {
			t.Error("an add-on that may exist lost its token")
		}
	})
}
