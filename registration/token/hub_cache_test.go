package token_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// throughCache makes the hub read what the cache of wid-hub keeps. It fails
// reads of whole add-ons, which would cache them.
func (h *memoryHub) throughCache() {
	h.t.Helper()
	cached := interceptor.NewClient(h.WithWatch,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*addon.ManagedClusterAddOn); ok {
				h.t.Errorf("the hub reads the add-on %q through its cache", key)
			}
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			kind, err := apiutil.GVKForObject(o, c.Scheme())
			for like, options := range hub.CacheOptions().ByObject {
				if of, gvkErr := apiutil.GVKForObject(like, c.Scheme()); gvkErr == nil && of == kind {
					_, err = options.Transform(o)
				}
			}
			return err
		}})
	var err error
	if h.hub, err = token.NewHub(token.HubOptions{Client: cached, Reader: h.WithWatch, Events: h.events}); err != nil {
		h.t.Fatal(err)
	}
}

// Objects that are larger than the cache shows are repaired, granted and
// removed like others, and lose nothing that the hub does not write.
func TestHubReadsLargeObjectsPastItsCache(t *testing.T) {
	var owners []metav1.OwnerReference
	for i := range 50 {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("owner", i),
			UID: types.UID(fmt.Sprint(i))})
	}
	named := metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-token-role"}
	for name, tc := range map[string]struct {
		like   client.Object
		change func(client.Object)
		check  func(client.Object) error
	}{
		"more owners of the ServiceAccount": {
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}},
			func(o client.Object) {
				old := o.GetOwnerReferences()[len(o.GetOwnerReferences())-1]
				old.APIVersion = "addon.open-cluster-management.io/v1alpha1" // the hub changes it
				o.SetOwnerReferences(append(slices.Clone(owners), old))
				o.SetAnnotations(map[string]string{"a": "b"})
			}, func(o client.Object) error {
				if len(o.GetOwnerReferences()) != len(owners)+1 ||
					o.GetOwnerReferences()[len(owners)].APIVersion != "addon.open-cluster-management.io/v1beta1" ||
					o.GetAnnotations()["a"] != "b" {
					return fmt.Errorf("%+v", o)
				}
				return nil
			}},
		"more rules of the Role": {&rbacv1.Role{ObjectMeta: named}, func(o client.Object) {
			role := o.(*rbacv1.Role) //nolint:errcheck,forcetypeassert // a wrong type panics
			role.Rules = slices.Repeat(role.Rules, 50)
		}, func(o client.Object) error {
			if got := len(o.(*rbacv1.Role).Rules); got != 1 { //nolint:errcheck,forcetypeassert // a wrong type panics
				return fmt.Errorf("%d rules", got)
			}
			return nil
		}},
		"more subjects of the binding": {&rbacv1.RoleBinding{ObjectMeta: named}, func(o client.Object) {
			binding := o.(*rbacv1.RoleBinding) //nolint:errcheck,forcetypeassert // a wrong type panics
			binding.Subjects = slices.Repeat(binding.Subjects, 50)
		}, func(o client.Object) error {
			if got := len(o.(*rbacv1.RoleBinding).Subjects); got != 2 { //nolint:errcheck,forcetypeassert // a wrong type panics
				return fmt.Errorf("%d subjects", got)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := managedCluster("cluster1", true)
			h := newMemoryHub(t, cluster, addOn("cluster1", "addon1", tokenItem(user)))
			h.throughCache()
			h.reconcile("cluster1", "addon1")
			key := client.ObjectKeyFromObject(tc.like)
			err := h.Get(t.Context(), key, tc.like)
			before := tc.like.GetUID()
			tc.change(tc.like)
			regtest.Must(t, errors.Join(err, h.Update(t.Context(), tc.like)))
			h.reconcile("cluster1", "addon1")
			_, isAccount := tc.like.(*corev1.ServiceAccount)
			if err := h.Get(t.Context(), key, tc.like); err != nil || tc.check(tc.like) != nil ||
				isAccount && tc.like.GetUID() != before {
				t.Errorf("%v, %v, UID %q instead of %q", err, tc.check(tc.like), tc.like.GetUID(), before)
			}
			if got := h.condition("cluster1", "addon1"); !strings.HasPrefix(got, "True/") {
				t.Errorf("condition %q", got)
			}
			tc.change(tc.like)
			err = errors.Join(h.Update(t.Context(), tc.like), h.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			cluster.Spec.HubAcceptsClient = false
			regtest.Must(t, errors.Join(err, h.Update(t.Context(), cluster)))
			if h.reconcile("cluster1", "addon1"); len(there(t, h)) > 0 {
				t.Errorf("denied, there are %q", there(t, h))
			}
		})
	}
}

