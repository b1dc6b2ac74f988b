package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
)

// decide brings everything but the Lease to the documented state.
func (h *Hub) decide(ctx context.Context, cluster *ocm.ManagedCluster) error {
	err := registration.CheckClusterName(cluster.Name)
	switch {
	case err != nil:
		err = refusal.New(reasonInvalidName, "%s", err.Error())
	case cluster.Spec.HubAcceptsClient:
		err = h.admit(ctx, cluster)
	default:
		err = h.exclude(ctx, cluster)
	}
	if errors.Is(err, errPostponed) {
		return nil
	}
	var refused *refusal.Error
	if !errors.As(err, &refused) {
		return err
	}
	h.schedule(cluster.Name, registration.Claim{}, 0)
	return h.report(ctx, cluster, corev1.EventTypeWarning,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: refused.Reason, Message: refused.Message})
}

// admit grants an accepted cluster what it needs. Each step relies on those
// before: the finalizer and the record precede the grant, so that a restart at
// any moment still revokes all that was granted; the RBAC comes last.
func (h *Hub) admit(ctx context.Context, cluster *ocm.ManagedCluster) error {
	role, err := h.role(ctx, cluster.Name)
	if err != nil {
		return err
	}
	if err := checkLost(cluster, role); err != nil {
		return err
	}
	claimed, claimErr := h.claim(cluster)
	if _, ok := registration.RecordedClaim(role); !ok {
		if err := cmp.Or(claimErr, checkShown(cluster, role, claimed)); err != nil {
			return err
		}
	}
	granted := registration.StateOf(cluster, role, claimed).Claim
	driver, err := registration.Pick(h.options.Drivers, granted.AuthType)
	if err != nil {
		return refusal.New(reasonUnknownDriver, "the cluster was accepted with an auth type that this hub does not run: %v",
			err)
	}
	if err := h.addFinalizer(ctx, cluster); err != nil {
		return err
	}
	if err := h.ensureNamespace(ctx, cluster.Name); err != nil {
		return err
	}
	if err := h.writeRole(ctx, cluster.Name, role, h.wantedRole(cluster.Name, role, granted)); err != nil {
		return err
	}
	if err := h.grant(ctx, cluster, role, driver, granted); err != nil {
		return err
	}
	if !stateOf(cluster).HasAccess() { // else checkLease repairs it
		if _, err := h.readLease(ctx, cluster, true); err != nil {
			return err
		}
	}
	if err := errors.Join(h.bind(ctx, cluster.Name), h.bindRelay(ctx, cluster.Name, role)); err != nil {
		return err
	}
	return h.reportAccepted(ctx, cluster, granted, claimed, claimErr)
}

// checkShown refuses a first grant of another claim than the administrator was
// shown: a hub with other drivers, or another default, reads another one.
func checkShown(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole, claimed registration.Claim) error {
	shown := registration.StateOf(cluster, role, registration.Claim{}).Claim
	if shown == (registration.Claim{}) || shown == claimed {
		return nil
	}
	return refusal.New(reasonInvalidClaim, "the hub showed %s before the cluster was accepted, and reads %s now: "+
		"deny the cluster and accept it again", shown, claimed)
}

// stateOf returns the state of a cluster without its claim.
func stateOf(cluster *ocm.ManagedCluster) registration.State {
	return registration.StateOf(cluster, nil, registration.Claim{})
}

// checkLost refuses a cluster whose ClusterRole is gone: a record of what it
// claims now would hide what it was granted.
func checkLost(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) error {
	s := stateOf(cluster)
	switch {
	case wasGranted(role), role.ResourceVersion != "" && !isPending(role):
		return nil
	case s.Reason == reasonRecordLost:
		return refusal.New(s.Reason, "%s", s.Message)
	case s.Stage != registration.StageAccepted:
		return nil
	}
	return refusal.New(reasonRecordLost,
		"the ClusterRole %q with the record of the grant is gone. The hub said before: %.300q. Remove by hand what this gave outside "+
			"the hub's RBAC: for aws-irsa the access entry or aws-auth entry, and the IAM role ocm-hub-* with this cluster's tags; a client certificate works until it expires. "+
			"Then deny the cluster and accept it again", registration.ClusterRoleName(cluster.Name), s.Message)
}

// exclude revokes a cluster that was accepted and is not any more, or looks
// whether a new one is approved without a person.
func (h *Hub) exclude(ctx context.Context, cluster *ocm.ManagedCluster) error {
	role, err := h.role(ctx, cluster.Name)
	if err != nil {
		return err
	}
	if err := h.unbind(ctx, cluster.Name); err != nil {
		return err
	}
	if !wasGranted(role) && !wasAccepted(cluster) {
		return h.autoApprove(ctx, cluster, role)
	}
	// The condition precedes the loss of the record: otherwise a restart in
	// between may take the cluster for a new one, and approve it. A condition
	// that cannot be written keeps nothing granted: the finalizer is a sign
	// too.
	err = h.report(ctx, cluster, corev1.EventTypeNormal,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonHubDenied,
			Message: "denied, by an administrator of the hub or by the cluster itself: its RBAC is removed, and then whatever its driver granted besides. " +
				"A client certificate stays valid until it expires: it has no rights now, and works again if the cluster is accepted again"})
	if claimed, claimErr := h.claim(cluster); (claimErr == nil || isPending(role)) && !isForeign(role, cluster.Name) {
		err = errors.Join(err, h.publish(ctx, cluster, role, claimed))
	}
	return errors.Join(err, h.revoke(ctx, cluster, true))
}

