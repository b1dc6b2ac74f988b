package main

import (
	"context"
	"encoding/hex"
	"os"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
)

// target is the cluster that access is wanted to.
type target struct {
	resource, address, caFile, name string
}

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.resource, "cluster", "", "full name of the cluster in the provider's API, such as its ARN")
	f.StringVar(&t.address, "cluster-address", "", "https address of the cluster's API server")
	f.StringVar(&t.caFile, "cluster-ca-file", "", "PEM file with the cluster's certificate authority")
	f.StringVar(&t.name, "cluster-name", "", "name of the EKS cluster, if it is given by address and certificate authority")
}

func (t *target) options(ca []byte) []auth.Option {
	var opts []auth.Option
	if t.resource != "" {
		opts = append(opts, auth.WithClusterResource(t.resource))
	}
	if t.address != "" {
		opts = append(opts, auth.WithClusterAddress(t.address))
	}
	if len(ca) > 0 {
		opts = append(opts, auth.WithCAData(string(ca)))
	}
	if t.name != "" {
		opts = append(opts, aws.WithClusterName(t.name))
	}
	return opts
}

func (t *target) ca() ([]byte, error) {
	if t.caFile == "" {
		return nil, nil
	}
	content, err := readBounded(t.caFile)
	if err != nil {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: err,
			Message: "--cluster-ca-file cannot be read: " + oneLine(err.Error()),
			Remedy:  "name a PEM file with the cluster's certificate authority"}
	}
	return content, nil
}

func (a *app) newExecCredential() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "exec-credential",
		Short: "Be an exec plugin of kubectl and client-go; wid kubeconfig writes a kubeconfig that uses it",
		Long: "Be an exec plugin of kubectl and client-go (client.authentication.k8s.io, v1 and v1beta1). The cluster is the one\n" +
			"that the kubeconfig names, if its exec section says provideClusterInfo; wid kubeconfig writes such a one.",
		Example: "  wid exec-credential --provider aws --service-account tenant-a/app \\\n" +
			"    --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod",
		Args: cobra.NoArgs,
	}
	id := a.newIdentity(cmd)
	t.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.exec(ctx, cmd, t) })
	}
	return cmd
}

func (id *identity) exec(ctx context.Context, cmd *cobra.Command, t target) ([]byte, error) {
	info, err := plugin.ParseExecInfo(os.Getenv(plugin.ExecInfoVariable))
	if err != nil {
		return nil, err
	}
	id.cluster = t
	ca, err := t.ca()
	if err != nil {
		return nil, err
	}
	if c := info.Cluster; c != nil {
		if t.address, err = sameCluster(t.address, c.Server); err != nil {
			return nil, err
		}
		if t.resource == "" && len(ca) == 0 {
			ca = c.CAData
		}
	}
	s, provider, err := id.resolveNamed(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if info.Cluster != nil && s.serviceAccount == nil {
		// The kubeconfig names a cluster too, so the Policy has to judge that.
		s.opts = append(s.opts, auth.WithOwner(cache.InvolvedObject{Kind: "kubeconfig", Name: info.Cluster.Server}))
	}
	c, err := id.access(ctx, s, provider, t, ca)
	if err != nil {
		return nil, err
	}
	return info.Encode(c.Token, c.Expires)
}

// sameCluster makes sure that a credential goes to the cluster that the flags name, whatever became of the kubeconfig.
func sameCluster(flag, server string) (string, error) {
	asked, err := auth.ParseClusterAddress(server)
	if err != nil || flag == "" {
		return server, err
	}
	own, err := auth.ParseClusterAddress(flag)
	if err == nil && own != asked {
		err = &auth.Error{Reason: auth.ErrDenied, Message: "the kubeconfig's server is not the one of --cluster-address",
			Remedy: "write the kubeconfig again with wid kubeconfig"}
	}
	return flag, err
}

// access is auth.GetRESTConfig through the cache on disk.
func (id *identity) access(ctx context.Context, s *source, provider auth.Provider, t target, ca []byte,
) (*credential, error) {
	r := request{Kind: "cluster", Provider: provider.GetName(),
		Target: []string{t.resource, t.address, hex.EncodeToString(ca), t.name}}
	return id.get(ctx, s, r, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		config, err := auth.GetRESTConfig(ctx, provider, append(opts[:len(opts):len(opts)], t.options(ca)...)...)
		if err != nil {
			return nil, err
		}
		return &credential{Provider: provider.GetName(), Token: config.BearerToken(), Expires: config.ExpiresAt()}, nil
	})
}
