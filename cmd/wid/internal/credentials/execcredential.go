package credentials

import (
	"context"
	"encoding/pem"
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/inventory"
)

// NewExecCredential returns wid exec-credential.
func (a *App) NewExecCredential() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:     "exec-credential",
		Short:   "Act as an exec plugin of kubectl, client-go and ClusterProfiles; wid kubeconfig writes a kubeconfig that uses it",
		Example: "  wid exec-credential --service-account tenant-a/app --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod",
	}
	t.bind(cmd)
	cmd = a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) { return id.exec(ctx, t) })
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = &once{Value: f.Value}
		}
	})
	return cmd
}

// once refuses a second value. Programs that append arguments of one cluster to a shared list would otherwise replace those of another.
type once struct {
	pflag.Value
	isSet bool
}

func (o *once) Set(value string) error {
	if o.isSet {
		return errors.New("it is given twice")
	}
	o.isSet = true
	return o.Value.Set(value)
}

func (id *Identity) exec(ctx context.Context, t target) ([]byte, error) {
	info, err := plugin.ParseExecInfo(os.Getenv(plugin.ExecInfoVariable))
	if err != nil {
		return nil, err
	}
	ca, err := readNamed("cluster-ca-file", t.caFile, "name a PEM file with the cluster's CA")
	if err != nil {
		return nil, err
	}
	s, provider, err := id.resolveNamed(ctx)
	if err != nil {
		return nil, err
	}
	if info.Cluster != nil {
		bound := inventory.IsBound(provider, append(slices.Clip(s.opts), auth.WithClusterAddress(info.Cluster.Server))...)
		if ca, err = id.checkCluster(&t, ca, info.Cluster, bound); err != nil {
			return nil, err
		}
	}
	c, err := id.get(ctx, s, forCluster(provider, t, ca))
	if err != nil {
		return nil, err
	}
	return info.Encode(c.BearerToken, c.Expires)
}

// checkCluster makes sure that a credential goes to the cluster that the flags name, whatever became of the kubeconfig. It completes
// the target from the kubeconfig. The provider's API verifies an address that comes with a resource, unless CA data makes that
// lookup unnecessary. Bound credentials are of use to no cluster but that of the kubeconfig.
func (id *Identity) checkCluster(t *target, ca []byte, kubeconfig *plugin.ExecCluster, bound bool) ([]byte, error) {
	asked, err := provider.ParseClusterAddress(kubeconfig.Server)
	if err != nil {
		return nil, err
	}
	t.presented = kubeconfig.CAData
	switch {
	case t.address != "":
		own, err := provider.ParseClusterAddress(t.address)
		if err != nil {
			return nil, err
		}
		if own != asked {
			return nil, &auth.Error{Reason: auth.ErrDenied, Message: "the kubeconfig's server is not the one of --cluster-address",
				Remedy: "write the kubeconfig again with wid kubeconfig"}
		}
		if t.resource == "" && len(ca) == 0 {
			ca = kubeconfig.CAData
		}
		return ca, nil
	case len(ca) > 0:
		return nil, cli.Usagef("--cluster-ca-file does not name a cluster: pass --cluster-address too")
	case t.resource == "" && id.isOwn():
		return nil, cli.Usagef("wid's own identity is for clusters that a flag names, not only a kubeconfig: pass --cluster or --cluster-address")
	}
	t.address = kubeconfig.Server
	if t.resource != "" {
		return nil, nil
	}
	return t.takeFrom(kubeconfig, bound)
}

// takeFrom serves a cluster that no flag names. A tenant may have written it, such as in a ClusterProfile. So the provider's API has to
// confirm it, unless its API server alone accepts the credential.
func (t *target) takeFrom(kubeconfig *plugin.ExecCluster, bound bool) (ca []byte, err error) {
	const message = "no flag names the cluster, and its server may be anyone's: "
	switch {
	case bound && kubeconfig.ProxyURL == "":
		return kubeconfig.CAData, nil
	case bound: // with a CA of its own, the proxy could read the token
		return nil, &auth.Error{Reason: auth.ErrDenied, Message: message + "its proxy-url and its CA come from the same author",
			Remedy: "pass --cluster-address, or remove the proxy-url"}
	}
	if t.resource, err = inventory.ClusterName(kubeconfig.Config); err == nil && t.resource == "" && t.name == "" {
		err = &auth.Error{Reason: auth.ErrDenied, Message: message + "other clusters accept the credential too",
			Remedy: "pass --cluster or --cluster-address, or set clusterName in its extension " + inventory.ExtensionName}
	}
	return nil, err
}

// checkPresented refuses a caller that trusts more than the cluster's own CA: the server could be an attacker's.
func (t *target) checkPresented(known []byte) error {
	own := certificatesOf(known)
	for _, certificate := range certificatesOf(t.presented) {
		if !slices.Contains(own, certificate) {
			return &auth.Error{Reason: auth.ErrDenied, Message: "a certificate in certificate-authority-data is not one of the cluster's own",
				Remedy: "set certificate-authority-data to the cluster's CA, or name address and CA with --cluster-address and --cluster-ca-file"}
		}
	}
	return nil
}

func certificatesOf(data []byte) (all []string) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return all
		}
		all = append(all, string(block.Bytes))
	}
}
