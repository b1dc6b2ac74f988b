package hubcmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
)

// checkOCM refuses a hub on which the hub program of Open Cluster Management runs, and says what stays of one that has stopped.
func (h *hubInit) checkOCM(ctx context.Context, cmd *cobra.Command, c client.Client) error {
	running, err := hubadmin.OCMPrograms(ctx, c, slices.Contains(h.options.AddOnAuthTypes, registration.AuthTypeToken))
	switch {
	case apierrors.IsForbidden(err):
		cmd.PrintErrln("wid: warning: it is not known whether the hub program of Open Cluster Management runs on this hub:", cli.OneLine(err.Error()))
	case err != nil:
		return cli.AnswerOf(err, "list Deployments")
	case len(running) > 0:
		remedy := "stop them, then run wid hub init again:"
		for _, d := range running {
			remedy += "\n  " + h.Kubectl("kubectl --namespace "+d.Namespace+" scale deployment "+d.Name+" --replicas=0")
		}
		return cli.Problem(auth.ErrMisconfigured, remedy,
			"programs of Open Cluster Management run on this hub that do the same as the hub program, and overwrite what it does")
	}
	binding, err := hubadmin.OCMBinding(ctx, c)
	if err != nil || binding == "" {
		return cli.AnswerOf(err, "list ClusterRoleBindings")
	}
	if !h.options.OCMAgents {
		cmd.PrintErrln("wid: warning: this hub was one of Open Cluster Management: its agents stop to work without --ocm-agents")
	}
	cmd.PrintErrf("wid: the other programs of Open Cluster Management stay, such as its webhooks. Its ClusterRoleBinding gives the hub program rights that it does not need. If you do not go back, delete it:\n  %s\n",
		h.Kubectl("kubectl delete clusterrolebinding "+shell.Word(binding, "NAME")))
	return nil
}
