package hub

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	// rolesPage is the number of ClusterRoles in one response to a list.
	rolesPage = 500
	// clustersPage is smaller, because agents write ManagedClusters of up to
	// 400 kB as JSON, and the client holds a response more than twice.
	clustersPage = 50
	// maxClaim is the length of the longest claim that the hub keeps of a
	// listed cluster.
	maxClaim = 256
)

// settled describes an accepted, joined and available cluster whose
// ManagedCluster and ClusterRole need no change. It serves the first reconcile
// of the cluster, and only while the cache holds the same versions. That
// reconcile writes nothing and calls no driver's Grant. So a cache that lags
// behind may delay a revocation, but never grants anything.
type settled struct {
	cluster, role string // resourceVersions
	granted       registration.Claim
	lease         time.Duration // until the first read of the Lease
}

// list finds the settled clusters past the cache, in pages. The hub then starts
// with a few large requests instead of several for each cluster. After an error
// the hub reads each cluster separately.
func (h *Hub) list(ctx context.Context) error {
	if h.options.Relay {
		return nil // each cluster's reconcile reads the rights of the relay
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	roles, err := h.listRoles(ctx)
	if err != nil {
		return fmt.Errorf("list ClusterRoles: %w", err)
	}
	all, err := h.listClusters(ctx, roles)
	if err != nil {
		return fmt.Errorf("list ManagedClusters: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled = all
	return nil
}

// listRoles returns the clusters whose ClusterRole needs no change.
func (h *Hub) listRoles(ctx context.Context) (map[string]settled, error) {
	found := map[string]settled{}
	return found, pages(rolesPage, func(options *client.ListOptions) (next string, err error) {
		list := &rbacv1.ClusterRoleList{}
		options.LabelSelector = ofClusters()
		if err := h.reader().List(ctx, list, options); err != nil {
			return "", err
		}
		for i := range list.Items {
			cluster := list.Items[i].Labels[ocm.ClusterNameLabel]
			if granted, ok := h.settledRole(cluster, &list.Items[i]); ok {
				found[cluster] = settled{role: list.Items[i].ResourceVersion, granted: granted}
			}
		}
		return list.Continue, nil
	})
}

// settledRole returns the record in a ClusterRole that needs no change, and
// whose driver has nothing to grant.
func (h *Hub) settledRole(cluster string, role *rbacv1.ClusterRole) (registration.Claim, bool) {
	granted, ok := registration.RecordedClaim(role)
	driver, err := registration.Pick(h.options.Drivers, granted.AuthType)
	ok = ok && err == nil && len(granted.Value) <= maxClaim && registration.CheckClusterName(cluster) == nil &&
		isGranted(driver, cluster, role) && equality.Semantic.DeepEqual(role, h.wantedRole(cluster, role, granted))
	return granted, ok
}

// listClusters returns the clusters whose ManagedCluster needs no change
// either.
func (h *Hub) listClusters(ctx context.Context, roles map[string]settled) (map[string]settled, error) {
	found := map[string]settled{}
	return found, pages(clustersPage, func(options *client.ListOptions) (next string, err error) {
		list := &ocm.ManagedClusterList{}
		if err := h.reader().List(ctx, list, options); err != nil {
			return "", err
		}
		for i := range list.Items {
			cluster := &list.Items[i]
			if s, ok := roles[cluster.Name]; ok && h.isSettled(cluster, s.granted) {
				s.cluster, s.lease = cluster.ResourceVersion, firstLease(cluster)
				found[cluster.Name] = s
			}
		}
		return list.Continue, nil
	})
}

// isSettled reports whether admit would leave a cluster as it is, and
// checkLease would begin to wait.
func (h *Hub) isSettled(cluster *ocm.ManagedCluster, granted registration.Claim) bool {
	claimed, claimErr := h.claim(cluster)
	want := acceptance(granted, claimed, claimErr)
	s := stateOf(cluster)
	return s.HasAccess() && s.Failure == "" && s.Joined == metav1.ConditionTrue && s.Available == metav1.ConditionTrue &&
		controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) && shows(cluster, want) &&
		meta.FindStatusCondition(cluster.Status.Conditions, want.Type).ObservedGeneration == cluster.Generation
}

// pages calls list for each page, until a page names no next page.
func pages(size int64, list func(options *client.ListOptions) (next string, err error)) error {
	for next := ""; ; {
		var err error
		if next, err = list(&client.ListOptions{Limit: size, Continue: next}); err != nil || next == "" {
			return err
		}
	}
}

// skip reports whether the first reconcile of a cluster has nothing to do, and
// when the next one is due. It relies on the list unless an object has changed
// since. Otherwise a complete reconcile reads past the cache.
func (h *Hub) skip(ctx context.Context, name string) (next time.Duration, ok bool) {
	s, ok := h.takeSettled(name)
	if !ok {
		return 0, false
	}
	cluster, role := &ocm.ManagedCluster{}, &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	if !h.holds(ctx, name, cluster, s.cluster) || !h.holds(ctx, registration.ClusterRoleName(name), role, s.role) ||
		!h.isBound(ctx, name) {
		return 0, false
	}
	h.setAvailable(cluster)
	h.setState(name, registration.StageAccepted)
	h.schedule(name, s.granted, 0)
	m, now := h.memory(name), h.options.Now()
	m.lease.begin(now)
	return earliest(s.lease, m.nextAt.Sub(now)), true
}

// holds reads an object from the cache, and reports whether it has the version.
func (h *Hub) holds(ctx context.Context, name string, o client.Object, version string) bool {
	return h.options.Client.Get(ctx, client.ObjectKey{Name: name}, o) == nil && o.GetResourceVersion() == version
}

// takeSettled returns the result of the list for a cluster, once.
func (h *Hub) takeSettled(cluster string) (settled, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.settled[cluster]
	delete(h.settled, cluster)
	return s, ok
}

// isBound reports whether the cache holds the namespace and the bindings of a
// cluster as admit leaves them.
func (h *Hub) isBound(ctx context.Context, cluster string) bool {
	namespace := &corev1.Namespace{}
	if h.options.Client.Get(ctx, client.ObjectKey{Name: cluster}, namespace) != nil || !isOf(namespace, cluster) {
		return false
	}
	for _, want := range bindings(cluster) {
		have, err := h.binding(ctx, h.options.Client, want)
		if err != nil || have == nil || !isOf(have, cluster) || !sameBinding(have, want) ||
			!have.GetDeletionTimestamp().IsZero() {
			return false
		}
	}
	relay, err := h.binding(ctx, h.options.Client, relayBinding(cluster))
	return err == nil && relay == nil
}
