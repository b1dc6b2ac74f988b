package hubcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubProgram is the Deployment of the hub program.
const hubProgram = regname.HubNamespace + "/" + regname.HubDeployment

// deciding are the flags of accept and deny.
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

// command returns a command that decides about each cluster. It reads all clusters before it changes the first one, so that a wrong name
// changes nothing.
func (d *deciding) command(decide func(context.Context, *ocm.ManagedCluster) error, cmd *cobra.Command, waits string) *cobra.Command {
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

// set fails if the cluster has changed since it was read, so that it accepts exactly the shown claim.
func (d *deciding) set(ctx context.Context, cluster *ocm.ManagedCluster, accepted bool) error {
	if cluster.Spec.HubAcceptsClient == accepted {
		return nil
	}
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = accepted
	err := d.hub.Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	operation := fmt.Sprintf("set hubAcceptsClient of ManagedCluster %q to %t", cluster.Name, accepted)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // the policy for bootstrap users answers Invalid
		var rules []string
		for _, r := range hubadmin.MissingRules(ctx, d.hub, cluster.Name) {
			rules = append(rules, fmt.Sprintf("{apiGroups: %s, resources: %s, verbs: %s}", r.APIGroups, r.Resources, r.Verbs))
		}
		if len(rules) > 0 {
			return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err, Message: cli.OneLine(kubeerror.Message(err)),
				Remedy: "the user lacks a right: an administrator of the hub has to add these rules to a ClusterRole of the user: " + strings.Join(rules, ", ")}
		}
	}
	return cli.AnswerOf(err, operation)
}

func hasTerminal(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) //nolint:gosec // a file descriptor fits
}

// confirm asks a person at a terminal. It returns no after another answer than yes, and without a terminal.
func confirm(cmd *cobra.Command, answers *bufio.Reader, question string, no *auth.Error) error {
	if !hasTerminal(cmd) {
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
