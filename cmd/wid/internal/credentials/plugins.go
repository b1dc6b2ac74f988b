package credentials

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/clusterprofile"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// read reads the request of the program that runs wid from standard input.
func read[T any](ctx context.Context, id *Identity,
	parse func(context.Context, io.Reader) (T, error)) (r T, err error) {
	in, err := cli.InputOf(id.cmd)
	if err != nil {
		return r, err
	}
	return parse(ctx, in)
}

// serve answers with what encode makes of the credential, or drops the
// credential if the action is erase.
func (id *Identity) serve(ctx context.Context, action string, r request,
	encode func(c *credential) ([]byte, error)) ([]byte, error) {
	s, err := id.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if action == "erase" {
		return nil, id.invalidate(s, r)
	}
	c, err := id.get(ctx, s, r)
	if err != nil {
		return nil, err
	}
	return encode(c)
}

// NewPlugins returns the commands that other programs run.
func (a *App) NewPlugins() []*cobra.Command {
	return []*cobra.Command{
		a.newExecCredential(),
		a.command(&cobra.Command{
			Use:   dockerName + " get|store|erase|list",
			Short: "Act as a Docker credential helper, for ECR, ACR and Artifact Registry",
			Long: "Act as a credential helper of Docker, podman and go-containerregistry. They run docker-credential-wid, a link to wid, without\n" +
				"flags: set environment variables instead.",
			Example:   "  echo 123456789012.dkr.ecr.eu-central-1.amazonaws.com | wid docker-credential get --service-account tenant-a/app",
			Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
			ValidArgs: []string{"get", "store", "erase", "list"},
		}, docker),
		a.command(&cobra.Command{
			Use:       "git-credential get|store|erase|capability",
			Short:     "Act as a Git credential helper, for CodeCommit, Azure DevOps and Secure Source Manager",
			Example:   "  git config --global credential.https://dev.azure.com.helper '!wid git-credential --service-account tenant-a/app'",
			Args:      cobra.ExactArgs(1),
			ValidArgs: []string{"get", "store", "erase", "capability"},
		}, git),
		a.command(&cobra.Command{
			Use:     "credential-process",
			Short:   "Act as the credential_process of the AWS SDKs and of the aws command",
			Example: "  # in ~/.aws/config\n  credential_process = wid credential-process --service-account tenant-a/app --region eu-central-1",
		}, credentialProcess),
		a.NewKubeletProvider(),
	}
}

const dockerName = "docker-credential"

// TellDocker writes the error of docker-credential to standard output, which
// docker shows. For a foreign registry it writes the words after which docker
// continues without credentials. It returns false for other commands.
func TellDocker(cmd *cobra.Command, err error) bool {
	if cmd.Name() != dockerName {
		return false
	}
	message := "wid: " + err.Error()
	if errors.Is(err, errNotOurs) {
		message = plugin.DockerNotFound
	}
	_, _ = cmd.OutOrStdout().Write([]byte(message + "\n")) // stderr has the message too
	return true
}

func docker(ctx context.Context, id *Identity, args []string) ([]byte, error) {
	switch args[0] {
	case "list":
		return []byte("{}\n"), nil // credentials exist on request only
	case "store":
		return nil, cli.Usagef("credentials are not stored but made when they are needed; there is no need to log in")
	}
	host, err := read(ctx, id, plugin.ReadDockerServer)
	if err != nil {
		return nil, err
	}
	provider, err := id.atRegistry(host)
	if err != nil {
		return nil, err
	}
	return id.serve(ctx, args[0], forRegistry(provider, host), func(c *credential) ([]byte, error) {
		return plugin.EncodeDockerCredentials(host, c.Username, c.Password)
	})
}

func git(ctx context.Context, id *Identity, args []string) ([]byte, error) {
	switch args[0] {
	case "get", "erase":
	case "capability":
		return plugin.EncodeGitCapabilities(), nil
	default: // what git offers to store is kept already; helpers ignore unknown actions (gitcredentials(7))
		return nil, nil
	}
	r, err := read(ctx, id, plugin.ReadGitRequest)
	if err != nil {
		return nil, err
	}
	u, err := r.URL()
	if err != nil {
		return nil, err
	}
	if u.Path == "/" && isCodeCommit(u.Host) {
		return nil, &auth.Error{Provider: aws.ProviderName, Reason: auth.ErrMisconfigured,
			Message: "git did not say which repository, which CodeCommit needs to know",
			Remedy:  fmt.Sprintf("git config --global credential.https://%s.useHttpPath true", u.Host)}
	}
	provider, err := id.atRepository(&u)
	if err != nil {
		return nil, err
	}
	return id.serve(ctx, args[0], forRepository(provider, &u), func(c *credential) ([]byte, error) {
		return r.Encode(c.GitCredential)
	})
}

func credentialProcess(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
	switch {
	case id.Provider != "" && id.Provider != aws.ProviderName:
		return nil, cli.Usagef("credential_process is for AWS; leave --provider out")
	case id.isOwn(): // the SDK's own chain would find this very setting and call wid again
		return nil, cli.Usagef("pass --service-account namespace/name, or --token-file")
	}
	return id.serve(ctx, "get", forAccess(&id.aws), func(c *credential) ([]byte, error) { return c.Keys.Encode() })
}

