package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHubCleanup() *cobra.Command {
	s := &side{}
	var olderThan time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the ManagedClusters that denied clusters leave behind",
		Long: "Delete the ManagedClusters that denied clusters leave behind, also those that left by wid unjoin. It deletes a cluster\n" +
			"only if the hub has denied it for longer than --older-than, and if it has not changed since it was listed. The denial\n" +
			"is deleted too: an agent that still has a bootstrap credential can ask to join again.",
		Example: "  wid hub cleanup --context hub --dry-run",
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", time.Hour, "delete clusters that have been denied for longer than this")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the clusters, and delete nothing")
	return s.command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if olderThan < 0 {
			return usagef("--older-than is 0 or more, not %s", olderThan)
		}
		hub, _, err := s.connect()
		if err != nil {
			return err
		}
		return cleanUp(ctx, cmd, hub, time.Now().Add(-olderThan), dryRun)
	})
}

// cleanupPage bounds the memory: bootstrap users can create thousands of ManagedClusters of 64 KiB.
const cleanupPage = client.Limit(100)

// cleanUp deletes the clusters that were denied before the given time. After a failure it goes on with the others.
func cleanUp(ctx context.Context, cmd *cobra.Command, hub client.Client, before time.Time, dryRun bool) error {
	var failures []error
	more := client.Continue("")
	for {
		var clusters ocm.ManagedClusterList
		if err := hub.List(ctx, &clusters, cleanupPage, more); err != nil {
			return errors.Join(append(failures, answerOf(err, "list the clusters"))...)
		}
		failures = append(failures, cleanUpPage(ctx, cmd, hub, clusters.Items, before, dryRun))
		if more = client.Continue(clusters.Continue); more == "" {
			return errors.Join(failures...)
		}
	}
}

func cleanUpPage(ctx context.Context, cmd *cobra.Command, hub client.Client, clusters []ocm.ManagedCluster, before time.Time, dryRun bool) error {
	var failures []error
	for i := range clusters {
		cluster := &clusters[i]
		since, denied := deniedSince(cluster)
		if !denied || !since.Before(before) {
			continue
		}
		outcome, err := "would be deleted", error(nil)
		if !dryRun {
			outcome, err = deleteUnchanged(ctx, hub, cluster)
		}
		if err == nil {
			err = say(cmd, "cluster %q %s: denied since %s", cluster.Name, outcome, end(since))
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// deniedSince reports when the hub denied a cluster. It reports false while only one of the administrator and the hub denies it.
func deniedSince(cluster *ocm.ManagedCluster) (since time.Time, denied bool) {
	c := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != ocm.ReasonHubDenied || cluster.Spec.HubAcceptsClient || !cluster.DeletionTimestamp.IsZero() {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// deleteUnchanged leaves a cluster alone that was accepted or created again since it was listed.
func deleteUnchanged(ctx context.Context, hub client.Client, cluster *ocm.ManagedCluster) (outcome string, err error) {
	err = hub.Delete(ctx, cluster, client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return "left alone, since it has changed meanwhile", nil
	}
	return "deleted", answerOf(err, fmt.Sprintf("delete ManagedCluster %q", cluster.Name))
}

// cleanupManifest returns the CronJob that runs cleanup, with an image of this program.
func cleanupManifest(image string) (string, error) {
	quoted, err := json.Marshal(image)
	return strings.Replace(registration.CleanupManifest, "WID_IMAGE", string(quoted), 1), err
}
