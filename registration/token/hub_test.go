package token_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
	"github.com/workloadid/workloadid/registration/token"
)

func managedCluster(name string, accepted bool) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepted}}
}

func tokenItem(user string, groups ...string) addon.RegistrationConfig {
	return addon.RegistrationConfig{Type: ocm.KubeClient,
		KubeClient: &addon.KubeClientConfig{Driver: registration.AuthTypeToken,
			Subject: addon.KubeClientSubject{User: user, Groups: groups}}}
}

func addOn(namespace, name string, items ...addon.RegistrationConfig) *addon.ManagedClusterAddOn {
	return &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID("addon-" + namespace + "-" + name)},
		Status: addon.ManagedClusterAddOnStatus{Registrations: items}}
}

// memoryHub is the hub's half with an API server in memory, which gives each
// object a UID.
type memoryHub struct {
	client.WithWatch
	t      *testing.T
	hub    *token.Hub
	events *events.FakeRecorder
	writes atomic.Int64
	uids   atomic.Int64
	fails  error // of all creations
}

func newMemoryHub(t *testing.T, objects ...client.Object) *memoryHub {
	t.Helper()
	return newMemoryHubOf(t, addon.GroupVersion, objects...)
}

func newMemoryHubOf(t *testing.T, served schema.GroupVersion, objects ...client.Object) *memoryHub {
	t.Helper()
	h := &memoryHub{t: t, events: events.NewFakeRecorder(100)}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(served.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	h.WithWatch = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithRESTMapper(mapper).WithObjects(objects...).
		WithStatusSubresource(&addon.ManagedClusterAddOn{},
			&v1alpha1.ManagedClusterAddOn{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if h.writes.Add(1); h.fails != nil {
				return h.fails
			}
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", h.uids.Add(1))))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			h.writes.Add(1)
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			h.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	var err error
	if h.hub, err = token.NewHub(token.HubOptions{Client: h, Reader: h, Events: h.events}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *memoryHub) reconcile(namespace, name string) reconcile.Result {
	h.t.Helper()
	result, err := h.hub.Reconcile(h.t.Context(),
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	regtest.Must(h.t, err)
	return result
}

// condition returns TokenInfrastructureReady as "status/reason: message".
func (h *memoryHub) condition(namespace, name string) string {
	h.t.Helper()
	a := addOn(namespace, name)
	regtest.Must(h.t, h.Get(h.t.Context(), client.ObjectKeyFromObject(a), a))
	if c := meta.FindStatusCondition(a.Status.Conditions, addon.ConditionTokenInfrastructureReady); c != nil {
		return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
	}
	return ""
}

// there returns what exists in all namespaces, as "ServiceAccount
// namespace/name".
func there(t testing.TB, c client.Reader, namespaces ...string) (all []string) {
	t.Helper()
	for kind, list := range map[string]client.ObjectList{"ServiceAccount": &corev1.ServiceAccountList{},
		"Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{}} {
		regtest.Must(t, c.List(t.Context(), list))
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err == nil && (len(namespaces) == 0 || slices.Contains(namespaces, m.GetNamespace())) {
				all = append(all, kind+" "+m.GetNamespace()+"/"+m.GetName())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

func TestHubProvides(t *testing.T) {
	for name, account := range map[string]string{"proposed": "cluster1-addon1-agent", "released": "addon1-agent"} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryHub(t, managedCluster("cluster1", true),
				addOn("cluster1", "addon1", tokenItem("system:serviceaccount:cluster1:"+account)))
			h.reconcile("cluster1", "addon1")
			sa, role, binding := &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}
			for o, key := range map[client.Object]string{sa: account, role: "addon1-token-role", binding: "addon1-token-role"} {
				regtest.Must(t, h.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: key}, o))
				want := []metav1.OwnerReference{{APIVersion: "addon.open-cluster-management.io/v1beta1",
					Kind: "ManagedClusterAddOn", Name: "addon1", UID: "addon-cluster1-addon1"}}
				if !reflect.DeepEqual(o.GetOwnerReferences(), want) || o.GetLabels()[addon.NameLabel] != "addon1" {
					t.Errorf("%T: owners %+v, labels %v", o, o.GetOwnerReferences(), o.GetLabels())
				}
			}
			if want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
				ResourceNames: []string{account}, Verbs: []string{"create"}}}; !reflect.DeepEqual(role.Rules, want) {
				t.Errorf("rules %+v", role.Rules)
			}
			if len(binding.Subjects) != 2 || binding.Subjects[0].Name != "system:open-cluster-management:cluster1" ||
				binding.Subjects[1].Name != "open-cluster-management:cluster1" {
				t.Errorf("subjects %+v", binding.Subjects)
			}
			if got, want := h.condition("cluster1", "addon1"),
				fmt.Sprintf("True/TokenInfrastructureReady: ServiceAccount cluster1/%s (UID: %s) is ready", account,
					sa.UID); got != want {
				t.Errorf("condition %q, want %q", got, want)
			}
			before := h.writes.Load()
			if h.reconcile("cluster1", "addon1"); h.writes.Load() != before {
				t.Error("the second reconcile writes")
			}
		})
	}
}

