package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// grant calls the driver when its call is due, unless the role shows that the
// driver has nothing to do.
func (h *Hub) grant(
	ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole, driver registration.HubDriver,
	granted registration.Claim,
) error {
	if m := h.memory(cluster.Name); m.grant == granted && h.options.Now().Before(m.nextAt) {
		return nil
	}
	if isGranted(driver, cluster.Name, role) {
		h.schedule(cluster.Name, granted, 0)
		return nil
	}
	var next time.Duration
	err := h.call(ctx, driver, cluster.Name, "grant", func(ctx context.Context) (err error) {
		next, err = driver.Grant(ctx, cluster.Name, granted.Value)
		return err
	})
	if err == nil {
		h.schedule(cluster.Name, granted, next)
		return nil
	}
	err = fmt.Errorf("grant cluster %q: %w", cluster.Name, err)
	h.event(cluster, corev1.EventTypeWarning, ocm.ReasonGrantFailed, err.Error())
	if stateOf(cluster).HasAccess() {
		return err // the cluster keeps its access
	}
	setErr := h.setCondition(ctx, cluster, metav1.Condition{Type: ocm.ConditionHubAccepted,
		Status: metav1.ConditionFalse, Reason: ocm.ReasonGrantFailed, Message: err.Error()})
	if next > 0 && setErr == nil {
		h.schedule(cluster.Name, registration.Claim{}, next)
		return errPostponed
	}
	return errors.Join(err, setErr)
}

// isGranted reports whether the role shows that the driver has granted the
// cluster its access.
func isGranted(driver registration.HubDriver, cluster string, role *rbacv1.ClusterRole) bool {
	d, ok := driver.(registration.HubRecorded)
	return ok && d.Granted(cluster, role)
}

// revoke calls the recorded driver to revoke its grant, then deletes the
// record. After a denial the record keeps the agent.
func (h *Hub) revoke(ctx context.Context, cluster *ocm.ManagedCluster, denied bool) error {
	name := cluster.Name
	m := h.memory(name)
	m.grant, m.nextAt = registration.Claim{}, time.Time{}
	role, err := h.role(ctx, name)
	if err != nil {
		return err
	}
	granted, ok := registration.RecordedClaim(role)
	if !ok {
		return h.deleteRecord(ctx, role, denied)
	}
	driver, err := registration.Pick(h.options.Drivers, granted.AuthType)
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, reasonUnknownDriver, err.Error())
		return reconcile.TerminalError(fmt.Errorf("revoke cluster %q, which was accepted as %s: %w", name, granted, err))
	}
	err = h.call(ctx, driver, name, "revoke", func(ctx context.Context) error {
		return driver.Revoke(ctx, name, granted.Value)
	})
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, "RevokeFailed", err.Error())
		return fmt.Errorf("revoke cluster %q: %w", name, err)
	}
	return h.deleteRecord(ctx, role, denied)
}
