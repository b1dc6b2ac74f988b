package hubcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const hubProgram = ocm.HubNamespace + "/" + ocm.HubDeployment

type deciding struct {
	cli.Side
	clusters []string
	wait     bool
	accepts  bool
	approves string // the name of a request
	claim    string

	cmd     *cobra.Command
	hub     client.Client
	answers *bufio.Reader // of the person at the terminal
	denied  []string      // clusters whose access the hub has to take away
}

// command returns a command that decides about each cluster. It reads all
// clusters before it changes the first one, so that a wrong name changes
// nothing.
func (d *deciding) command(decide func(context.Context, *ocm.ManagedCluster) error, cmd *cobra.Command,
	waits string) *cobra.Command {
	cmd.Flags().StringSliceVar(&d.clusters, "clusters", nil, "names of the clusters")
	cmd.Flags().BoolVar(&d.wait, "wait", false, waits)
	return d.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		all, err := d.readAll(ctx, cmd)
		for i := 0; i < len(all) && err == nil; i++ {
			err = decide(ctx, all[i])
		}
		return errors.Join(err, d.revoked(ctx))
	})
}

func (d *deciding) readAll(ctx context.Context, cmd *cobra.Command) (all []*ocm.ManagedCluster, err error) {
	if err := checkClusters(d.clusters); err != nil {
		return nil, err
	}
	if len(d.clusters) > 1 && (d.approves != "" || cmd.Flags().Changed("claim")) {
		return nil, cli.Usagef("--claim and --approve-request are for one cluster: run the command once for each")
	}
	d.cmd, d.answers = cmd, bufio.NewReader(cmd.InOrStdin())
	if d.hub, _, err = d.Connect(); err != nil {
		return nil, err
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(d.clusters))) {
		cluster, err := d.read(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, cluster)
	}
	return all, nil
}

func (d *deciding) read(ctx context.Context, name string) (*ocm.ManagedCluster, error) {
	cluster := &ocm.ManagedCluster{}
	return cluster, cli.Await(ctx, d.cmd, func() (string, error) {
		err := d.hub.Get(ctx, client.ObjectKey{Name: name}, cluster)
		if !apierrors.IsNotFound(err) {
			return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", name))
		}
		if d.wait {
			return fmt.Sprintf("for the agent of cluster %q to reach the hub: it does after wid join", name), nil
		}
		remedy := "correct the name: wid hub status lists the clusters"
		if d.accepts {
			remedy = "run wid join on that cluster, correct the name, or pass --wait"
		}
		return "", cli.Problem(auth.ErrMisconfigured, remedy, "there is no ManagedCluster %q on the hub", name)
	})
}

const acceptRights = "a user who accepts or denies needs the rights to patch managedclusters and to update managedclusters/accept, in the group " +
	"cluster.open-cluster-management.io; where the webhook of Open Cluster Management runs, also to update managedclusters/accept in " +
	"register.open-cluster-management.io"

// set fails if the cluster has changed since it was read, so that it accepts
// exactly the shown claim.
func (d *deciding) set(ctx context.Context, cluster *ocm.ManagedCluster, accepted bool) error {
	if cluster.Spec.HubAcceptsClient == accepted {
		return nil
	}
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = accepted
	err := d.hub.Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	operation := fmt.Sprintf("set hubAcceptsClient of ManagedCluster %q to %t", cluster.Name, accepted)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // the policy for bootstrap users answers Invalid
		return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err,
			Message: cli.OneLine(kubeerror.Message(err)), Remedy: acceptRights}
	}
	return cli.AnswerOf(err, operation)
}

// confirm asks a person at a terminal. It returns no after another answer than
// yes, and without a terminal.
func confirm(cmd *cobra.Command, answers *bufio.Reader, question string, no *auth.Error) error {
	if !cli.IsTerminal(cmd.InOrStdin()) {
		return no
	}
	cmd.PrintErr(question, " [yes/no] ")
	answer, err := answers.ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	no.Err = err
	return no
}

func newHubDeny() *cobra.Command {
	d := &deciding{}
	return d.command(d.deny, &cobra.Command{
		Use:     "deny",
		Short:   "Take away the access of clusters to the hub, or keep them from it",
		Example: "  wid hub deny --clusters managed-0",
	}, "wait until the hub has taken away the access")
}

func (d *deciding) deny(ctx context.Context, cluster *ocm.ManagedCluster) error {
	accepted, before := cluster.Spec.HubAcceptsClient, stateOf(cluster, nil).Stage
	if !accepted && before == registration.StageDenied {
		return cli.Say(d.cmd, "cluster %q is denied already: nothing to do", cluster.Name)
	}
	if err := d.set(ctx, cluster, false); err != nil {
		return err
	}
	if before == registration.StageAccepted || before == registration.StageDeleting {
		d.denied = append(d.denied, cluster.Name)
		return nil
	}
	// The hub may take a cluster that it never let in for a new one.
	err := recordDenial(ctx, d.hub, cluster)
	switch {
	case err != nil:
		return cli.AnswerOf(err,
			fmt.Sprintf("set the condition %s of ManagedCluster %q", ocm.ConditionHubAccepted, cluster.Name))
	case !accepted:
		return cli.Say(d.cmd, "cluster %q denied: it was not accepted, and the hub no longer accepts it automatically",
			cluster.Name)
	}
	return cli.Say(d.cmd, "cluster %q denied: the hub had not let it in", cluster.Name)
}

