package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionAddOnAvailable reports the health of an add-on, with the reasons of
// Open Cluster Management's agent.
const (
	conditionAddOnAvailable = "Available"
	reasonLeaseUpdated      = "ManagedClusterAddOnLeaseUpdated"
	reasonLeaseStopped      = "ManagedClusterAddOnLeaseUpdateStopped"
	reasonLeaseNotFound     = "ManagedClusterAddOnLeaseNotFound"
	// reasonLeaseForbidden reports a namespace in which the agent may not read
	// Leases. Open Cluster Management's agent may read all Leases.
	reasonLeaseForbidden = "ManagedClusterAddOnLeaseForbidden"
)

const (
	customizedHealth = "Customized"    // the mode of add-ons whose health another program reports
	healthInterval   = time.Minute     // between two reads of the Lease of an add-on
	leaseGrace       = 5 * time.Minute // after the last renewal of a Lease
)

// addOnHealth is the last health of an add-on, and the namespace of its Lease.
type addOnHealth struct{ namespace, reason string }

// checkHealth adds the condition Available, unless another program reports it.
func (p *addOnReconcile) checkHealth(ctx context.Context) error {
	name, namespace := p.addOn.GetName(), cmp.Or(p.status.Namespace, p.opts.Namespace)
	if p.status.HealthCheckMode == customizedHealth {
		p.forgetHealth(name)
		return nil
	}
	c, err := p.readHealth(ctx, namespace, name)
	if err != nil {
		return err
	}
	p.conditions = append(p.conditions, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health[name] = addOnHealth{namespace, c.Reason}
	return nil
}

func (a *AddOns) forgetHealth(addOn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.health, addOn)
}

// readHealth reads the health of an add-on from its Lease on the managed
// cluster, which has the add-on's name.
func (a *AddOns) readHealth(ctx context.Context, namespace, addOn string) (metav1.Condition, error) {
	c := metav1.Condition{Type: conditionAddOnAvailable, Status: metav1.ConditionUnknown}
	if err := a.agent.checkAddOnNamespace(namespace); err != nil {
		c.Reason, c.Message = reasonLeaseForbidden, err.Error()
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	lease, key := &coordinationv1.Lease{}, client.ObjectKey{Namespace: namespace, Name: addOn}
	err := a.agent.opts.Local.Get(ctx, key, lease)
	switch renewed := lease.Spec.RenewTime; {
	case apierrors.IsNotFound(err):
		c.Reason = reasonLeaseNotFound
		c.Message = fmt.Sprintf(
			"the managed cluster has no Lease %q: let the add-on create and renew it, or set status.healthCheck.mode to %q", key,
			customizedHealth)
	case apierrors.IsForbidden(err):
		c.Reason = reasonLeaseForbidden
		c.Message = fmt.Sprintf(
			"the agent may not read the Lease %q on the managed cluster: create the Role and the RoleBinding of the agent in its namespace", key)
	case err != nil:
		return c, fmt.Errorf("read Lease %q on the managed cluster: %w", key, err)
	case renewed != nil && a.agent.opts.Now().Before(renewed.Add(leaseGrace)):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonLeaseUpdated,
			fmt.Sprintf("the add-on renews its Lease %q", key)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonLeaseStopped,
			fmt.Sprintf("the add-on has not renewed its Lease %q for %s", key, leaseGrace)
	}
	return c, nil
}

// watchHealth requests add-ons whose health has changed. It reads Leases on the
// managed cluster, and nothing on the hub.
func (a *AddOns) watchHealth(ctx context.Context, request func(addOn string)) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		health := maps.Clone(a.health)
		a.mu.Unlock()
		for addOn, last := range health {
			if c, err := a.readHealth(ctx, last.namespace, addOn); err == nil && c.Reason != last.reason {
				request(addOn)
			}
		}
	}
}
