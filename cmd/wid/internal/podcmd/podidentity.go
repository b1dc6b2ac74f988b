// Package podcmd is wid pod-identity.
package podcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

// NewPodIdentity returns wid pod-identity.
func NewPodIdentity() *cobra.Command {
	return cli.Group("pod-identity", "AWS credentials of pods (IAMBinding)", newTrustPolicy())
}

type trustPolicy struct {
	cli.Side
	namespace, cluster, serverRole string
	output                         *cli.Output
}

func newTrustPolicy() *cobra.Command {
	p := &trustPolicy{}
	cmd := &cobra.Command{
		Use:     "trust-policy BINDING",
		Short:   "Print the trust policy that the IAM role of an IAMBinding needs",
		Long:    "Print the trust policy as JSON. It trusts the server for the pods of the ServiceAccount.",
		Example: "  wid pod-identity trust-policy -n team-a reporting --cluster prod --server-role \"$SERVER_ROLE\"",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	p.output = cli.OutputFlag(cmd, "json", "yaml")
	f.StringVar(&p.serverRole, "server-role", "", "ARN of the server's own role; required")
	f.StringVar(&p.cluster, "cluster", "", "value of --cluster of the server; required")
	f.StringVarP(&p.namespace, "namespace", "n", "",
		"namespace of the IAMBinding; that of the kubeconfig's context otherwise")
	return p.Command(cmd, "the cluster with the IAMBinding", p.run)
}

func (p *trustPolicy) run(ctx context.Context, cmd *cobra.Command) error {
	if p.serverRole == "" {
		return cli.Usagef("--server-role is missing: pass the ARN of the server's own role")
	}
	if _, err := aws.ParseRoleARN(p.serverRole); err != nil {
		return cli.Usagef("--server-role %.640q is not the ARN of a role: %v", p.serverRole, err)
	}
	if errs := validation.IsDNS1123Label(p.cluster); len(errs) > 0 {
		return cli.Usagef("--cluster %.100q: pass the --cluster of the server: %s", p.cluster, errs[0])
	}
	b, err := p.read(ctx, cmd.Flags().Arg(0))
	if err != nil {
		return err
	}
	policy, err := server.TrustPolicy(p.cluster, p.serverRole, b)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	return p.output.Print(cmd, json.RawMessage(policy), nil)
}

func (p *trustPolicy) read(ctx context.Context, name string) (*v1alpha1.IAMBinding, error) {
	config, namespace, err := p.Config()
	if err != nil {
		return nil, err
	}
	c, err := cli.NewClient(config)
	if err != nil {
		return nil, err
	}
	b, key := &v1alpha1.IAMBinding{}, client.ObjectKey{Namespace: cmp.Or(p.namespace, namespace), Name: name}
	err = c.Get(ctx, key, b)
	if meta.IsNoMatchError(err) {
		return nil, cli.Problem(auth.ErrMisconfigured,
			"install the IAM credentials provider there, or pick another cluster with --context",
			"the cluster has no IAMBindings")
	}
	return b, cli.AnswerOf(err, fmt.Sprintf("read IAMBinding %q", key))
}