// Hubs of today serve v1alpha1, with one driver field for the add-on.
func TestHubOfTheOlderVersion(t *testing.T) {
	a := &v1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1", UID: "u"},
		Status: v1alpha1.ManagedClusterAddOnStatus{
			KubeClientDriver: "token",
			Registrations: []v1alpha1.RegistrationConfig{{SignerName: v1alpha1.KubeClientSigner,
				Subject: v1alpha1.Subject{User: user}}}}}
	h := newMemoryHubOf(t, v1alpha1.GroupVersion, managedCluster("cluster1", true), a)
	h.reconcile("cluster1", "addon1")
	regtest.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	sa := &corev1.ServiceAccount{}
	if err := h.Get(t.Context(), account, sa); err != nil ||
		sa.OwnerReferences[0].APIVersion != "addon.open-cluster-management.io/v1alpha1" ||
		!meta.IsStatusConditionTrue(a.Status.Conditions, addon.ConditionTokenInfrastructureReady) ||
		a.Status.KubeClientDriver != "token" {
		t.Errorf("%+v, add-on %+v, %v", sa, a.Status, err)
	}
}

func TestHubRefuses(t *testing.T) {
	item := tokenItem
	for name, tc := range map[string]struct {
		namespace, addOn string
		items            []addon.RegistrationConfig
		reason           string
	}{
		"another cluster's ServiceAccount": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster2:cluster2-addon1-agent")}, "InvalidSubject"},
		"its name in another cluster": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster2:cluster1-addon1-agent")}, "InvalidSubject"},
		"another cluster's name here": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:cluster2-addon1-agent")}, "InvalidSubject"},
		"kube-system": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:kube-system:addon1-agent")}, "InvalidSubject"},
		"another add-on's ServiceAccount": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:cluster1-addon2-agent")}, "InvalidSubject"},
		"the released name of another add-on": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:addon2-agent")}, "InvalidSubject"},
		"a name that begins the same": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:cluster1-addon10-agent")}, "InvalidSubject"},
		"the namespace's default ServiceAccount": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:default")}, "InvalidSubject"},
		"a user": {"cluster1", "addon1", []addon.RegistrationConfig{item("system:admin")},
			"InvalidSubject"},
		"no user": {"cluster1", "addon1", []addon.RegistrationConfig{item("")},
			"InvalidSubject"},
		"groups": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item(user, "system:masters")}, "InvalidSubject"},
		"two kubeClient items": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item(user), {Type: ocm.KubeClient}}, "SeveralKubeClientItems"},
		"an add-on name with a dot": {"cluster1", "addon1.x",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:addon1.x-agent")}, "InvalidName"},
		"a namespace that is no cluster": {"kube-system", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:kube-system:addon1-agent")}, "InvalidName"},
		"a cluster that the hub has not accepted": {"denied", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:denied:addon1-agent")}, ocm.ReasonClusterNotAccepted},
		"a cluster that does not exist": {"nobody", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:nobody:addon1-agent")}, ocm.ReasonClusterNotAccepted},
		"several items of a cluster not accepted": {"denied", "addon1",
			[]addon.RegistrationConfig{item(user), {Type: ocm.KubeClient}}, ocm.ReasonClusterNotAccepted},
		"a ServiceAccount of the other separators": {"cluster1", "addon1",
			[]addon.RegistrationConfig{item("system:serviceaccount:cluster1:cluster1:addon1-agent")}, "InvalidSubject"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryHub(t, managedCluster("cluster1", true), managedCluster("cluster2", true),
				managedCluster("kube-system", true), managedCluster("denied", false), addOn(tc.namespace, tc.addOn, tc.items...))
			h.reconcile(tc.namespace, tc.addOn)
			if got := h.condition(tc.namespace, tc.addOn); !strings.HasPrefix(got, "False/"+tc.reason+": ") {
				t.Errorf("condition %q", got)
			}
			if got := there(t, h); len(got) > 0 {
				t.Errorf("it made %q", got)
			}
			if event := <-h.events.Events; !strings.Contains(event, "Warning "+tc.reason) {
				t.Errorf("event %q", event)
			}
			before := h.writes.Load()
			if h.reconcile(tc.namespace, tc.addOn); h.writes.Load() != before {
				t.Error("the second reconcile writes")
			}
		})
	}
}

// What exists without the hub's labels, or with another owner, is neither
// adopted nor changed nor deleted.
func TestHubAdoptsNothing(t *testing.T) {
	labels := map[string]string{addon.NameLabel: "addon1", ocm.ClusterNameLabel: "cluster1"}
	named := func(name string, labels map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "cluster1", Name: name, UID: "theirs", Labels: labels, OwnerReferences: owners}
	}
	former := metav1.OwnerReference{APIVersion: "addon.open-cluster-management.io/v1beta1", Kind: "ManagedClusterAddOn",
		Name: "addon1", UID: "former"}
	other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "addon1", UID: "other"}
	for name, existing := range map[string]client.Object{
		"a ServiceAccount": &corev1.ServiceAccount{ObjectMeta: named("cluster1-addon1-agent", nil)},
		"a ServiceAccount of another add-on": &corev1.ServiceAccount{ObjectMeta: named("cluster1-addon1-agent",
			map[string]string{addon.NameLabel: "addon2", ocm.ClusterNameLabel: "cluster1"})},
		"a ServiceAccount of another cluster": &corev1.ServiceAccount{ObjectMeta: named("cluster1-addon1-agent",
			map[string]string{addon.NameLabel: "addon1", ocm.ClusterNameLabel: "cluster2"})},
		"a ServiceAccount with another owner": &corev1.ServiceAccount{ObjectMeta: named("cluster1-addon1-agent", labels,
			other)},
		"a former one without labels": &corev1.ServiceAccount{ObjectMeta: named("cluster1-addon1-agent", nil,
			former)},
		"a Role":        &rbacv1.Role{ObjectMeta: named("addon1-token-role", nil)},
		"a RoleBinding": &rbacv1.RoleBinding{ObjectMeta: named("addon1-token-role", nil)},
		"a RoleBinding with another owner": &rbacv1.RoleBinding{ObjectMeta: named("addon1-token-role", labels, former,
			other)},
	} {
		t.Run(name, func(t *testing.T) {
			a := addOn("cluster1", "addon1", tokenItem(user))
			h := newMemoryHub(t, managedCluster("cluster1", true), a, existing)
			if result := h.reconcile("cluster1", "addon1"); result.RequeueAfter == 0 {
				t.Error("it never looks again")
			}
			kind := reflect.TypeOf(existing).Elem().Name()
			if got := h.condition("cluster1", "addon1"); !strings.HasPrefix(got, "False/ObjectTaken: the "+kind+" ") ||
				!strings.Contains(got, "is not of this add-on") {
				t.Errorf("condition %q", got)
			}
			h.declare("cluster1", "addon1", registration.AuthTypeCSR)
			h.reconcile("cluster1", "addon1")
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(existing), existing); err != nil ||
				existing.GetUID() != "theirs" {
				t.Errorf("it is not as it was: %v, %v", existing, err)
			}
			if got := there(t, h); len(got) != 1 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// The add-on c-b cannot take the ServiceAccount of the add-on b, whichever
// comes first.
func TestOneServiceAccountForEachAddOn(t *testing.T) {
	const user = "system:serviceaccount:c:c-b-agent"
	h := newMemoryHub(t, managedCluster("c", true), addOn("c", "c-b", tokenItem(user)), addOn("c", "b", tokenItem(user)),
		addOn("c", "c-d", tokenItem("system:serviceaccount:c:c-c-d-agent")))
	for name, want := range map[string]string{"c-b": "False/" + "InvalidSubject", "b": "True/", "c-d": "True/"} {
		h.reconcile("c", name)
		if got := h.condition("c", name); !strings.HasPrefix(got, want) {
			t.Errorf("add-on %q: condition %q", name, got)
		}
	}
	if got := h.condition("c", "c-b"); !strings.Contains(got, "begins with the cluster's name and a hyphen") {
		t.Errorf("condition %q", got)
	}
}

func (h *memoryHub) declare(namespace, name, driver string) {
	h.t.Helper()
	a := addOn(namespace, name)
	regtest.Must(h.t, h.Get(h.t.Context(), client.ObjectKeyFromObject(a), a))
	a.Status.Registrations[0].KubeClient.Driver = driver
	regtest.Must(h.t, h.Status().Update(h.t.Context(), a))
}

func TestHubRepairs(t *testing.T) {
	for name, drift := range map[string]func(t *testing.T, c client.Client) error{
		"more rules": func(t *testing.T, c client.Client) error {
			role := &rbacv1.Role{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "addon1-token-role"}, role); err != nil {
				return err
			}
			role.Rules[0].ResourceNames = nil
			return c.Update(t.Context(), role)
		},
		"more subjects": func(t *testing.T, c client.Client) error {
			binding := &rbacv1.RoleBinding{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "addon1-token-role"},
				binding); err != nil {
				return err
			}
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "Group", Name: "system:authenticated"})
			return c.Update(t.Context(), binding)
		},
		"no Role": func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(),
				&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-token-role"}})
		},
		"no RoleBinding": func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(),
				&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-token-role"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
			h.reconcile("cluster1", "addon1")
			before := h.condition("cluster1", "addon1")
			regtest.Must(t, drift(t, h))
			h.reconcile("cluster1", "addon1")
			role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
			key := client.ObjectKey{Namespace: "cluster1", Name: "addon1-token-role"}
			if err := h.Get(t.Context(), key, role); err != nil ||
				!slices.Equal(role.Rules[0].ResourceNames, []string{account.Name}) {
				t.Errorf("rules %+v, %v", role.Rules, err)
			}
			if err := h.Get(t.Context(), key, binding); err != nil || len(binding.Subjects) != 2 {
				t.Errorf("subjects %+v, %v", binding.Subjects, err)
			}
			if got := h.condition("cluster1", "addon1"); got != before {
				t.Errorf("condition %q, before %q", got, before)
			}
		})
	}
	t.Run("no ServiceAccount", func(t *testing.T) {
		h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
		h.reconcile("cluster1", "addon1")
		before := h.condition("cluster1", "addon1")
		regtest.Must(t,
			h.Delete(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: account.Name}}))
		h.reconcile("cluster1", "addon1")
		if got := h.condition("cluster1", "addon1"); got == before || !strings.HasPrefix(got, "True/") {
			t.Errorf("condition %q, before %q", got, before)
		}
	})
}

