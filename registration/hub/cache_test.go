package hub_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/cachetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// most is how many bytes the cache keeps of an object that a bootstrap user
// created.
const most = 2 << 10

// optionsOf returns the options for objects of the same type.
func optionsOf(t *testing.T, like client.Object) cache.ByObject {
	t.Helper()
	for o, options := range hub.CacheOptions().ByObject {
		if reflect.TypeOf(o) == reflect.TypeOf(like) {
			return options
		}
	}
	t.Fatalf("no options for %T", like)
	return cache.ByObject{}
}

// cached returns what the cache keeps of an object. It may see an object twice.
func cached[T client.Object](t *testing.T, options cache.ByObject, o T) T {
	t.Helper()
	once, err := options.Transform(o)
	regtest.Must(t, err)
	first, _ := json.Marshal(once)
	twice, err := options.Transform(once)
	if second, _ := json.Marshal(twice); err != nil || string(first) != string(second) {
		t.Errorf("the second time %s, %v", second, err)
	}
	return twice.(T) //nolint:errcheck,forcetypeassert // a wrong type panics
}

func size(t *testing.T, o any) int {
	t.Helper()
	content, err := json.Marshal(o)
	regtest.Must(t, err)
	return len(content)
}

// largest returns the metadata of an object that a user made as large as
// possible.
func largest() metav1.ObjectMeta {
	name, long := strings.Repeat("n", 253), strings.Repeat("x", 100<<10)
	m := metav1.ObjectMeta{Name: name, GenerateName: name, UID: "u", ResourceVersion: "1",
		Annotations: map[string]string{"a": long},
		Labels:      map[string]string{}, Finalizers: []string{long}, OwnerReferences: []metav1.OwnerReference{{Name: long}},
		ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"` + long + `":{}}`)}}}
	for i := range 100 {
		m.Labels[strings.Repeat("l", 1+i)] = strings.Repeat("v", 63)
	}
	return m
}

func TestCacheKeepsLittleOfRequests(t *testing.T) {
	options := optionsOf(t, &certificatesv1.CertificateSigningRequest{})
	request := &metav1.PartialObjectMetadata{ObjectMeta: largest()}
	own := map[string]string{"open-cluster-management.io/cluster-name": strings.Repeat("c", 63),
		"open-cluster-management.io/addon-name": strings.Repeat("a", 63)}
	maps.Copy(request.Labels, own)
	if !options.Label.Matches(labels.Set(own)) || options.Label.Matches(labels.Set{"app": "x"}) {
		t.Errorf("the selector is %s", options.Label)
	}
	kept := cached(t, options, request)
	if got := size(t, kept); got > most || !maps.Equal(kept.Labels, own) || kept.Name != strings.Repeat("n", 253) {
		t.Errorf("it keeps %d bytes: %.500v", got, kept)
	}
}

// The hub reconciles a cluster when its annotations, its finalizers or the
// status of a condition change.
func TestCacheShowsChangesOfClusters(t *testing.T) {
	options := optionsOf(t, &ocm.ManagedCluster{})
	m := largest()
	pending := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Generation: 3, Annotations: m.Annotations,
		Finalizers: []string{"example.com/a", ocm.Finalizer}},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}, Status: ocm.ManagedClusterStatus{Conditions: []metav1.Condition{
			{Type: "Other", Status: "True"}, {Type: ocm.ConditionHubAccepted, Status: "False", Message: m.Name},
			{Type: ocm.ConditionJoined, Status: "True"}}}}
	edited := pending.DeepCopy()
	edited.Annotations["b"] = ""
	kept := cached(t, options, pending)
	if got := size(t, kept); got > most || kept.Generation != 3 || !kept.Spec.HubAcceptsClient ||
		!slices.Equal(kept.Finalizers, []string{ocm.Finalizer}) {
		t.Errorf("it keeps %d bytes: %.500v", got, kept)
	}
	if want := []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: "False"},
		{Type: ocm.ConditionJoined, Status: "True"}}; !slices.Equal(kept.Status.Conditions, want) {
		t.Errorf("it keeps the conditions %+v", kept.Status.Conditions)
	}
	if maps.Equal(kept.Annotations, cached(t, options, edited).Annotations) {
		t.Error("an edit of the annotations does not show")
	}
	for key := range kept.Annotations { // a user sets it too
		disguised := &ocm.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: m.Annotations["a"]}}}
		if got := size(t, cached(t, options, disguised)); got > most {
			t.Errorf("it keeps %d bytes of a user's annotation %s", got, key)
		}
	}
}

// The hub decides by these, so the cache keeps what it writes itself, and what
// a hub of Open Cluster Management left.
func TestCacheKeepsWhatTheHubReads(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1-token-role", UID: "u",
		Finalizers: []string{"example.com/a"},
		Labels: map[string]string{"open-cluster-management.io/cluster-name": "cluster1",
			"open-cluster-management.io/addon-name": "addon1",
			"addon.open-cluster-management.io/name": "addon1", "addon.open-cluster-management.io/token-infrastructure": "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ManagedClusterAddOn", Name: "addon1", UID: "a"},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "b"}}}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
		ResourceNames: []string{"addon1-agent"}, Verbs: []string{"create"}}}
	role, subjects := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "addon1-token-role"},
		[]rbacv1.Subject{{Kind: "Group", Name: "g"}}
	for what, o := range map[string]client.Object{
		"a ServiceAccount":     &corev1.ServiceAccount{ObjectMeta: named},
		"a Role":               &rbacv1.Role{ObjectMeta: named, Rules: rules},
		"a RoleBinding":        &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: role, Subjects: subjects},
		"a ClusterRoleBinding": &rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: role, Subjects: subjects},
	} {
		t.Run(what, func(t *testing.T) {
			options := optionsOf(t, o)
			whole := o.DeepCopyObject().(client.Object) //nolint:errcheck,forcetypeassert // a copy
			whole.SetAnnotations(map[string]string{"a": "b"})
			whole.GetLabels()["app"] = "c"
			if kept := cached(t, options, whole); !reflect.DeepEqual(kept, o) || options.Label != nil {
				t.Errorf("it keeps %+v", kept)
			}
		})
	}
	t.Run("that a binding has finalizers", func(t *testing.T) {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Finalizers: slices.Repeat([]string{"example.com/a"}, 1000)}}
		if kept := cached(t, optionsOf(t, binding), binding); len(kept.Finalizers) != 1 {
			t.Errorf("it keeps %q", kept.Finalizers)
		}
	})
}

// Tenants of the hub write all these. The names are those that the hub's
// controllers look for.
func TestCacheKeepsLittleOfEachType(t *testing.T) {
	const name = "addon1-token-role"
	named := metav1.ObjectMeta{Name: name}
	metadata := func(version, kind string) client.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: named}
	}
	for what, o := range map[string]client.Object{
		"metadata of CertificateSigningRequests": metadata("certificates.k8s.io/v1", "CertificateSigningRequest"),
		"ManagedClusters":                        &ocm.ManagedCluster{ObjectMeta: named},
		"Namespaces":                             &corev1.Namespace{ObjectMeta: named},
		"ServiceAccounts":                        &corev1.ServiceAccount{ObjectMeta: named},
		"Roles":                                  &rbacv1.Role{ObjectMeta: named},
		"RoleBindings":                           &rbacv1.RoleBinding{ObjectMeta: named},
		"ClusterRoleBindings":                    &rbacv1.ClusterRoleBinding{ObjectMeta: named},
		"metadata of ClusterRoles":               metadata("rbac.authorization.k8s.io/v1", "ClusterRole"),
		"metadata of ManagedClusterAddOns": metadata("addon.open-cluster-management.io/v1beta1",
			"ManagedClusterAddOn"),
		"metadata of ManagedClusterAddOns, v1alpha1": metadata("addon.open-cluster-management.io/v1alpha1",
			"ManagedClusterAddOn"),
		// the API server takes it
		"Roles with a long name": &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 600_000)}},
	} {
		t.Run(what, func(t *testing.T) { cachetest.Check(t, transformOf(t, o), o) })
	}
}

// transformOf returns the transform function for objects of the same kind.
func transformOf(t *testing.T, like client.Object) toolscache.TransformFunc {
	t.Helper()
	kind, err := apiutil.GVKForObject(like, regtest.Scheme(t))
	regtest.Must(t, err)
	options := hub.CacheOptions()
	for o, byObject := range options.ByObject {
		if got, err := apiutil.GVKForObject(o, regtest.Scheme(t)); err == nil && got == kind {
			return byObject.Transform
		}
	}
	return options.DefaultTransform
}

// A finalizer keeps a binding after the hub has deleted it. It loses its
// subjects, and nothing that the cache does not show.
func TestHubWritesNoObjectOfTheCache(t *testing.T) {
	const name = "open-cluster-management:managedcluster:cluster1:work"
	groups := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group",
		Name: "system:open-cluster-management:cluster1"},
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "open-cluster-management:cluster1"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name,
		Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"app": "c"},
		Finalizers: []string{"cluster.open-cluster-management.io/manifest-work-cleanup", "example.com/other"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "open-cluster-management:managedcluster:work"}, Subjects: groups}
	h := newHubTest(t, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}, binding)
	h.restart(func(o *hub.Options) { o.Client, o.Reader = throughCache(t, h.client), h.client })
	if _, err := h.hub.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Name: "cluster1"}}); err != nil {
		t.Fatal(err)
	}
	regtest.Must(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	if binding.DeletionTimestamp.IsZero() || len(binding.Subjects) > 0 ||
		!slices.Equal(binding.Finalizers, []string{"example.com/other"}) {
		t.Errorf("the binding is %+v", binding)
	}
	if binding.Annotations["a"] != "b" || binding.Labels["app"] != "c" {
		t.Errorf("it lost annotations or labels: %+v", binding.ObjectMeta)
	}
}

// throughCache returns a client that reads what the cache keeps.
func throughCache(t *testing.T, c client.WithWatch) client.Client {
	return interceptor.NewClient(c,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := transformOf(t, o)(o)
			return err
		}})
}