// wasAccepted reports whether the cluster was accepted or denied before. Either
// sign suffices: where the admission policy is missing, an agent may write the
// conditions.
func wasAccepted(cluster *ocm.ManagedCluster) bool {
	s := stateOf(cluster)
	return controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) || s.Stage == registration.StageAccepted ||
		s.Reason == reasonRecordLost || s.Reason == ocm.ReasonHubDenied
}

// autoApprove accepts a new cluster if its driver approves. The hub creates the
// namespace after that, so one that exists is of an earlier cluster of the
// name, or of none.
func (h *Hub) autoApprove(ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) error {
	claimed, err := h.claim(cluster)
	if err != nil && isPending(role) {
		return errors.Join(err, h.publish(ctx, cluster, role, claimed)) // nothing, in the place of what it showed
	} else if err != nil {
		return err
	}
	if err := h.publish(ctx, cluster, role, claimed); err != nil {
		return err
	}
	driver, err := registration.Pick(h.options.Drivers, claimed.AuthType)
	if err != nil {
		return err
	}
	var approved bool
	err = h.call(ctx, driver, cluster.Name, "approve", func(ctx context.Context) (err error) {
		approved, err = driver.Approves(ctx, cluster.DeepCopy(), claimed.Value)
		return err
	})
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, "ApprovalFailed", err.Error())
		return fmt.Errorf("approve cluster %q: %w", cluster.Name, err)
	}
	if !approved {
		return h.wait(ctx, cluster)
	}
	if err := h.checkUnused(ctx, cluster.Name, claimed); err != nil {
		return err
	}
	if err := h.patch(ctx, cluster, func() { cluster.Spec.HubAcceptsClient = true }); err != nil {
		return fmt.Errorf("accept cluster %q: %w", cluster.Name, err)
	}
	h.event(cluster, corev1.EventTypeNormal, "AutoApproved",
		fmt.Sprintf("the configuration of the hub approves %s", claimed))
	return h.admit(ctx, cluster)
}

// wait leaves a new cluster alone until an administrator accepts it. Only a
// refusal whose cause is gone is replaced.
func (h *Hub) wait(ctx context.Context, cluster *ocm.ManagedCluster) error {
	h.schedule(cluster.Name, registration.Claim{}, 0)
	if stateOf(cluster).Reason == "" {
		return nil
	}
	return h.report(ctx, cluster, corev1.EventTypeNormal,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonWaiting, Message: "the cluster waits for an administrator of the hub to accept it"})
}

// release revokes a cluster that is being deleted, then lets it go. It also
// revokes what a cluster left behind whose ManagedCluster is gone: the
// finalizer may have been removed. It returns when to look again at what keeps
// the cluster.
func (h *Hub) release(ctx context.Context, cluster *ocm.ManagedCluster) (again time.Duration, err error) {
	exists := cluster.ResourceVersion != ""
	if exists {
		h.setState(cluster.Name, stateOf(cluster).Stage)
	}
	// else it was never granted anything, and another object may have its name
	if registration.CheckClusterName(cluster.Name) == nil {
		if err := h.unbind(ctx, cluster.Name); err != nil {
			return 0, err
		}
		if err := h.revoke(ctx, cluster, false); err != nil {
			return 0, err
		}
	}
	if !exists {
		h.forget(cluster.Name)
		return 0, nil
	}
	done := []string{ocm.Finalizer}
	if controllerutil.ContainsFinalizer(cluster, resourceFinalizer) {
		if again, err = h.checkRemains(ctx, cluster); err != nil {
			return 0, err
		}
		if again == 0 {
			done = append(done, resourceFinalizer)
		}
	}
	left := slices.DeleteFunc(slices.Clone(cluster.Finalizers), func(f string) bool { return slices.Contains(done, f) })
	if len(left) < len(cluster.Finalizers) {
		err = h.patch(ctx, cluster, func() { cluster.Finalizers = left })
	}
	return again, client.IgnoreNotFound(err)
}

// claim returns what a cluster claimed that it is. Errors are refusals.
func (h *Hub) claim(cluster *ocm.ManagedCluster) (none registration.Claim, err error) {
	var claimed []registration.Claim
	for _, d := range h.options.Drivers {
		claim, ok, err := d.Claim(cluster.DeepCopy())
		if err != nil {
			return none, refusal.New(reasonInvalidClaim, "auth type %q: %v", d.Name(), err)
		}
		if ok {
			claimed = append(claimed, registration.Claim{AuthType: d.Name(), Value: claim})
		}
	}
	switch {
	case len(claimed) > 1:
		return none, refusal.New(reasonConflictingDrivers,
			"the cluster has the annotations of two auth types, %q and %q: remove those of one", claimed[0].AuthType,
			claimed[1].AuthType)
	case len(claimed) == 1:
		return claimed[0], nil
	case h.options.Default == "":
		return none, refusal.New(reasonUnknownDriver, "the cluster has the annotations of no auth type, "+
			"and this hub has no default: join again with one of its auth types")
	default:
		return registration.Claim{AuthType: h.options.Default}, nil
	}
}

func (h *Hub) addFinalizer(ctx context.Context, cluster *ocm.ManagedCluster) error {
	if controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) {
		return nil
	}
	if err := h.patch(ctx, cluster, func() { controllerutil.AddFinalizer(cluster, ocm.Finalizer) }); err != nil {
		return fmt.Errorf("add the finalizer to ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}
