package hubcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration/ocm"
)

// NewHubCleanup returns wid hub cleanup.
func NewHubCleanup() *cobra.Command {
	s := &cli.Side{}
	var olderThan time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the ManagedClusters that denied clusters leave behind",
		Long: "Delete the ManagedClusters that the hub denied more than --older-than ago, if they are unchanged since the listing.\n" +
			"The denial is deleted too: an agent with a bootstrap credential can ask to join again.",
		Example: "  wid hub cleanup --context hub --dry-run",
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", time.Hour, "delete clusters that have been denied for longer than this")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the clusters, and delete nothing")
	return s.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if olderThan < 0 {
			return cli.Usagef("--older-than is 0 or more, not %s", olderThan)
		}
		hub, _, err := s.Connect()
		if err != nil {
			return err
		}
		return CleanUp(ctx, cmd, hub, olderThan, dryRun)
	})
}

// CleanUp deletes the clusters that have been denied for longer than the given time. After a failure it goes on with the others.
func CleanUp(ctx context.Context, cmd *cobra.Command, hub client.Client, olderThan time.Duration, dryRun bool) error {
	before := time.Now().Add(-olderThan)
	var outcomes []error
	err := cli.Pages(func(opts ...client.ListOption) (string, error) {
		var clusters ocm.ManagedClusterList
		err := hub.List(ctx, &clusters, opts...)
		for i := range clusters.Items {
			if since, denied := deniedSince(&clusters.Items[i]); denied && since.Before(before) {
				outcomes = append(outcomes, cleanUpCluster(ctx, cmd, hub, &clusters.Items[i], since, dryRun))
			}
		}
		return clusters.Continue, err
	})
	if err == nil && len(outcomes) == 0 {
		return cli.Say(cmd, "none denied for %s", shortDuration(olderThan))
	}
	return errors.Join(append(outcomes, cli.AnswerOf(err, "list the clusters"))...)
}

// shortDuration leaves out zeros at the end.
func shortDuration(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

// cleanUpCluster leaves a cluster alone that was accepted or created again since it was listed.
func cleanUpCluster(ctx context.Context, cmd *cobra.Command, hub client.Client, cluster *ocm.ManagedCluster, since time.Time, dryRun bool) error {
	outcome := "would be deleted"
	if !dryRun {
		err := hub.Delete(ctx, cluster, client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion})
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			outcome = "left alone, since it has changed meanwhile"
		case err != nil:
			return cli.AnswerOf(err, fmt.Sprintf("delete ManagedCluster %q", cluster.Name))
		default:
			outcome = "deleted"
		}
	}
	return cli.Say(cmd, "cluster %q %s: denied since %s", cluster.Name, outcome, cli.End(since))
}

// deniedSince reports when the hub denied a cluster. It reports false while only one of the administrator and the hub denies it.
func deniedSince(cluster *ocm.ManagedCluster) (since time.Time, denied bool) {
	c := conditionOf(cluster, ocm.ConditionHubAccepted)
	return c.LastTransitionTime.Time, isDenial(c) && !cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp.IsZero()
}
