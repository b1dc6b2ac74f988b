package hubadmin

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/pages"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ErrAccepted is the error of a denial of a cluster that was accepted meanwhile.
var ErrAccepted = errors.New("the cluster was accepted meanwhile")

// IsDenied reports whether the hub has denied a cluster. The hub reports that after it has removed the RBAC.
func IsDenied(cluster *ocm.ManagedCluster) bool {
	c := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == ocm.ReasonHubDenied
}

// RecordDenial keeps the hub from approving a cluster that is not accepted and never was. It fails with ErrAccepted if the hub was faster.
// Other writers of the status only cause another attempt.
func RecordDenial(ctx context.Context, c client.Client, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cluster := &ocm.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		if cluster.Spec.HubAcceptsClient {
			return ErrAccepted
		}
		base := cluster.DeepCopy()
		if !IsDenied(cluster) { // the time of the denial counts, not that of an earlier refusal
			meta.RemoveStatusCondition(&cluster.Status.Conditions, ocm.ConditionHubAccepted)
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonHubDenied, Message: "denied by an administrator of the hub", ObservedGeneration: cluster.Generation})
		return c.Status().Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
}

// Denied is a cluster that has been denied for some time.
type Denied struct {
	Name  string
	Since time.Time
	// Changed says that the cluster was accepted or created again since it was listed, and still exists. Err is another failure.
	Changed bool
	Err     error
}

// CleanUp deletes the ManagedClusters that have been denied since before that time, and reports each one. The denial is deleted too: an
// agent with a bootstrap credential can ask to join again. With dryRun it deletes nothing. An error is that of the list.
func CleanUp(ctx context.Context, c client.Client, before time.Time, dryRun bool, report func(Denied)) error {
	return pages.Each(func(opts ...client.ListOption) (string, error) {
		var clusters ocm.ManagedClusterList
		err := c.List(ctx, &clusters, opts...)
		for i := range clusters.Items {
			cluster := &clusters.Items[i]
			d := Denied{Name: cluster.Name}
			if accepted := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted); accepted != nil {
				d.Since = accepted.LastTransitionTime.Time
			}
			// While only one of the administrator and the hub denies a cluster, it stays.
			if !IsDenied(cluster) || cluster.Spec.HubAcceptsClient || !cluster.DeletionTimestamp.IsZero() || !d.Since.Before(before) {
				continue
			}
			if !dryRun {
				d.Err = c.Delete(ctx, cluster, client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion})
			}
			if d.Changed = apierrors.IsConflict(d.Err) || apierrors.IsNotFound(d.Err); d.Changed {
				d.Err = nil
			}
			report(d)
		}
		return clusters.Continue, err
	})
}
