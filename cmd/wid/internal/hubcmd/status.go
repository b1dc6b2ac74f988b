package hubcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHubStatus() *cobra.Command {
	s := &cli.Side{}
	var clusters []string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List the clusters of the hub, and what each one waits for",
		Example: "  wid hub status\n  wid hub status --clusters managed-0 -o json",
	}
	cmd.Flags().StringSliceVar(&clusters, "clusters", nil, "names of the clusters; all otherwise")
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	return s.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if len(clusters) > 0 {
			if err := checkClusters(clusters); err != nil {
				return err
			}
		}
		hub, _, err := s.Connect()
		if err != nil {
			return err
		}
		all, err := hubadmin.Clusters(ctx, hub)
		if err != nil {
			return cli.AnswerOf(err, "list the clusters")
		}
		if len(clusters) > 0 {
			all = slices.DeleteFunc(all, func(c hubadmin.Cluster) bool { return !slices.Contains(clusters, c.Name) })
		}
		return o.Print(cmd, map[string]any{"items": all}, func(w io.Writer) { statusTable(w, all) })
	})
}

func statusTable(w io.Writer, all []hubadmin.Cluster) {
	if len(all) == 0 {
		cli.Row(w, "no clusters")
		return
	}
	cli.Row(w, "NAME", "AUTH TYPE", "ACCEPTED", "JOINED", "AVAILABLE", "AGE", "PENDING REQUESTS", "CLAIM")
	for _, c := range all {
		if !c.Accepted { // its agent no longer reports
			c.Joined, c.Available = "", ""
		}
		cli.Row(w, c.Name, c.AuthType, accepted(&c), string(cmp.Or(c.Joined, "-")), string(cmp.Or(c.Available, "-")),
			duration.HumanDuration(time.Since(c.Created.Time)), pending(&c), cmp.Or(cli.OneLine(c.Claim), "-"))
	}
}

// pending returns the number of pending requests, with the reasons of their refusals.
func pending(c *hubadmin.Cluster) string {
	var reasons []string
	for _, r := range c.PendingRequests {
		if r.Reason != "" && !slices.Contains(reasons, r.Reason) {
			reasons = append(reasons, r.Reason)
		}
	}
	if len(reasons) == 0 {
		return strconv.Itoa(len(c.PendingRequests))
	}
	return fmt.Sprintf("%d (%.100s)", len(c.PendingRequests), strings.Join(reasons, ", "))
}

// accepted says what the administrator wants, and the reason if the cluster is not simply accepted.
func accepted(c *hubadmin.Cluster) string {
	granted, denied := c.Condition == metav1.ConditionTrue, c.Condition == metav1.ConditionFalse && c.Reason == ocm.ReasonHubDenied
	refused := c.Condition == metav1.ConditionFalse && !denied
	detail := c.Reason
	switch {
	case c.Deleting:
		detail = "deleting"
	case c.Accepted && granted && c.Reason == ocm.ReasonHubAccepted:
		return "true"
	case !c.Accepted && denied:
		detail = "denied"
	case !c.Accepted && (c.Condition == "" || c.Reason == regname.ReasonWaiting):
		detail = "waiting"
	case granted != c.Accepted && !refused:
		detail = "the hub has not acted yet"
	}
	return fmt.Sprintf("%t (%s)", c.Accepted, detail)
}
