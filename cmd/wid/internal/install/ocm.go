package install

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// OCMProgram is a program of Open Cluster Management: the namespace in which it
// runs, and the label "app" of its Pods. Anyone may use the label elsewhere, so
// only the own namespaces of Open Cluster Management count.
type OCMProgram struct{ Namespace, App string }

// CheckOCM refuses to install beside programs of Open Cluster Management that
// do the same. They come in the order in which to stop them: an operator scales
// what it manages up again until its own Pod has ended, so each is waited for.
func CheckOCM(ctx context.Context, cmd *cobra.Command, c client.Reader, kubectl func(string) string,
	programs ...OCMProgram) error {
	var commands []string
	for _, p := range programs {
		stop, err := p.stop(ctx, c)
		switch {
		case apierrors.IsForbidden(err):
			cmd.PrintErrf("wid: warning: it is not known whether %q of Open Cluster Management runs: %s\n", p.App,
				cli.OneLine(err.Error()))
		case err != nil:
			return cli.AnswerOf(err, "look for programs of Open Cluster Management")
		}
		commands = append(commands, stop...)
	}
	if len(commands) == 0 {
		return nil
	}
	remedy := "stop them, then run " + cmd.CommandPath() + " again:"
	for _, command := range commands {
		remedy += "\n  " + kubectl(command)
	}
	return cli.Problem(auth.ErrMisconfigured, remedy,
		"programs of Open Cluster Management run here that do the same, and overwrite what the program does that is to be installed")
}

// stop returns the commands that stop a program, none if it has stopped and its
// Pods have ended.
func (p OCMProgram) stop(ctx context.Context, c client.Reader) (commands []string, err error) {
	err = cli.Each(ctx, c, &appsv1.DeploymentList{}, func(d *appsv1.Deployment) {
		if d.Spec.Template.Labels["app"] == p.App && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
			commands = append(commands, "kubectl --namespace "+p.Namespace+" scale deployment "+d.Name+" --replicas=0")
		}
	}, client.InNamespace(p.Namespace))
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	err = c.List(ctx, pods, client.InNamespace(p.Namespace), client.MatchingLabels{"app": p.App}, client.Limit(1))
	if err == nil && len(commands)+len(pods.Items) > 0 {
		commands = append(commands, "kubectl --namespace "+p.Namespace+" wait --for=delete pod --selector app="+p.App+
			" --timeout=5m")
	}
	return commands, err
}