// A conflict makes the hub read the add-on again, past its cache.
func TestHubReportsPastItsCache(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	conflicts := 1
	h.WithWatch = interceptor.NewClient(h.WithWatch,
		interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
			p client.Patch, opts ...client.SubResourcePatchOption) error {
			if conflicts--; conflicts == 0 {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}})
	h.throughCache()
	h.reconcile("cluster1", "addon1")
	if got := h.condition("cluster1", "addon1"); conflicts >= 0 || !strings.HasPrefix(got, "True/") {
		t.Errorf("condition %q", got)
	}
}

// The hub knows its own ServiceAccount by both labels and the add-on as owner.
// Controllers of the add-on may give theirs a part of that, and the agent
// declares which one it wants.
func TestHubGrantsNoServiceAccountOfTheAddOnsControllers(t *testing.T) {
	a := addOn("cluster1", "addon1")
	own := metav1.OwnerReference{APIVersion: "addon.open-cluster-management.io/v1beta1", Kind: "ManagedClusterAddOn",
		Name: "addon1", UID: a.UID}
	both := map[string]string{addon.NameLabel: "addon1", ocm.ClusterNameLabel: "cluster1"}
	named := metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-token-role"}
	granted := []client.Object{
		&rbacv1.Role{ObjectMeta: named,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
				ResourceNames: []string{"addon1-agent"}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: named,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name}, Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:open-cluster-management:cluster1"},
				{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "open-cluster-management:cluster1"}}},
	}
	for _, o := range granted {
		o.SetLabels(both)
		o.SetOwnerReferences([]metav1.OwnerReference{own})
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		more   []client.Object
		grants bool
	}{
		"the owner alone": {nil, []metav1.OwnerReference{own}, nil, false},
		"the owner and the label of the add-on": {map[string]string{addon.NameLabel: "addon1"}, []metav1.OwnerReference{own},
			nil, false},
		"the owner and the label of the cluster": {map[string]string{ocm.ClusterNameLabel: "cluster1"},
			[]metav1.OwnerReference{own}, nil, false},
		"the owner and OCM's labels": {map[string]string{ocm.AddOnLabel: "addon1", ocm.TokenLabel: "true"},
			[]metav1.OwnerReference{own}, nil, false},
		"both labels without an owner":         {both, nil, nil, false},
		"the owner alone, and a Role alone":    {nil, []metav1.OwnerReference{own}, granted[:1], false},
		"the owner alone, and a binding alone": {nil, []metav1.OwnerReference{own}, granted[1:], false},
		"both labels and the owner":            {both, []metav1.OwnerReference{own}, nil, true},
		// The cluster gains no right.
		"the owner alone, while the cluster may have its tokens": {nil, []metav1.OwnerReference{own},
			granted, true},
		"both labels without an owner, while the cluster may have its tokens": {both, nil, granted, true},
	} {
		t.Run(name, func(t *testing.T) {
			existing := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-agent",
				UID: "theirs", Labels: tc.labels, OwnerReferences: tc.owners}}
			cluster := managedCluster("cluster1", true)
			objects := []client.Object{cluster,
				addOn("cluster1", "addon1", tokenItem("system:serviceaccount:cluster1:addon1-agent")), existing}
			for _, o := range tc.more {
				objects = append(objects, o.DeepCopyObject().(client.Object)) //nolint:errcheck,forcetypeassert // a copy
			}
			h := newMemoryHub(t, objects...)
			h.throughCache()
			h.reconcile("cluster1", "addon1")
			want, left := "False/ObjectTaken: the ServiceAccount ", 1
			if tc.grants {
				want, left = "True/", 3
			}
			if got := h.condition("cluster1", "addon1"); !strings.HasPrefix(got, want) {
				t.Errorf("condition %q", got)
			}
			if got := there(t, h); len(got) != left {
				t.Errorf("there are %q", got)
			}
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(existing), existing); err != nil ||
				existing.UID != "theirs" {
				t.Errorf("UID %q, %v", existing.UID, err)
			}
			h.declare("cluster1", "addon1", registration.AuthTypeCSR)
			if h.reconcile("cluster1", "addon1"); len(there(t, h)) > 0 { // by the rules for removal
				t.Errorf("without the driver there are %q", there(t, h))
			}
		})
	}
}

// A reconcile reads the parts of an add-on that are as they should be from the
// cache alone.
func TestHubReadsNoRoleThatIsRight(t *testing.T) {
	h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
	h.reconcile("cluster1", "addon1")
	var live []string
	reader := interceptor.NewClient(h.WithWatch,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			live = append(live, fmt.Sprintf("%T", o))
			return c.Get(ctx, key, o, opts...)
		}})
	hub, err := token.NewHub(token.HubOptions{Client: h.WithWatch, Reader: reader})
	regtest.Must(t, err)
	if _, err := hub.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}}); err != nil ||
		!slices.Equal(live, []string{"*addon.ManagedClusterAddOn"}) {
		t.Errorf("it reads %q, %v", live, err)
	}
}
