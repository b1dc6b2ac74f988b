package hub

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	// graceLeases is how many lease durations may pass without a renewal.
	graceLeases = 5
	// maxLeaseDuration bounds the wait, since an agent may write anything into its ManagedCluster.
	maxLeaseDuration     = 24 * time.Hour
	defaultLeaseDuration = time.Minute

	// ReasonLeaseStopped is the reason of ManagedClusterConditionAvailable=Unknown.
	ReasonLeaseStopped = "ManagedClusterLeaseUpdateStopped"
)

// leaseMemory is when the hub last saw the Lease of a cluster renewed, by the hub's own clock.
type leaseMemory struct {
	version          string
	renewed, checked time.Time
}

// observe takes note of a Lease, which is empty where there is none. The clock of the agent may be wrong: its time counts only
// between the last look and now. At the first look the wait begins.
func (m *leaseMemory) observe(lease *coordinationv1.Lease, now time.Time) {
	first := m.checked.IsZero()
	if first || lease.ResourceVersion != m.version {
		renewed := now
		if t := lease.Spec.RenewTime; t != nil && !first && t.Time.Before(now) {
			renewed = t.Time
		}
		if renewed.Before(m.checked) {
			renewed = m.checked
		}
		m.renewed = renewed
	}
	m.version, m.checked = lease.ResourceVersion, now
}

// checkLease sets a joined cluster's Available to Unknown if its agent no longer renews its Lease, and returns the time until that
// is due.
func (h *Hub) checkLease(ctx context.Context, cluster *ocm.ManagedCluster) (time.Duration, error) {
	conditions, m := cluster.Status.Conditions, &h.memory(cluster.Name).lease
	if !meta.IsStatusConditionTrue(conditions, ocm.ConditionJoined) || meta.IsStatusConditionPresentAndEqual(conditions, ocm.ConditionAvailable, metav1.ConditionUnknown) {
		*m = leaseMemory{} // an agent that comes back has all the time again
		return 0, nil
	}
	lease := &coordinationv1.Lease{}
	if err := h.reader().Get(ctx, client.ObjectKey{Namespace: cluster.Name, Name: ocm.LeaseName}, lease); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read the Lease of cluster %q: %w", cluster.Name, err)
	}
	now := h.options.Now()
	m.observe(lease, now)
	grace := graceLeases * leaseDuration(cluster)
	if left := m.renewed.Add(grace).Sub(now); left > 0 {
		return left, nil
	}
	return 0, h.report(ctx, cluster, corev1.EventTypeWarning, metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionUnknown,
		Reason:  ReasonLeaseStopped,
		Message: fmt.Sprintf("the agent has not renewed its Lease %s/%s for %s: look whether it runs and reaches the hub", cluster.Name, ocm.LeaseName, grace)})
}

func leaseDuration(cluster *ocm.ManagedCluster) time.Duration {
	d := time.Duration(cluster.Spec.LeaseDurationSeconds) * time.Second
	if d <= 0 {
		return defaultLeaseDuration
	}
	return min(d, maxLeaseDuration)
}
