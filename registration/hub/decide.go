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

// decide brings everything except the Lease to the documented state.
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

// admit grants an accepted cluster its access. Each step relies on the earlier
// ones. The finalizer and the record precede the grant, so a restart at any
// moment still revokes everything that was granted. The RBAC comes last.
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
	if !stateOf(cluster).HasAccess() { // otherwise checkLease repairs it
		if _, err := h.readLease(ctx, cluster, true); err != nil {
			return err
		}
	}
	if err := errors.Join(h.bind(ctx, cluster.Name), h.bindRelay(ctx, cluster.Name, role)); err != nil {
		return err
	}
	return h.reportAccepted(ctx, cluster, granted, claimed, claimErr)
}

// checkShown refuses a first grant of a claim that differs from the one that
// the administrator was shown. A hub with other drivers, or another default,
// reads another claim.
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

// checkLost refuses a cluster whose ClusterRole is gone. To record its present
// claim would hide what it was granted.
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

// exclude revokes a cluster that is no longer accepted. For a new cluster, it
// checks whether a driver approves it.
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
	// The condition is written before the record is deleted. Otherwise a
	// restart in between may treat the cluster as a new one, and approve it. An
	// unwritable condition does not keep a grant, because the finalizer is a
	// sign too.
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
// sign suffices, because without the admission policy an agent may write the
// conditions.
func wasAccepted(cluster *ocm.ManagedCluster) bool {
	s := stateOf(cluster)
	return controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) || s.Stage == registration.StageAccepted ||
		s.Reason == reasonRecordLost || s.Reason == ocm.ReasonHubDenied
}

// autoApprove accepts a new cluster if its driver approves. The hub creates the
// namespace later, so an existing namespace belongs to an earlier cluster of
// the same name, or to no cluster.
func (h *Hub) autoApprove(ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) error {
	claimed, err := h.claim(cluster)
	if err != nil && isPending(role) {
		return errors.Join(err, h.publish(ctx, cluster, role, claimed)) // clears the published claim
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

// wait leaves a new cluster alone until an administrator accepts it. It
// replaces a refusal only if its cause is gone.
func (h *Hub) wait(ctx context.Context, cluster *ocm.ManagedCluster) error {
	h.schedule(cluster.Name, registration.Claim{}, 0)
	if stateOf(cluster).Reason == "" {
		return nil
	}
	return h.report(ctx, cluster, corev1.EventTypeNormal,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonWaiting, Message: "the cluster waits for an administrator of the hub to accept it"})
}

// release revokes a cluster that is being deleted, then removes the finalizer.
// It also revokes the remains of a cluster whose ManagedCluster is gone,
// because the finalizer may have been removed. It returns the time of the next
// check of the objects that keep the cluster.
func (h *Hub) release(ctx context.Context, cluster *ocm.ManagedCluster) (again time.Duration, err error) {
	exists := cluster.ResourceVersion != ""
	if exists {
		h.setState(cluster.Name, stateOf(cluster).Stage)
	}
	// Otherwise it was never granted anything, and its name may belong to
	// another object.
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

// claim returns the identity that a cluster claims. Errors are refusals.
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
