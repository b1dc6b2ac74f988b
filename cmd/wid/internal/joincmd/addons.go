package joincmd

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// addOnAuth keeps the auth type of the add-ons that the cluster's agent, also
// Open Cluster Management's, has registered. Another auth type would invalidate
// their tokens. A cluster without acceptance or without a credential has none.
func (j *join) addOnAuth(ctx context.Context, cmd *cobra.Command, local client.Client) error {
	if !j.accepted || j.options.AddOnAuthType == registration.AuthTypeToken {
		return nil
	}
	secret, err := agentSecret(ctx, local, j.options.Namespace, j.options.Cluster)
	if err != nil || len(secret.Data) == 0 {
		return err
	}
	names, err := j.addOns(ctx, secret)
	return j.keepAddOnAuth(cmd, names, err)
}

// addOns returns the names of the cluster's add-ons by auth type.
func (j *join) addOns(ctx context.Context, secret *corev1.Secret) (map[string][]string, error) {
	c, _, err := j.asAgent(secret)
	if err != nil {
		return nil, err
	}
	return addOnsOf(ctx, c, j.options.Cluster)
}

// asAgent returns a client of the hub that this command has verified, whatever
// address the Secret holds, with the credential of the Secret.
func (j *join) asAgent(secret *corev1.Secret) (c client.Client, user clientcmdv1.AuthInfo, err error) {
	user, err = kubeconfig.User(secret.Data[registration.SecretKeyKubeconfig])
	if err == nil {
		user, err = kubeconfig.Inline(user, secret.Data)
	}
	if err != nil {
		return nil, user, err
	}
	hub := kubeconfig.Hub{Cluster: clientcmdv1.Cluster{Server: j.options.Hub.Server,
		CertificateAuthorityData: j.options.Hub.CAData}}
	c, err = cli.NewClient(hub.Config(user))
	return c, user, err
}

func addOnsOf(ctx context.Context, hub client.Client, cluster string) (map[string][]string, error) {
	names := map[string][]string{}
	api, err := addon.Discover(hub.RESTMapper())
	if meta.IsNoMatchError(err) {
		return names, nil
	}
	if err != nil {
		return nil, err
	}
	return names, cli.Each(ctx, hub, api.NewList(), func(a client.Object) {
		authType := authTypeOf(addon.StatusOf(a))
		names[authType] = append(names[authType], a.GetName())
	}, client.InNamespace(cluster))
}

// authTypeOf returns csr for an add-on whose agent declares nothing, as older
// agents do.
func authTypeOf(s addon.Status) string {
	for _, item := range s.Items {
		if item.Type == ocm.KubeClient && item.Driver == registration.AuthTypeToken {
			return item.Driver
		}
	}
	return registration.AuthTypeCSR
}

// keepAddOnAuth sets the auth type that all add-ons have. The flag decides
// instead, and is required where that is not known.
func (j *join) keepAddOnAuth(cmd *cobra.Command, names map[string][]string, err error) error {
	const flag = "--" + install.AddOnAuthFlag
	tokens := names[registration.AuthTypeToken]
	switch {
	case cmd.Flags().Changed(install.AddOnAuthFlag):
		if err != nil {
			cmd.PrintErrf(
				"wid: warning: it is not known whether add-ons of cluster %q have tokens, which end without %s=%s: %s\n",
				j.options.Cluster, flag,
				registration.AuthTypeToken, cli.OneLine(kubeerror.Message(err)))
		} else if len(tokens) > 0 {
			cmd.PrintErrf("wid: warning: the tokens of these add-ons end, since %s is not %s: %q\n", flag,
				registration.AuthTypeToken, tokens)
		}
		return nil
	case err != nil:
		return cli.Usagef(
			"pass %s, %s or %s, as the agent before had it: the add-ons of cluster %q on the hub cannot be read with Secret %q: %s", flag,
			registration.AuthTypeCSR, registration.AuthTypeToken, j.options.Cluster, ocm.HubKubeconfigSecret,
			cli.OneLine(kubeerror.Message(err)))
	case len(names) > 1:
		return cli.Usagef(
			"pass %s: the add-ons of cluster %q have several auth types, and one agent has one. With %s these get a new credential: %q. With %s these: %q", flag,
			j.options.Cluster, registration.AuthTypeToken, names[registration.AuthTypeCSR], registration.AuthTypeCSR, tokens)
	}
	for j.options.AddOnAuthType = range names {
		return cli.Say(cmd, "The add-ons of cluster %q keep the auth type %q", j.options.Cluster, j.options.AddOnAuthType)
	}
	return nil
}
