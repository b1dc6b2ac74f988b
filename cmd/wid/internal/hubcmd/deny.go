package hubcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHubDeny() *cobra.Command {
	d := &deciding{}
	return d.command(d.deny, &cobra.Command{
		Use:     "deny",
		Short:   "Take away the access of clusters to the hub, or keep them from it",
		Example: "  wid hub deny --clusters managed-0",
	}, "wait until the hub has taken away the access")
}

func (d *deciding) deny(ctx context.Context, cluster *ocm.ManagedCluster) error {
	accepted := cluster.Spec.HubAcceptsClient
	if !accepted && hubadmin.IsDenied(cluster) {
		return cli.Say(d.cmd, "cluster %q is denied already: nothing to do", cluster.Name)
	}
	if err := d.set(ctx, cluster, false); err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionHubAccepted) {
		d.denied = append(d.denied, cluster.Name)
		return nil
	}
	// The hub may take a cluster that it never let in for a new one.
	err := hubadmin.RecordDenial(ctx, d.hub, cluster.Name)
	switch {
	case errors.Is(err, hubadmin.ErrAccepted):
		return acceptedMeanwhile(cluster.Name)
	case err != nil:
		return cli.AnswerOf(err, fmt.Sprintf("set the condition %s of ManagedCluster %q", ocm.ConditionHubAccepted, cluster.Name))
	case !accepted:
		return cli.Say(d.cmd, "cluster %q denied: it was not accepted, and the hub no longer accepts it automatically", cluster.Name)
	}
	return cli.Say(d.cmd, "cluster %q denied: the hub had not let it in", cluster.Name)
}

// acceptedMeanwhile is the error of a denial that another person has reversed.
func acceptedMeanwhile(name string) error {
	return cli.Problem(auth.ErrUnavailable, "run the command again", "cluster %q was accepted meanwhile", name)
}

// revoked says whether the hub has taken away the access of the denied clusters. Without --wait it gives the hub a moment for all of them.
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
			err = cli.Say(d.cmd, "cluster %q denied; the hub has not acted yet, the cluster still has access: check that Deployment %q runs, with %s. %s",
				name, hubProgram, d.Wid("wid hub deny --wait --clusters "+name), afterDenial)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const afterDenial = "A client certificate stays valid until it expires, and works again if the cluster is accepted again"

// revoking says what is missing until a denied cluster has no access. The hub reports a denial after it has removed the RBAC.
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
	case hubadmin.IsDenied(cluster):
		return "", nil
	}
	return fmt.Sprintf("for the hub program to take away the access of cluster %q: see whether Deployment %q runs", name, hubProgram), nil
}
