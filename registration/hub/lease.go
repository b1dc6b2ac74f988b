package hub

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	// graceLeases is the number of lease durations that may pass without a
	// renewal.
	graceLeases = 5
	// maxLeaseDuration bounds the wait, because an agent may write any value
	// into its ManagedCluster.
	maxLeaseDuration     = 24 * time.Hour
	defaultLeaseDuration = time.Minute
)

// leaseMemory holds the times at which the hub last saw and checked the Lease
// of a cluster, by the hub's own clock.
type leaseMemory struct {
	version          string
	renewed, checked time.Time
}

// begin starts the wait without reading the Lease. Otherwise a restarted hub
// would read the Leases of all clusters at once.
func (m *leaseMemory) begin(now time.Time) { m.renewed, m.checked = now, now }

// observe records a Lease, or an empty one if it does not exist. The clock of
// the agent may be wrong, so its time counts only between the last check and
// now. The first version that the hub sees proves no renewal.
func (m *leaseMemory) observe(lease *coordinationv1.Lease, now time.Time) {
	if lease.ResourceVersion != m.version {
		renewed := now
		if m.version == "" {
			renewed = m.renewed
		}
		if t := lease.Spec.RenewTime; t != nil && !t.Time.After(now) {
			renewed = t.Time
		}
		if renewed.Before(m.checked) {
			renewed = m.checked
		}
		m.renewed = renewed
	}
	m.version, m.checked = lease.ResourceVersion, now
}

// readLease returns the Lease of a cluster. It creates a missing Lease of an
// accepted cluster, because agents may only renew it.
func (h *Hub) readLease(
	ctx context.Context, cluster *ocm.ManagedCluster, accepted bool,
) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := h.reader().Get(ctx, client.ObjectKey{Namespace: cluster.Name, Name: ocm.LeaseName}, lease)
	if apierrors.IsNotFound(err) && accepted {
		*lease = newLease(cluster, h.options.Now())
		err = h.options.Client.Create(ctx, lease)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read or create the Lease of cluster %q: %w", cluster.Name, err)
	}
	return lease, nil
}

// checkLease repairs the Lease of an accepted cluster. If the agent of a joined
// cluster no longer renews its Lease, it sets Available to Unknown. It returns
// the time until the next check.
func (h *Hub) checkLease(ctx context.Context, cluster *ocm.ManagedCluster) (time.Duration, error) {
	s, m := stateOf(cluster), &h.memory(cluster.Name).lease
	lost := s.Joined != metav1.ConditionTrue || s.Available == metav1.ConditionUnknown
	if lost {
		*m = leaseMemory{} // an agent that returns has the whole time again
	}
	accepted := s.Stage == registration.StageAccepted
	if lost && !accepted {
		return 0, nil
	}
	if !lost && m.checked.IsZero() {
		m.begin(h.options.Now())
		return firstLease(cluster), nil
	}
	lease, err := h.readLease(ctx, cluster, accepted)
	if err != nil || lost {
		return 0, err
	}
	now := h.options.Now()
	m.observe(lease, now)
	grace := graceLeases * leaseDuration(cluster, lease)
	if left := m.renewed.Add(grace).Sub(now); left > 0 {
		return left, nil
	}
	return 0, h.report(ctx, cluster, corev1.EventTypeWarning,
		metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionUnknown,
			Reason: ocm.ReasonLeaseStopped,
			Message: fmt.Sprintf("the agent has not renewed its Lease %s/%s for %s: check that it runs and can reach the hub",
				cluster.Name, ocm.LeaseName, grace)})
}

// firstLease returns the time from the start of the wait to the first read of
// the Lease, half of the grace. This read learns the version. The next read, at
// the end of the grace, then shows whether an agent with a wrong clock renews.
func firstLease(cluster *ocm.ManagedCluster) time.Duration {
	return graceLeases * leaseDuration(cluster, &coordinationv1.Lease{}) / 2
}

func newLease(cluster *ocm.ManagedCluster, now time.Time) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Name, Name: ocm.LeaseName,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster.Name}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new(ocm.LeaseName), RenewTime: new(metav1.NewMicroTime(now))},
	}
}

// leaseDuration returns the longer of the cluster's and its agent's durations,
// because an agent adopts a shorter one late.
func leaseDuration(cluster *ocm.ManagedCluster, lease *coordinationv1.Lease) time.Duration {
	d := time.Duration(cluster.Spec.LeaseDurationSeconds) * time.Second
	if d <= 0 {
		d = defaultLeaseDuration
	}
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		d = max(d, time.Duration(*s)*time.Second)
	}
	return min(d, maxLeaseDuration)
}
