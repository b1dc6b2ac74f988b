package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// hashAnnotation shows in the cache that annotations have changed.
const hashAnnotation = "registration.open-cluster-management.io/hash-of-annotations"

// Limits of a list in the cache. The hub's own lists have at most two items and
// 500 bytes.
const maxItems, maxList = 16, 2 << 10

// CacheOptions returns options for the cache of a manager that runs a Hub and
// the controllers of its drivers. They bound the memory that writers of objects
// can take. The cache keeps the fields that these controllers read, less than 8
// KiB of each object:
//
//   - CertificateSigningRequests: metadata, for requests with the label
//     [ocm.ClusterNameLabel].
//   - ManagedClusters: acceptance, the status of the conditions of hub and
//     agent, and a hash in place of the annotations.
//   - ServiceAccounts, Roles and bindings: owners, finalizers, subjects, role,
//     and the rules of Roles for tokens. A list that is larger than the hub's
//     own is nil, and a name of more than 253 bytes is its hash.
//   - Namespaces, ClusterRoles and metadata of ManagedClusterAddOns: name,
//     times, and the labels that name cluster and add-on.
//   - All other objects: without managedFields.
//
// Other controllers of the manager read the same cache. Let them read other
// requests and fields through the manager's API reader. Never update an object
// from this cache: the update would remove the dropped fields.
func CacheOptions() cache.Options {
	byObject := map[client.Object]cache.ByObject{&certificatesv1.CertificateSigningRequest{}: {Label: ofClusters(),
		Transform: strip}}
	for _, o := range []client.Object{&ocm.ManagedCluster{}, &corev1.Namespace{}, &corev1.ServiceAccount{},
		&rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		byObject[o] = cache.ByObject{Transform: strip}
	}
	return cache.Options{DefaultTransform: stripOther, ByObject: byObject}
}

// ofClusters selects objects with the label of a cluster.
func ofClusters() labels.Selector {
	has, _ := labels.NewRequirement(ocm.ClusterNameLabel, selection.Exists, nil) // a constant is valid
	return labels.NewSelector().Add(*has)
}

// stripOther handles add-ons too, because a cache cannot have options for a
// kind that the hub may not serve.
func stripOther(in any) (any, error) {
	if o, ok := in.(*metav1.PartialObjectMetadata); ok && o.Kind == "ManagedClusterAddOn" {
		return strip(in)
	}
	return cache.TransformStripManagedFields()(in)
}

// strip may see an object twice.
func strip(in any) (any, error) {
	o, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // a deletion that the watch missed
	}
	annotations, owners, finalizers := o.GetAnnotations(), o.GetOwnerReferences(), o.GetFinalizers()
	stripMetadata(o)
	switch o := in.(type) {
	case *ocm.ManagedCluster:
		stripCluster(o, annotations, finalizers)
		return in, nil
	case *corev1.Namespace:
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
		return in, nil
	case *corev1.ServiceAccount:
		*o = corev1.ServiceAccount{ObjectMeta: o.ObjectMeta}
	case *rbacv1.Role:
		if o.Rules = bounded(o.Rules); !strings.HasSuffix(o.Name, ocm.TokenRoleSuffix) {
			o.Rules = nil
		}
	case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
		role, subjects := partsOf(o.(client.Object)) //nolint:errcheck,forcetypeassert // both types are known
		if *subjects = bounded(*subjects); len(role.Name)+len(role.Kind)+len(role.APIGroup) > maxList {
			*role = rbacv1.RoleRef{}
		}
	default:
		return in, nil
	}
	o.SetOwnerReferences(bounded(owners))
	if o.SetFinalizers(bounded(finalizers)); len(finalizers) > 0 && len(o.GetFinalizers()) == 0 {
		o.SetFinalizers([]string{"too many for the cache"}) // finalizers keep a binding in force too
	}
	return in, nil
}

// stripMetadata keeps the fields that the API server bounds or writes.
func stripMetadata(o metav1.Object) {
	kept := map[string]string{}
	for _, key := range []string{ocm.ClusterNameLabel, addon.NameLabel, ocm.AddOnLabel, ocm.TokenLabel} {
		if value, ok := o.GetLabels()[key]; ok {
			kept[key] = value
		}
	}
	if len(o.GetName()) > validation.DNS1123SubdomainMaxLength { // RBAC has no limit; the hub has no such name
		o.SetName(fmt.Sprintf("%x", sha256.Sum256([]byte(o.GetName()))))
	}
	o.SetLabels(kept)
	o.SetAnnotations(nil)
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	o.SetGenerateName("")
	o.SetSelfLink("")
}

// bounded returns nil instead of a list that is larger than the hub's own
// lists. It differs from them too.
func bounded[T any](list []T) []T {
	if len(list) > maxItems {
		return nil
	}
	if content, err := json.Marshal(list); err != nil || len(content) > maxList {
		return nil
	}
	return list
}

func stripCluster(cluster *ocm.ManagedCluster, annotations map[string]string, finalizers []string) {
	for _, f := range []string{ocm.Finalizer, resourceFinalizer} {
		if slices.Contains(finalizers, f) {
			cluster.Finalizers = append(cluster.Finalizers, f)
		}
	}
	if hash, done := annotations[hashAnnotation]; len(annotations) > 1 ||
		len(annotations) == 1 && (!done || len(hash) != hex.EncodedLen(sha256.Size)) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", annotations))
		annotations = map[string]string{hashAnnotation: hex.EncodeToString(sum[:])}
	}
	cluster.Annotations, cluster.Unreadable = annotations, ""
	cluster.Spec = ocm.ManagedClusterSpec{HubAcceptsClient: cluster.Spec.HubAcceptsClient}
	var conditions []metav1.Condition
	for _, kind := range []string{ocm.ConditionHubAccepted, ocm.ConditionJoined, ocm.ConditionAvailable} {
		if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c != nil {
			conditions = append(conditions, metav1.Condition{Type: kind, Status: c.Status})
		}
	}
	cluster.Status = ocm.ManagedClusterStatus{Conditions: conditions}
}
