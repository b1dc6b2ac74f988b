package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Reasons of ocm.ConditionClusterStatus.
const (
	reasonNodesUnreadable  = "NodesUnreadable"
	reasonClaimsUnreadable = "ClusterClaimsUnreadable"
	reasonTruncated        = "ClusterStatusTruncated"
	reasonStatusRefused    = "ClusterStatusRefused"
)

// Together these limits keep a ManagedCluster below the 64 KiB that the hub's
// policy allows: the names of resources count twice, because of managedFields.
const (
	maxCustomClaims  = 20 // the default of Open Cluster Management's agent
	maxClaimValue    = 1024
	claimsOfAPage    = 8
	maxResources     = 64
	maxResourceNames = 4 << 10
)

// isReserved reports whether Open Cluster Management defines the claim. Such
// claims come first and are not counted.
func isReserved(claim string) bool {
	return slices.Contains([]string{"id.k8s.io", "kubeversion.open-cluster-management.io",
		"platform.open-cluster-management.io", "product.open-cluster-management.io"}, claim)
}

// watchNodes adds a cache of nodes to a manager of the managed cluster.
func (a *Agent) watchNodes(mgr ctrl.Manager) error {
	nodes, err := cache.New(mgr.GetConfig(),
		cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultTransform: stripNode})
	if err != nil {
		return err
	}
	a.nodes = nodes
	return mgr.Add(nodes)
}

// stripNode keeps the resources of a node, and whether pods may go there.
func stripNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		*n = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
			Spec:   corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable},
			Status: corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable}}
	}
	return o, nil
}

// listNodes returns nil while the cache has no list yet. It asks the API server
// for one node first: a cache hides that the agent lacks the rights.
func (a *Agent) listNodes(ctx context.Context) (*corev1.NodeList, error) {
	probe, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	if err := a.opts.Local.List(probe, &corev1.NodeList{}, client.Limit(1)); err != nil {
		return nil, err
	}
	first, cancel := context.WithTimeout(ctx, time.Second) // the Lease must not wait for many nodes
	defer cancel()
	list := &corev1.NodeList{}
	err := a.nodes.List(first, list, client.UnsafeDisableDeepCopy)
	if apierrors.IsTimeout(err) {
		return nil, nil //nolint:nilnil // see above
	}
	return list, err
}

// clusterReport is the state of the managed cluster. Nil means unknown.
type clusterReport struct {
	capacity, allocatable corev1.ResourceList
	claims                []ocm.ManagedClusterClaim
	missing               metav1.Condition // no reason: nothing
}

func (r *clusterReport) miss(reason, format string, args ...any) {
	r.missing.Reason = cmp.Or(r.missing.Reason, reason)
	r.missing.Message = strings.TrimPrefix(r.missing.Message+"; "+fmt.Sprintf(format, args...), "; ")
}

// reportCluster reports capacity, allocatable resources and ClusterClaims. It
// returns a condition that says what is missing, without a reason if nothing
// is. A hub that refuses the report still gets the conditions.
func (a *Agent) reportCluster(ctx context.Context, conn *agentConn) (metav1.Condition, error) {
	r := &clusterReport{missing: metav1.Condition{Type: ocm.ConditionClusterStatus, Status: metav1.ConditionFalse}}
	if !a.opts.ClusterStatus {
		return r.missing, nil
	}
	if nodes, err := a.listNodes(ctx); err != nil {
		r.miss(reasonNodesUnreadable, "the agent cannot list the nodes of its cluster: %s", kubeerror.Message(err))
	} else if nodes != nil {
		r.addNodes(nodes.Items)
	}
	if err := a.readClaims(ctx, r); err != nil {
		r.miss(reasonClaimsUnreadable, "the agent cannot list the ClusterClaims of its cluster: %s", kubeerror.Message(err))
	}
	s, omitted := &conn.cluster.Status, 0
	err := optimistic.PatchStatus(ctx, conn, conn.cluster, func() bool {
		old := s.DeepCopy()
		if r.capacity != nil {
			s.Capacity, omitted = boundResources(r.capacity, s.Capacity)
			s.Allocatable, _ = boundResources(r.allocatable, nil)
		}
		if r.claims != nil {
			s.ClusterClaims = r.claims
		}
		return !maps.Equal(old.Capacity, s.Capacity) || !maps.Equal(old.Allocatable, s.Allocatable) ||
			!slices.Equal(old.ClusterClaims, s.ClusterClaims)
	})
	if omitted > 0 {
		r.miss(reasonTruncated, "%d resources of the nodes are not reported: at most %d are, with %d bytes of names", omitted,
			maxResources, maxResourceNames)
	}
	if isStatus(err) {
		r.miss(reasonStatusRefused, "the hub refuses capacity, allocatable resources or ClusterClaims: %s",
			kubeerror.Message(err))
		err = nil
	}
	return r.missing, err
}

