package token_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

func removeOnly(options *token.HubOptions) { options.RemoveOnly = true }

// orphan deletes an add-on as kubectl delete --cascade=orphan does. It needs
// the garbage collector.
func (a *testAgent) orphan() {
	a.T.Helper()
	regtest.Must(a.T,
		a.Admin.Delete(a.T.Context(), addOn(a.cluster, a.addOn), client.PropagationPolicy(metav1.DeletePropagationOrphan),
			client.Preconditions{}))
	kubetest.Eventually(a.T, "the add-on is gone", func() bool {
		return apierrors.IsNotFound(a.Admin.Get(a.T.Context(), client.ObjectKey{Namespace: a.cluster, Name: a.addOn},
			addOn(a.cluster, a.addOn)))
	})
}

// unreadable stores times that Go cannot read in the statuses of add-on and
// cluster.
func (a *testAgent) unreadable() {
	a.T.Helper()
	patch := client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op": "replace", "path": "/status/conditions/0/lastTransitionTime", "value": "2026-01-01t00:00:00z"}]`))
	for _, o := range []client.Object{addOn(a.cluster, a.addOn), managedCluster(a.cluster, true)} {
		regtest.Must(a.T, a.Admin.Status().Patch(a.T.Context(), o, patch))
	}
}

// recreate creates the add-on again, as it was declared.
func (a *testAgent) recreate() {
	a.T.Helper()
	o := addOn(a.cluster, a.addOn)
	o.UID = ""
	regtest.Must(a.T, a.Admin.Create(a.T.Context(), o))
	o.Status.Registrations = []addon.RegistrationConfig{
		tokenItem("system:serviceaccount:" + a.cluster + ":" + a.cluster + "-" + a.addOn + "-agent")}
	regtest.Must(a.T, a.Admin.Status().Update(a.T.Context(), o))
}

// foreign creates objects that look like the hub's, in each way but one.
func (k *kube) foreign(cluster string) (all []string) {
	k.T.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "owner"}}
	regtest.Must(k.T, k.Admin.Create(k.T.Context(), config))
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: config.UID}
	named := func(name string, labels map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: labels, OwnerReferences: owners}
	}
	labels := func(cluster, addOn string) map[string]string {
		return map[string]string{ocm.ClusterNameLabel: cluster, addon.NameLabel: addOn}
	}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: named("other", labels(cluster, "stranger1"))},
		&corev1.ServiceAccount{ObjectMeta: named("stranger2-agent", nil)},
		&corev1.ServiceAccount{ObjectMeta: named("stranger3-agent", labels("", "stranger3"))},
		&corev1.ServiceAccount{ObjectMeta: named("stranger4-agent", labels("default", "stranger4"))},
		&corev1.ServiceAccount{ObjectMeta: named("stranger5-agent", labels(cluster, "stranger5"), owner)},
		&corev1.ServiceAccount{ObjectMeta: named(cluster+"-stranger6-agent", labels(cluster, cluster+"-stranger6"))},
		&corev1.ServiceAccount{ObjectMeta: named("stranger7-token-role", labels(cluster, "stranger7"))},
		&rbacv1.Role{ObjectMeta: named("stranger8", labels(cluster, "stranger8"))},
		&rbacv1.Role{ObjectMeta: named("-token-role", labels(cluster, ""))},
		&rbacv1.RoleBinding{ObjectMeta: named("stranger9-agent", labels(cluster, "stranger9")),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "none"}},
	} {
		regtest.Must(k.T, k.Admin.Create(k.T.Context(), o))
	}
	return slices.DeleteFunc(k.left(cluster), func(s string) bool {
		return slices.Contains(infrastructure(cluster, "addon1"), s)
	})
}

