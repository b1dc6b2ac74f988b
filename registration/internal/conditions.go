// Package internal holds helpers that the agent and the hub share.
package internal

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration/ocm"
)

// MaxConditionMessage is the API server's limit.
const MaxConditionMessage = 32768

// PatchStatus changes the status of a ManagedCluster, and writes nothing if
// change alters nothing. It patches with a resourceVersion and tries again on
// conflict. Server-side apply with one owner for each condition would be
// simpler, but the conditions of released hubs are an atomic list: an apply of
// one condition would delete all others.
func PatchStatus(ctx context.Context, c client.Client, cluster *ocm.ManagedCluster, change func(*ocm.ManagedClusterStatus) bool) error {
	first := true
	return optimistic.Write(ctx, apierrors.IsConflict, func() error {
		if !first {
			if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
		}
		first = false
		base := cluster.DeepCopy()
		if !change(&cluster.Status) {
			return nil
		}
		return c.Status().Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
}

// SetCondition sets one condition of a ManagedCluster. A denial counts from the
// time when it became one, whatever the status was before.
func SetCondition(ctx context.Context, c client.Client, cluster *ocm.ManagedCluster, condition metav1.Condition) error {
	condition.ObservedGeneration = cluster.Generation
	if len(condition.Message) > MaxConditionMessage {
		condition.Message = condition.Message[:MaxConditionMessage]
	}
	return PatchStatus(ctx, c, cluster, func(s *ocm.ManagedClusterStatus) bool {
		had := meta.FindStatusCondition(s.Conditions, condition.Type)
		if had != nil && had.Reason != condition.Reason && condition.Reason == ocm.ReasonHubDenied {
			had.Status = metav1.ConditionUnknown // SetStatusCondition keeps the time unless the status changes
		}
		return meta.SetStatusCondition(&s.Conditions, condition)
	})
}