// An agent that switches to the other name leaves no ServiceAccount behind.
func TestHubFollowsTheName(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	h.reconcile("cluster1", "addon1")
	a := addOn("cluster1", "addon1")
	regtest.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	a.Status.Registrations[0].KubeClient.Subject.User = "system:serviceaccount:cluster1:addon1-agent"
	regtest.Must(t, h.Status().Update(t.Context(), a))
	h.reconcile("cluster1", "addon1")
	if got, want := there(t, h), []string{"Role cluster1/addon1-token-role", "RoleBinding cluster1/addon1-token-role",
		"ServiceAccount cluster1/addon1-agent"}; !slices.Equal(got, want) {
		t.Errorf("there are %q", got)
	}
}

func TestHubLacksRights(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	h.fails = apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "addon1-token-role", nil)
	if result := h.reconcile("cluster1", "addon1"); result.RequeueAfter == 0 {
		t.Error("it never looks again")
	}
	if got := h.condition("cluster1", "addon1"); !strings.HasPrefix(got, "False/"+ocm.ReasonForbidden) {
		t.Errorf("condition %q", got)
	}
	h.fails = nil
	if h.reconcile("cluster1", "addon1"); !strings.HasPrefix(h.condition("cluster1", "addon1"), "True/") {
		t.Errorf("condition %q", h.condition("cluster1", "addon1"))
	}
}

