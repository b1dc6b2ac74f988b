// Package podcmd is wid pod-identity.
package podcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/server"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// NewPodIdentity returns wid pod-identity.
func NewPodIdentity() *cobra.Command {
	return cli.Group("pod-identity", "AWS credentials of pods (IAMBinding)", newTrustPolicy())
}

type trustPolicy struct {
	cli.Side
	namespace, cluster, serverRole   string
	role, serviceAccount, externalID string // of a binding that is not read
	output                           *cli.Output
}

func newTrustPolicy() *cobra.Command {
	p := &trustPolicy{}
	cmd := &cobra.Command{
		Use:     "trust-policy [BINDING]",
		Short:   "Print the trust policy that the IAM role of an IAMBinding needs",
		Long:    "Print the trust policy as JSON. It trusts the server for the pods of the ServiceAccount. Without BINDING it asks no cluster.",
		Example: "  wid pod-identity trust-policy -n team-a reporting --cluster prod --server-role \"$SERVER_ROLE\"",
	}
	f := cmd.Flags()
	p.output = cli.OutputFlag(cmd, "json", "yaml")
	f.StringVar(&p.serverRole, "server-role", "", "ARN of the server's own role; required")
	f.StringVar(&p.cluster, "cluster", "", "value of --cluster of the server; required")
	f.StringVarP(&p.namespace, "namespace", "n", "", "namespace of the IAMBinding; that of the kubeconfig's context otherwise")
	f.StringVar(&p.role, "role", "", "ARN of the role, without BINDING")
	f.StringVar(&p.serviceAccount, "service-account", "", "namespace/name of the ServiceAccount, without BINDING")
	f.StringVar(&p.externalID, "external-id", "", "external ID of the IAMBinding, without BINDING")
	cmd = p.Command(cmd, "the cluster with the IAMBinding", p.run)
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
}

func (p *trustPolicy) run(ctx context.Context, cmd *cobra.Command) error {
	if p.serverRole == "" {
		return cli.Usagef("--server-role is missing: pass the ARN of the server's own role")
	}
	if err := roleFlag("--server-role", p.serverRole); err != nil {
		return err
	}
	if errs := validation.IsDNS1123Label(p.cluster); len(errs) > 0 {
		return cli.Usagef("--cluster %.100q: pass the --cluster of the server: %s", p.cluster, errs[0])
	}
	b, err := p.binding(ctx, cmd.Flags().Args())
	if err != nil {
		return err
	}
	policy, err := server.TrustPolicy(p.cluster, p.serverRole, b)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	return p.output.Print(cmd, json.RawMessage(policy), nil)
}

func (p *trustPolicy) binding(ctx context.Context, args []string) (*v1alpha1.IAMBinding, error) {
	described := p.role != "" || p.serviceAccount != "" || p.externalID != ""
	switch {
	case len(args) == 1 && described:
		return nil, cli.Usagef("pass BINDING, or --role and --service-account, and not both")
	case len(args) == 1:
		return p.read(ctx, args[0])
	}
	if p.role == "" && p.serviceAccount == "" {
		return nil, cli.Usagef("name a BINDING, or pass --role and --service-account namespace/name")
	}
	if p.role == "" {
		return nil, cli.Usagef("--role is missing: pass the ARN of the role that pods get")
	}
	if err := roleFlag("--role", p.role); err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(p.serviceAccount, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, cli.Usagef("--service-account %.400q: pass the ServiceAccount as namespace/name", p.serviceAccount)
	}
	if p.namespace != "" && p.namespace != namespace {
		return nil, cli.Usagef("--namespace %.100q and --service-account %.400q name different namespaces", p.namespace, p.serviceAccount)
	}
	return &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1alpha1.IAMBindingSpec{
		AWS:               v1alpha1.AWSRole{RoleARN: p.role, ExternalID: p.externalID},
		ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: name}}}, nil
}

func roleFlag(flag, arn string) error {
	if _, err := aws.ParseRoleARN(arn); err != nil {
		return cli.Usagef("%s %.640q is not the ARN of a role: %v", flag, arn, err)
	}
	return nil
}

func (p *trustPolicy) read(ctx context.Context, name string) (*v1alpha1.IAMBinding, error) {
	config, namespace, err := p.ConfigAndNamespace()
	if err != nil {
		return nil, err
	}
	if p.namespace != "" {
		namespace = p.namespace
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	b := &v1alpha1.IAMBinding{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err == nil {
		err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, b)
	}
	if meta.IsNoMatchError(err) {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Message: "the cluster has no IAMBindings",
			Remedy: "install the IAM credentials provider there, pick another cluster with --context, or leave BINDING out and pass --role and --service-account"}
	}
	return b, cli.AnswerOf(err, fmt.Sprintf("read IAMBinding %q", namespace+"/"+name))
}
