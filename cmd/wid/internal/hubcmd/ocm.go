package hubcmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/pages"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
)

// Labels app of the Pods of Open Cluster Management.
const (
	ocmOperator = "cluster-manager" // sets the other one's replicas and RBAC
	ocmHub      = "clustermanager-registration-controller"
	ocmAddOns   = "clustermanager-addon-manager-controller" // also serves the tokens of add-ons
)

// ocmHubRole is the suffix of the names of the ClusterRole and its binding that give rights to the hub program of Open Cluster Management.
// Its ServiceAccount has the same name as ours.
const ocmHubRole = "-registration:controller"

// checkOCM refuses a hub on which the hub program of Open Cluster Management runs, and says what stays of one that has stopped.
func (h *hubInit) checkOCM(ctx context.Context, cmd *cobra.Command, c client.Client) error {
	running, err := h.runningOCM(ctx, c)
	switch {
	case apierrors.IsForbidden(err):
		cmd.PrintErrln("wid: warning: it is not known whether the hub program of Open Cluster Management runs on this hub:", cli.OneLine(err.Error()))
	case err != nil:
		return cli.AnswerOf(err, "list Deployments")
	case len(running) > 0:
		return cli.Problem(auth.ErrMisconfigured, "stop them, then run wid hub init again:\n  "+strings.Join(running, "\n  "),
			"programs of Open Cluster Management run on this hub that do the same as the hub program, and overwrite what it does")
	}
	binding, err := h.ocmBinding(ctx, c)
	if err != nil || binding == "" {
		return err
	}
	if !h.options.OCMAgents {
		cmd.PrintErrln("wid: warning: this hub was one of Open Cluster Management: its agents stop to work without --ocm-agents")
	}
	cmd.PrintErrf("wid: the other programs of Open Cluster Management stay, such as its webhooks. Its ClusterRoleBinding gives the hub program rights that it does not need. If you do not go back, delete it:\n  %s\n",
		h.Kubectl("kubectl delete clusterrolebinding "+shell.Word(binding, "NAME")))
	return nil
}

// runningOCM returns commands that stop the programs of Open Cluster Management that ours replaces, the operator first. Anyone may use
// their labels elsewhere, so only their own namespaces count.
func (h *hubInit) runningOCM(ctx context.Context, c client.Client) (commands []string, err error) {
	programs := []struct{ namespace, app string }{{"open-cluster-management", ocmOperator}, {manifests.HubNamespace, ocmHub}}
	if slices.Contains(h.options.AddOnAuthTypes, registration.AuthTypeToken) {
		programs = append(programs, struct{ namespace, app string }{manifests.HubNamespace, ocmAddOns})
	}
	for _, program := range programs {
		err := pages.Each(func(opts ...client.ListOption) (string, error) {
			var list appsv1.DeploymentList
			err := c.List(ctx, &list, append(opts, client.InNamespace(program.namespace))...)
			for i := range list.Items {
				d := &list.Items[i]
				if d.Spec.Template.Labels["app"] == program.app && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
					commands = append(commands, h.Kubectl("kubectl --namespace "+d.Namespace+" scale deployment "+d.Name+" --replicas=0"))
				}
			}
			return list.Continue, err
		})
		if err != nil {
			return nil, err
		}
	}
	return commands, nil
}

// ocmBinding returns the name of the ClusterRoleBinding of the hub program of Open Cluster Management, "" if there is none.
func (h *hubInit) ocmBinding(ctx context.Context, c client.Client) (name string, err error) {
	err = pages.Each(func(opts ...client.ListOption) (string, error) {
		var list rbacv1.ClusterRoleBindingList
		err := c.List(ctx, &list, opts...)
		for _, b := range list.Items {
			if strings.HasPrefix(b.Name, "open-cluster-management:") && strings.HasSuffix(b.Name, ocmHubRole) {
				name = b.Name
			}
		}
		return list.Continue, err
	})
	return name, cli.AnswerOf(err, "list ClusterRoleBindings")
}