// Tokens end with the add-on and with the cluster, whatever became of the
// add-on and of the hub's program meanwhile.
func TestTokensEndWithTheAddOn(t *testing.T) {
	k := newKube(t)
	k.Hub.ControllerManager(t, "garbage-collector-controller")
	orphan, unreadable, deny := (*testAgent).orphan, (*testAgent).unreadable, func(a *testAgent) {
		k.SetAccepted(a.cluster, false)
	}
	cases := []struct {
		name, cluster string
		end           []func(*testAgent)
		restart       []func(*token.HubOptions) // nil: end while the hub runs
		old           client.Client
		foreign       []string
	}{
		{name: "an orphan while the hub runs", cluster: "orphan", end: []func(*testAgent){orphan}},
		{name: "an orphan while the hub is down", cluster: "orphan-down", end: []func(*testAgent){
			orphan}, restart: []func(*token.HubOptions){}},
		{name: "an orphan of a denied cluster", cluster: "orphan-denied", end: []func(*testAgent){
			orphan, deny}, restart: []func(*token.HubOptions){}},
		{name: "a denied cluster whose times cannot be read, while the hub runs", cluster: "times", end: []func(*testAgent){
			unreadable, deny}},
		{name: "a denied cluster whose times cannot be read", cluster: "times-down", end: []func(*testAgent){
			unreadable, deny}, restart: []func(*token.HubOptions){}},
		{name: "an orphan of a hub that only removes", cluster: "orphan-remove", end: []func(*testAgent){
			orphan}, restart: []func(*token.HubOptions){removeOnly}},
	}
	for i := range cases {
		tc := &cases[i]
		a := k.join(tc.cluster, "addon1", token.Options{})
		a.until("it has a token", a.refreshed)
		tc.old, tc.foreign = a.addOnClient(), k.foreign(tc.cluster)
		if tc.restart != nil {
			k.stopHub()
		}
		for _, end := range tc.end {
			end(a)
		}
		if tc.restart != nil {
			k.runHub(2, tc.restart...)
		}
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("there are %q, foreign %q", k.left(tc.cluster), tc.foreign)
				}
			}()
			kubetest.Eventually(t, "only what belongs to others is left", func() bool {
				return slices.Equal(k.left(tc.cluster), tc.foreign)
			})
		})
		if len(tc.restart) > 0 {
			k.stopHub()
			k.runHub(2)
		}
	}
	for _, tc := range cases { // the API server remembers for 10 s that a token is good
		t.Run(tc.name+": the token is refused", func(t *testing.T) {
			kubetest.Eventually(t, "it is", func() bool { return !isGood(t, tc.old) })
		})
	}
}

// What lost its owner gets the add-on as owner in place: another ServiceAccount
// would end the tokens.
func TestOrphansGetTheirOwnerBack(t *testing.T) {
	k := newKube(t)
	k.Hub.ControllerManager(t, "garbage-collector-controller")
	a := k.join("adopted", "addon1", token.Options{})
	a.until("it has a token", a.refreshed)
	old, uid := a.addOnClient(), k.uid("adopted", "adopted-addon1-agent")
	expect := func(t *testing.T) {
		t.Helper()
		kubetest.Eventually(t, "all belong to the add-on", func() bool { return k.belong(a) })
		if got := k.uid("adopted", "adopted-addon1-agent"); got != uid || !isGood(t, old) {
			t.Errorf("UID %q instead of %q, the token works: %t", got, uid, isGood(t, old))
		}
	}
	t.Run("with the add-on created again", func(t *testing.T) {
		k.stopHub()
		a.orphan()
		a.recreate()
		k.runHub(2)
		expect(t)
	})
	for name, patch := range map[string]string{
		"without references":         `{"metadata":{"ownerReferences":null}}`,
		"without labels":             `{"metadata":{"labels":null}}`,
		"with a version of long ago": `{"metadata":{"ownerReferences":[{"apiVersion":"addon.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAddOn","name":"addon1","uid":"` + string(a.get().UID) + `"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			named := metav1.ObjectMeta{Namespace: "adopted", Name: "addon1-token-role"}
			account := metav1.ObjectMeta{Namespace: "adopted", Name: "adopted-addon1-agent"}
			for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: account}, &rbacv1.Role{ObjectMeta: named},
				&rbacv1.RoleBinding{ObjectMeta: named}} {
				regtest.Must(t, k.Admin.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
			}
			expect(t)
		})
	}
	t.Run("and the garbage collector removes them with it", func(t *testing.T) {
		k.stopHub()
		regtest.Must(t, k.Admin.Delete(t.Context(), addOn("adopted", "addon1"), client.Preconditions{}))
		kubetest.Eventually(t, "nothing is left", func() bool { return len(k.left("adopted")) == 0 })
	})
}

// belong reports whether the three objects of an add-on have the hub's labels,
// and it as owner.
func (k *kube) belong(a *testAgent) bool {
	k.T.Helper()
	want := []metav1.OwnerReference{{APIVersion: addon.GroupVersion.String(), Kind: "ManagedClusterAddOn", Name: a.addOn,
		UID: a.get().UID}}
	named := metav1.ObjectMeta{Namespace: a.cluster, Name: a.addOn + "-token-role"}
	account := metav1.ObjectMeta{Namespace: a.cluster, Name: a.cluster + "-" + a.addOn + "-agent"}
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: account}, &rbacv1.Role{ObjectMeta: named},
		&rbacv1.RoleBinding{ObjectMeta: named}} {
		regtest.Must(k.T, client.IgnoreNotFound(k.Admin.Get(k.T.Context(), client.ObjectKeyFromObject(o), o)))
		if !slices.Equal(o.GetOwnerReferences(), want) || o.GetLabels()[addon.NameLabel] != a.addOn ||
			o.GetLabels()[ocm.ClusterNameLabel] != a.cluster {
			return false
		}
	}
	return true
}
