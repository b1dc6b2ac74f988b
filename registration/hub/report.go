package hub

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// reasonReconcileFailed is the reason of ocm.ConditionReconciled.
const reasonReconcileFailed = "ReconcileFailed"

// reportFailure shows the error of a reconcile as a condition of its own,
// because the other conditions show the grants. It returns the error, so the
// reconcile is retried. It does not show a conflict.
func (h *Hub) reportFailure(ctx context.Context, cluster *ocm.ManagedCluster, failure error) error {
	shown := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionReconciled) != nil
	switch {
	case cluster.ResourceVersion == "", ctx.Err() != nil, apierrors.IsConflict(failure), failure == nil && !shown:
		return failure
	case failure == nil:
		return client.IgnoreNotFound(optimistic.PatchStatus(ctx, h.options.Client, cluster, func() bool {
			return meta.RemoveStatusCondition(&cluster.Status.Conditions, ocm.ConditionReconciled)
		}))
	}
	c := metav1.Condition{Type: ocm.ConditionReconciled, Status: metav1.ConditionFalse, Reason: reasonReconcileFailed,
		Message: kubeerror.Message(failure)}
	err := h.report(ctx, cluster, corev1.EventTypeWarning, c)
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, c.Reason, c.Message)
	}
	return errors.Join(failure, client.IgnoreNotFound(err))
}

// reportAccepted sets the condition of an accepted cluster.
func (h *Hub) reportAccepted(
	ctx context.Context, cluster *ocm.ManagedCluster, granted, claimed registration.Claim, claimErr error,
) error {
	condition := acceptance(granted, claimed, claimErr)
	eventType := corev1.EventTypeNormal
	if condition.Reason != ocm.ReasonHubAccepted {
		eventType = corev1.EventTypeWarning
	}
	return h.report(ctx, cluster, eventType, condition)
}

// acceptance returns the condition of an accepted cluster. The condition also
// states whether the claim has changed since.
func acceptance(granted, claimed registration.Claim, claimErr error) metav1.Condition {
	condition := metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue,
		Reason:  ocm.ReasonHubAccepted,
		Message: fmt.Sprintf("accepted as %s", granted)}
	if claimErr == nil && claimed == granted {
		return condition
	}
	now := claimed.String()
	if claimErr != nil {
		now = claimErr.Error()
	}
	condition.Reason = ocm.ReasonClaimChanged
	condition.Message = fmt.Sprintf(
		"the cluster was accepted as %s and keeps that; its annotations now say: %s. To accept the change set hubAcceptsClient to false, then to true", granted, now)
	return condition
}

func (h *Hub) setCondition(ctx context.Context, cluster *ocm.ManagedCluster, c metav1.Condition) error {
	c.ObservedGeneration = cluster.Generation
	return optimistic.PatchStatus(ctx, h.options.Client, cluster, func() bool {
		return ocm.SetCondition(&cluster.Status.Conditions, c)
	})
}

// report sets a condition, and records an Event if the condition is new.
func (h *Hub) report(ctx context.Context, cluster *ocm.ManagedCluster, eventType string, c metav1.Condition) error {
	known := shows(cluster, c)
	if err := h.setCondition(ctx, cluster, c); err != nil {
		return fmt.Errorf("set condition %s of ManagedCluster %q: %w", c.Type, cluster.Name, err)
	}
	if !known {
		h.event(cluster, eventType, c.Reason, c.Message)
	}
	return nil
}

// shows reports whether a cluster has the condition, perhaps about an earlier
// generation.
func shows(cluster *ocm.ManagedCluster, c metav1.Condition) bool {
	had := meta.FindStatusCondition(cluster.Status.Conditions, c.Type)
	return had != nil && had.Status == c.Status && had.Reason == c.Reason && had.Message == c.Message
}

func (h *Hub) event(cluster *ocm.ManagedCluster, eventType, reason, message string) {
	if cluster.ResourceVersion != "" {
		kubeevent.Record(h.options.Recorder, cluster, eventType, reason, "Register", message)
	}
}