// NewKubeletProvider returns wid kubelet-credential-provider.
func (a *App) NewKubeletProvider() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kubelet-credential-provider",
		Short:   "Act as a credential provider of the kubelet, with the identity of the pod's ServiceAccount",
		Example: "  # in the CredentialProviderConfig\n  args: [kubelet-credential-provider, --no-cache]",
	}
	node := cmd.Flags().Bool("node-identity", false,
		"use the node's own identity if the kubelet sends no token of a ServiceAccount")
	return a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
		return id.kubelet(ctx, *node)
	})
}

// kubelet never falls back to the node: it may do more than any pod on it.
func (id *Identity) kubelet(ctx context.Context, node bool) ([]byte, error) {
	if !id.isOwn() {
		return nil, cli.Usagef("the kubelet says whose identity it is: leave --service-account and --token-file out")
	}
	var err error
	if id.puller, err = read(ctx, id, plugin.ReadKubeletRequest); err != nil {
		return nil, err
	}
	host, err := provider.RegistryHost(id.puller.Image) // credentials are good for the whole registry
	if err != nil {
		return nil, err
	}
	provider, err := id.atRegistry(host)
	if err != nil {
		return nil, err
	}
	if id.isOwn() && !node {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured,
			Message: "the kubelet's request holds no token of a ServiceAccount",
			Remedy:  "set tokenAttributes in the CredentialProviderConfig, or pass --node-identity to pull as the node"}
	}
	return id.serve(ctx, "get", forRegistry(provider, host), func(c *credential) ([]byte, error) {
		return plugin.EncodeKubeletResponse(id.puller, c.Username, c.Password, c.Expires)
	})
}

func (a *App) newExecCredential() *cobra.Command {
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

// once refuses a second value. Programs that append one cluster's arguments to
// a shared list would otherwise replace another cluster's.
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
	ca, err := ReadNamed("cluster-ca-file", t.caFile, "name a PEM file with the cluster's CA")
	if err != nil {
		return nil, err
	}
	s, provider, err := id.resolveNamed(ctx)
	if err != nil {
		return nil, err
	}
	if info.Cluster != nil {
		bound := clusterprofile.IsBound(provider,
			append(slices.Clip(s.opts), auth.WithClusterAddress(info.Cluster.Server))...)
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

// checkCluster makes sure that a credential goes to the cluster that the flags
// name, whatever became of the kubeconfig. It completes the target from the
// kubeconfig. The provider's API verifies an address that comes with a
// resource, unless CA data makes that lookup unnecessary. Only the cluster of
// the kubeconfig accepts bound credentials.
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
			return nil, &auth.Error{Reason: auth.ErrDenied,
				Message: "the kubeconfig's server is not the one of --cluster-address",
				Remedy:  "write the kubeconfig again with wid kubeconfig"}
		}
		if t.resource != "" || len(ca) > 0 {
			return ca, nil
		}
		if kubeconfig.ProxyURL != "" && len(kubeconfig.CAData) > 0 {
			return nil, proxyWithItsCA("", "pass --cluster-ca-file too, or remove the proxy-url")
		}
		return kubeconfig.CAData, nil
	case len(ca) > 0:
		return nil, cli.Usagef("--cluster-ca-file does not name a cluster: pass --cluster-address too")
	case t.resource == "" && id.isOwn():
		return nil, cli.Usagef("wid's own identity is for clusters that a flag names, not only a kubeconfig: " +
			"pass --cluster or --cluster-address")
	}
	t.address = kubeconfig.Server
	if t.resource != "" {
		return nil, nil
	}
	return t.takeFrom(kubeconfig, bound)
}

// takeFrom serves a cluster that no flag names. A tenant may have written it,
// such as in a ClusterProfile. So the provider's API has to confirm it, unless
// its API server alone accepts the credential.
func (t *target) takeFrom(kubeconfig *plugin.ExecCluster, bound bool) (ca []byte, err error) {
	const message = "no flag names the cluster, and its server may be anyone's: "
	switch {
	case bound && kubeconfig.ProxyURL == "":
		return kubeconfig.CAData, nil
	case bound:
		return nil, proxyWithItsCA(message, "pass --cluster-address and --cluster-ca-file, or remove the proxy-url")
	}
	if t.resource, err = clusterprofile.ClusterName(kubeconfig.Config); err == nil && t.resource == "" && t.name == "" {
		err = &auth.Error{Reason: auth.ErrDenied, Message: message + "other clusters accept the credential too",
			Remedy: "pass --cluster or --cluster-address, or set clusterName in its extension " + clusterprofile.ExtensionName}
	}
	return nil, err
}

// proxyWithItsCA refuses a proxy that could read the token, with a CA from the
// author who names the proxy.
func proxyWithItsCA(message, remedy string) error {
	return &auth.Error{Reason: auth.ErrDenied, Remedy: remedy,
		Message: message + "its proxy-url and its CA come from the same author"}
}

// checkPresented refuses a caller that trusts more than the cluster's own CA:
// the server could be an attacker's.
func (t *target) checkPresented(known []byte) error {
	own := certificatesOf(known)
	for _, certificate := range certificatesOf(t.presented) {
		if !slices.Contains(own, certificate) {
			return &auth.Error{Reason: auth.ErrDenied,
				Message: "a certificate in certificate-authority-data is not one of the cluster's own",
				Remedy:  "set certificate-authority-data to the cluster's CA, or name address and CA with --cluster-address and --cluster-ca-file"}
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
