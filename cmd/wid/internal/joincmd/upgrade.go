package joincmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/agent"
)

// upgrade applies the manifests again to a cluster that has an agent. The agent keeps its flags, apart from those of the command, its
// credential and its bootstrap Secret. So neither a token nor the address of the hub is needed.
func (j *join) upgrade(ctx context.Context, cmd *cobra.Command) error {
	if err := j.Check(); err != nil {
		return err
	}
	local, _, err := j.Connect()
	if err != nil {
		return err
	}
	running, program, err := install.Running(ctx, local, agent.DefaultNamespace, regname.AgentName)
	if err != nil {
		return err
	}
	if running == nil {
		return cli.Usagef("there is no agent to upgrade on this cluster: to join it, pass --cluster-name, --hub-apiserver, --hub-token, and --ca-cert-hash or --ca-file")
	}
	for _, arg := range program.Args {
		if strings.Contains(arg, "$(") {
			return cli.Problem(auth.ErrMisconfigured, "change ?ref= in the overlay, and apply it again",
				"an overlay of config/agent has installed this agent, since its argument %.100q refers to a variable: wid join cannot upgrade it", arg)
		}
	}
	if j.options.ExtraArgs, err = j.take(cmd, program.Args); err != nil {
		return err
	}
	if err := j.checkAgent(); err != nil {
		return err
	}
	if _, err := agentSecret(ctx, local, j.options.Cluster); err != nil {
		return err
	}
	warnOfRest(cmd, running)
	j.options.Replicas, j.options.ImagePullSecrets = j.Replicas(cmd, running)
	printed, err := j.manifests()
	if err != nil {
		return err
	}
	if err := j.ApplyAll(ctx, cmd, local, printed); err != nil {
		return err
	}
	if j.Wait {
		if err := install.AwaitDeployment(ctx, cmd, local, agent.DefaultNamespace, regname.AgentName); err != nil {
			return err
		}
	}
	return cli.Say(cmd, "\nThe agent of cluster %q has the image %.300q, before %.300q. Its flags: %.1000s. Its credential and its bootstrap Secret stay", j.options.Cluster,
		j.Image, program.Image, cli.OneLine(strings.Join(j.options.Args(), " ")))
}

// warnOfRest names what the Deployment keeps although the manifests do not have it.
func warnOfRest(cmd *cobra.Command, running *appsv1.Deployment) {
	var rest []string
	for _, container := range slices.Concat(running.Spec.Template.Spec.InitContainers, running.Spec.Template.Spec.Containers) {
		switch {
		case container.Name != regname.Container:
			rest = append(rest, fmt.Sprintf("container %q", container.Name))
		case len(container.Command) > 0:
			rest = append(rest, fmt.Sprintf("command %.300q", container.Command))
		}
	}
	if len(rest) > 0 {
		cmd.PrintErrln("wid: warning: the Deployment of the agent keeps what wid join does not write:", strings.Join(rest, ", "))
	}
}

// take sets the flags of the command that the user left out to those of the agent that runs, and returns the other ones of the agent.
func (j *join) take(cmd *cobra.Command, args []string) (others []string, err error) {
	names := []string{"cluster-name", "registration-auth", install.HubARNFlag, install.ManagedARNFlag, install.AddOnAuthFlag, install.AddOnSecondsFlag}
	for _, arg := range joinValues(args) {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case arg == "--leader-elect": // the manifests have it
		case !slices.Contains(names, name):
			others = append(others, arg)
		case !cmd.Flags().Changed(name):
			if err := cmd.Flags().Set(name, value); err != nil {
				return nil, cli.Usagef("the agent that runs has --%s=%.100q: %v", name, value, err)
			}
		}
	}
	j.options.HubARN, j.options.ManagedARN = j.arns.Hub, j.arns.Managed
	return others, nil
}

// joinValues turns --name value into --name=value.
func joinValues(args []string) (joined []string) {
	for _, arg := range args {
		if last := len(joined) - 1; last >= 0 && !strings.HasPrefix(arg, "-") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}
