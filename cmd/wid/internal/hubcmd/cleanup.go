package hubcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
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
	var outcomes []error
	err := hubadmin.CleanUp(ctx, hub, time.Now().Add(-olderThan), dryRun, func(d hubadmin.Denied) {
		outcome := "deleted"
		switch {
		case d.Err != nil:
			outcomes = append(outcomes, cli.AnswerOf(d.Err, fmt.Sprintf("delete ManagedCluster %q", d.Name)))
			return
		case d.Changed:
			outcome = "left alone, since it has changed meanwhile"
		case dryRun:
			outcome = "would be deleted"
		}
		outcomes = append(outcomes, cli.Say(cmd, "cluster %q %s: denied since %s", d.Name, outcome, cli.End(d.Since)))
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