// recordDenial keeps the hub from approving a cluster that is not accepted and
// never was. It fails if the hub was faster. Other writers of the status only
// cause another attempt.
func recordDenial(ctx context.Context, c client.Client, cluster *ocm.ManagedCluster) error {
	err := optimistic.PatchStatus(ctx, c, cluster, func() bool {
		return !cluster.Spec.HubAcceptsClient && ocm.SetCondition(&cluster.Status.Conditions, metav1.Condition{
			Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: ocm.ReasonHubDenied,
			Message: "denied by an administrator of the hub", ObservedGeneration: cluster.Generation})
	})
	if err == nil && cluster.Spec.HubAcceptsClient {
		return acceptedMeanwhile(cluster.Name)
	}
	return err
}

// acceptedMeanwhile is the error of a denial that another person has reversed.
func acceptedMeanwhile(name string) error {
	return cli.Problem(auth.ErrUnavailable, "run the command again", "cluster %q was accepted meanwhile", name)
}

// revoked says whether the hub has taken away the access of the denied
// clusters. Without --wait it gives the hub a moment for all of them.
func (d *deciding) revoked(ctx context.Context) error {
	look := ctx
	if !d.wait {
		moment, cancel := context.WithTimeout(ctx, cli.Quiet-cli.PollInterval) // ends before a notice
		defer cancel()
		look = moment
	}
	for _, name := range d.denied {
		err := cli.Await(look, d.cmd, func() (string, error) { return d.revoking(ctx, name) })
		switch {
		case err == nil:
			err = cli.Say(d.cmd, "cluster %q denied: the hub has taken away its access. %s", name, afterDenial)
		case look.Err() != nil && ctx.Err() == nil:
			err = cli.Say(d.cmd,
				"cluster %q denied; the hub has not acted yet, the cluster still has access: check that Deployment %q runs, with %s. %s",
				name, hubProgram, d.Kubectl("wid hub deny --wait --clusters "+name), afterDenial)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const afterDenial = "A client certificate stays valid until it expires, and works again if the cluster is accepted again"

// revoking says what is missing until a denied cluster has no access. The hub
// reports a denial after it has removed the RBAC.
func (d *deciding) revoking(ctx context.Context, name string) (waitingFor string, err error) {
	cluster := &ocm.ManagedCluster{}
	err = d.hub.Get(ctx, client.ObjectKey{Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", name))
	case cluster.Spec.HubAcceptsClient:
		return "", acceptedMeanwhile(name)
	}
	s := stateOf(cluster, nil)
	switch {
	case s.Stage == registration.StageDenied, s.Stage == registration.StageDeleting && s.Acted:
		return "", nil
	case s.Failure != "":
		return fmt.Sprintf("for the hub to take away the access of cluster %q, which it retries: %s", name, s.Failure), nil
	}
	return fmt.Sprintf("for the hub program to take away the access of cluster %q: see whether Deployment %q runs", name,
		hubProgram), nil
}

// NewHubCleanup returns wid hub cleanup.
func NewHubCleanup() *cobra.Command {
	s := &cli.Side{}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the ManagedClusters that denied clusters leave behind",
		Long: "Delete the ManagedClusters that the hub denied more than --older-than ago, if they are unchanged since the listing.\n" +
			"The denial is deleted too: an agent with a bootstrap credential can ask to join again.",
		Example: "  wid hub cleanup --context hub --dry-run",
	}
	olderThan := cmd.Flags().Duration("older-than", time.Hour,
		"delete clusters that have been denied for longer than this")
	dryRun := cmd.Flags().Bool("dry-run", false, "list the clusters, and delete nothing")
	return s.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if *olderThan < 0 {
			return cli.Usagef("--older-than is 0 or more, not %s", *olderThan)
		}
		hub, _, err := s.Connect()
		if err != nil {
			return err
		}
		return CleanUp(ctx, cmd, hub, *olderThan, *dryRun)
	})
}

// CleanUp deletes the clusters that have been denied for longer than the given
// time. After a failure it goes on with the others.
func CleanUp(ctx context.Context, cmd *cobra.Command, hub client.Client, olderThan time.Duration, dryRun bool) error {
	before, outcomes := time.Now().Add(-olderThan), []error(nil)
	err := cli.Each(ctx, hub, &ocm.ManagedClusterList{}, func(cluster *ocm.ManagedCluster) {
		s := stateOf(cluster, nil)
		// While only one of the administrator and the hub denies a cluster, it
		// stays.
		if s.Stage != registration.StageDenied || !s.Acted || !s.Since.Before(before) {
			return
		}
		if cluster.Unreadable != "" && s.Since.Unix() == 0 { // the time of the denial cannot be read
			outcomes = append(outcomes,
				cli.Say(cmd, "left alone: %s", unreadable(cluster.Name, redact.Line(cluster.Unreadable))))
			return
		}
		outcomes = append(outcomes, cleanUpOne(ctx, cmd, hub, cluster, s.Since, dryRun))
	})
	if err == nil && len(outcomes) == 0 {
		return cli.Say(cmd, "none denied for %s", shortDuration(olderThan))
	}
	return errors.Join(append(outcomes, cli.AnswerOf(err, "list the clusters"))...)
}

// cleanUpOne spares a cluster that was accepted or created again since it was
// listed.
func cleanUpOne(ctx context.Context, cmd *cobra.Command, hub client.Client, cluster *ocm.ManagedCluster,
	since time.Time, dryRun bool) error {
	outcome := "would be deleted"
	if !dryRun {
		outcome = "deleted"
		err := hub.Delete(ctx, cluster, client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion})
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			outcome = "left alone, since it has changed meanwhile"
		case err != nil:
			return cli.AnswerOf(err, fmt.Sprintf("delete ManagedCluster %q", cluster.Name))
		}
	}
	return cli.Say(cmd, "cluster %q %s: denied since %s", cluster.Name, outcome, cli.End(since))
}

// shortDuration leaves out zeros at the end.
func shortDuration(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}