// addNodes adds up the capacity of all nodes, and what is allocatable on
// schedulable ones.
func (r *clusterReport) addNodes(nodes []corev1.Node) {
	r.capacity, r.allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	add := func(sum, more corev1.ResourceList) {
		for name, quantity := range more {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	for i := range nodes {
		add(r.capacity, nodes[i].Status.Capacity)
		if !nodes[i].Spec.Unschedulable {
			add(r.allocatable, nodes[i].Status.Allocatable)
		}
	}
}

// boundResources keeps the resources of the nodes, at first those without a
// domain, such as cpu. It returns how many of them it omits. As in Open Cluster
// Management, resources that other programs reported stay, if there is room.
func boundResources(nodes corev1.ResourceList, reported ocm.ResourceList) (kept ocm.ResourceList, omitted int) {
	kept, size := ocm.ResourceList{}, 0
	keep := func(name string, quantity ocm.Quantity) {
		if size += len(name); len(kept) < maxResources && size <= maxResourceNames {
			kept[name] = quantity
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(nodes), func(a, b corev1.ResourceName) int {
		return cmp.Or(strings.Count(string(a), "/")-strings.Count(string(b), "/"), cmp.Compare(a, b))
	}) {
		quantity := nodes[name]
		keep(string(name), ocm.Quantity(quantity.String()))
	}
	omitted = len(nodes) - len(kept)
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if _, own := nodes[corev1.ResourceName(name)]; !own {
			keep(name, reported[name])
		}
	}
	return kept, omitted
}

// readClaims adds the ClusterClaims page by page, because each may have a
// megabyte of labels. A cluster without the kind has none.
func (a *Agent) readClaims(ctx context.Context, r *clusterReport) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	var c claims
	for next := client.Continue(""); ; {
		page := &unstructured.UnstructuredList{}
		page.SetAPIVersion(ocm.GroupVersion.Group + "/v1alpha1")
		page.SetKind("ClusterClaimList")
		err := a.opts.Local.List(ctx, page, client.Limit(claimsOfAPage), next)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			c.add(&page.Items[i])
		}
		if next = client.Continue(page.GetContinue()); next == "" {
			r.addClaims(&c)
			return nil
		}
	}
}

// claims are what the agent reports of ClusterClaims.
type claims struct {
	reserved, custom []ocm.ManagedClusterClaim
	omitted          int
}

// add takes a ClusterClaim. They come in the order of their names.
func (c *claims) add(o *unstructured.Unstructured) {
	if _, local := o.GetLabels()["open-cluster-management.io/spoke-only"]; local {
		return
	}
	value, _, _ := unstructured.NestedString(o.Object, "spec", "value") // else it is ""
	claim := ocm.ManagedClusterClaim{Name: o.GetName(), Value: value}
	switch {
	case value == "" || len(strconv.Quote(value)) > maxClaimValue+len(`""`): // as the hub's policy counts
		c.omitted++
	case isReserved(claim.Name):
		c.reserved = append(c.reserved, claim)
	case len(c.custom) < maxCustomClaims:
		c.custom = append(c.custom, claim)
	default:
		c.omitted++
	}
}

// addClaims takes reserved claims first, then custom ones by name.
func (r *clusterReport) addClaims(c *claims) {
	r.claims = append(append([]ocm.ManagedClusterClaim{}, c.reserved...), c.custom...)
	if c.omitted > 0 {
		r.miss(reasonTruncated, "%d ClusterClaims are not reported: at most %d custom ones are, with values of 1 to %d bytes",
			c.omitted, maxCustomClaims, maxClaimValue)
	}
}