// A webhook refuses the Role with a long text.
func TestLongestNoteIsRecorded(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	var err error
	h.hub, err = token.NewHub(token.HubOptions{Client: h, Reader: h, Events: kubetest.Start(t).Recorder(t)})
	regtest.Must(t, err)
	h.fails = apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "addon1-token-role",
		errors.New(strings.Repeat("é", 10_000)))
	h.reconcile("cluster1", "addon1")
}

// withoutAccounts is a client whose cache does not show ServiceAccounts yet.
func withoutAccounts(c client.WithWatch) client.Client {
	return interceptor.NewClient(c,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*corev1.ServiceAccount); ok {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		}})
}

// A cache that does not show what exists yet is no reason to publish a
// ServiceAccount without UID, or to fail.
func TestHubReadsPastItsCache(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	h.reconcile("cluster1", "addon1")
	before := h.condition("cluster1", "addon1")
	hub, err := token.NewHub(token.HubOptions{Client: withoutAccounts(h.WithWatch), Reader: h})
	regtest.Must(t, err)
	_, err = hub.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}})
	if got := h.condition("cluster1", "addon1"); err != nil || got != before {
		t.Errorf("condition %q, before %q, %v", got, before, err)
	}
}

// A driver of another program is none of the hub's business.
func TestHubLeavesOtherDriversAlone(t *testing.T) {
	item := tokenItem(user)
	item.KubeClient.Driver = "grpc"
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", item))
	if h.reconcile("cluster1", "addon1"); h.writes.Load() > 0 || h.condition("cluster1", "addon1") != "" {
		t.Errorf("it makes %d writes, and the condition is %q", h.writes.Load(), h.condition("cluster1", "addon1"))
	}
}

func TestHubLeavesDeletedAddOnsAlone(t *testing.T) {
	a := addOn("cluster1", "addon1", tokenItem(user))
	a.Finalizers = []string{"example.com/other"}
	h := newMemoryHub(t, managedCluster("cluster1", true), a)
	regtest.Must(t, h.WithWatch.Delete(t.Context(), a))
	h.reconcile("cluster1", "addon1")
	h.reconcile("cluster1", "never-was")
	if got := there(t, h); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
}

func TestNewHubRefuses(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithRESTMapper(meta.NewDefaultRESTMapper(nil)).Build()
	for _, options := range []token.HubOptions{{Reader: c}, {Client: c}} { // a cached Reader would be a silent default
		if _, err := token.NewHub(options); err == nil || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("%+v: %v", options, err)
		}
	}
	if _, err := token.NewHub(token.HubOptions{Client: c, Reader: c}); !meta.IsNoMatchError(err) {
		t.Errorf("a hub without add-ons: %v", err)
	}
	if _, err := token.NewHub(token.HubOptions{Client: c, Reader: c, RemoveOnly: true}); err != nil {
		t.Errorf("a hub without add-ons that only removes: %v", err)
	}
}
