package hub

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	reasonRemaining = "ResourceRemaining"
	// resourceFinalizer is the finalizer of ManagedClusters that the hub of
	// Open Cluster Management knew. It keeps a cluster until its namespace
	// holds no ManagedClusterAddOn and no ManifestWork.
	resourceFinalizer = "cluster.open-cluster-management.io/resource-cleanup"

	remainsInterval = 10 * time.Second
	maxRemains      = 5 // names of each kind in the condition
)

// remainingKinds lists the kinds that a later cluster of the same name would
// inherit.
func remainingKinds() []schema.GroupKind {
	return []schema.GroupKind{{Group: "addon.open-cluster-management.io", Kind: "ManagedClusterAddOn"},
		{Group: "work.open-cluster-management.io", Kind: "ManifestWork"}}
}

// checkRemains reports the objects that keep a deleted cluster, and returns the
// time of the next check. It returns 0 if no object keeps the cluster.
func (h *Hub) checkRemains(ctx context.Context, cluster *ocm.ManagedCluster) (again time.Duration, err error) {
	var all []string
	for _, kind := range remainingKinds() {
		names, err := h.namesOf(ctx, kind, cluster.Name)
		if err != nil {
			return 0, err
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("%s %q", kind.Kind, names))
		}
	}
	if len(all) == 0 {
		return 0, nil
	}
	return remainsInterval, h.report(ctx, cluster, corev1.EventTypeWarning,
		metav1.Condition{Type: ocm.ConditionDeleting, Status: metav1.ConditionFalse, Reason: reasonRemaining,
			Message: fmt.Sprintf(
				"the access of the cluster is revoked, but its namespace %q still holds the %s: delete these. The agent no longer removes their finalizers, so remove those too",
				cluster.Name, strings.Join(all, " and the "))})
}

// namesOf returns the names of some objects in a namespace.
func (h *Hub) namesOf(ctx context.Context, kind schema.GroupKind, namespace string) (names []string, err error) {
	mapping, err := h.options.Client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := h.reader().List(ctx, list, client.InNamespace(namespace), client.Limit(maxRemains)); err != nil {
		return nil, fmt.Errorf("list what is left in namespace %q: %w", namespace, err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
