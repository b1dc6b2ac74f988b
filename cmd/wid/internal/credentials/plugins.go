package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// read reads the request of the program that runs wid from standard input.
func read[T any](ctx context.Context, id *Identity, parse func(context.Context, io.Reader) (T, error)) (r T, err error) {
	if id.TokenStdin {
		return r, cli.Usagef("standard input has the request, so --token-stdin cannot be used here; use --token-file")
	}
	in, err := cli.InputOf(id.cmd)
	if err != nil {
		return r, err
	}
	return parse(ctx, in)
}

// serve answers with what encode makes of the credential, or drops the credential if the action is erase.
func (id *Identity) serve(ctx context.Context, action string, r request, encode func(c *credential) ([]byte, error)) ([]byte, error) {
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

// NewDockerCredential returns wid docker-credential.
func (a *App) NewDockerCredential() *cobra.Command {
	checkArgs := cli.Exactly(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs))
	cmd := a.command(&cobra.Command{
		Use:   "docker-credential get|store|erase|list",
		Short: "Act as a Docker credential helper, for ECR, ACR and Artifact Registry",
		Long: "Act as a credential helper of Docker, podman and go-containerregistry. They run docker-credential-wid, a link to wid, without\n" +
			"flags: set environment variables instead.",
		Example:   "  echo 123456789012.dkr.ecr.eu-central-1.amazonaws.com | wid docker-credential get --service-account tenant-a/app",
		Args:      func(cmd *cobra.Command, args []string) error { return tellDocker(cmd, checkArgs(cmd, args)) },
		ValidArgs: []string{"get", "store", "erase", "list"},
	}, docker)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return tellDocker(cmd, run(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return tellDocker(cmd, cli.Usagef("%v; see %s --help", err, cmd.CommandPath()))
	})
	return cmd
}

// tellDocker writes the message to standard output, which docker shows. For a foreign registry it writes the words after which docker
// continues without credentials.
func tellDocker(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	message := "wid: " + err.Error()
	if errors.Is(err, errNotOurs) {
		message = plugin.DockerNotFound
	}
	_, _ = cmd.OutOrStdout().Write([]byte(message + "\n")) // stderr has the message too
	return &cli.PlainError{Err: err}
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

// NewGitCredential returns wid git-credential.
func (a *App) NewGitCredential() *cobra.Command {
	return a.command(&cobra.Command{
		Use:       "git-credential get|store|erase|capability",
		Short:     "Act as a Git credential helper, for CodeCommit, Azure DevOps and Secure Source Manager",
		Example:   "  git config --global credential.https://dev.azure.com.helper '!wid git-credential --service-account tenant-a/app'",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"get", "store", "erase", "capability"},
	}, git)
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

// NewCredentialProcess returns wid credential-process.
func (a *App) NewCredentialProcess() *cobra.Command {
	return a.command(&cobra.Command{
		Use:     "credential-process",
		Short:   "Act as the credential_process of the AWS SDKs and of the aws command",
		Example: "  # in ~/.aws/config\n  credential_process = wid credential-process --service-account tenant-a/app --region eu-central-1",
	}, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
		switch {
		case id.Provider != "" && id.Provider != aws.ProviderName:
			return nil, cli.Usagef("credential_process is for AWS; leave --provider out")
		case id.isOwn(): // the SDK's own chain would find this very setting and call wid again
			return nil, cli.Usagef("pass --service-account namespace/name, or --token-file")
		}
		return id.serve(ctx, "get", forAccess(&id.aws), func(c *credential) ([]byte, error) { return c.Keys.Encode() })
	})
}

// NewKubeletProvider returns wid kubelet-credential-provider.
func (a *App) NewKubeletProvider() *cobra.Command {
	var node bool
	cmd := &cobra.Command{
		Use:     "kubelet-credential-provider",
		Short:   "Act as a credential provider of the kubelet, with the identity of the pod's ServiceAccount",
		Example: "  # in the CredentialProviderConfig\n  args: [kubelet-credential-provider, --no-cache]",
	}
	cmd.Flags().BoolVar(&node, "node-identity", false, "use the node's own identity if the kubelet sends no token of a ServiceAccount")
	return a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) { return id.kubelet(ctx, node) })
}

// kubelet never falls back to the node: it may do more than any pod on it.
func (id *Identity) kubelet(ctx context.Context, node bool) ([]byte, error) {
	if !id.isOwn() {
		return nil, cli.Usagef("the kubelet says whose identity it is: leave --service-account, --token-file and --token-stdin out")
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
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Message: "the kubelet's request holds no token of a ServiceAccount",
			Remedy: "set tokenAttributes in the CredentialProviderConfig, or pass --node-identity to pull as the node"}
	}
	return id.serve(ctx, "get", forRegistry(provider, host), func(c *credential) ([]byte, error) {
		return plugin.EncodeKubeletResponse(id.puller, c.Username, c.Password, c.Expires)
	})
}
