package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// NewDockerCredential returns wid docker-credential.
func (a *App) NewDockerCredential() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docker-credential get|store|erase|list",
		Short: "Act as a Docker credential helper, for ECR, ACR and Artifact Registry",
		Long: "Act as a credential helper of Docker, podman and go-containerregistry. They run docker-credential-wid, a link to wid, without\n" +
			"flags: set environment variables instead.",
		Example:   "  echo 123456789012.dkr.ecr.eu-central-1.amazonaws.com | wid docker-credential get --service-account tenant-a/app",
		Args:      cli.Exactly(cobra.ExactArgs(1)),
		ValidArgs: []string{"get", "store", "erase", "list"},
	}
	id := a.NewIdentity(cmd)
	checkArgs := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error { return tellDocker(cmd, checkArgs(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return tellDocker(cmd, cli.Usagef("%v; see %s --help", err, cmd.CommandPath()))
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return tellDocker(cmd, id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.docker(ctx, cmd, args[0]) }))
	}
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

func (id *Identity) docker(ctx context.Context, cmd *cobra.Command, action string) ([]byte, error) {
	if id.TokenStdin {
		return nil, cli.Usagef("standard input has the registry's name, so --token-stdin cannot be used here; use --token-file")
	}
	switch action {
	case "list":
		return []byte("{}\n"), nil // credentials exist on request only
	case "store":
		return nil, cli.Usagef("credentials are not stored but made when they are needed; there is no need to log in")
	case "get", "erase":
	default:
		return nil, cli.Usagef("a docker credential helper does get, store, erase and list, not %.100q", action)
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return nil, err
	}
	host, err := plugin.ReadDockerServer(ctx, in)
	if err != nil {
		return nil, err
	}
	provider, err := id.atRegistry(host)
	if err != nil {
		return nil, err
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if action == "erase" {
		return nil, id.invalidate(s, registryRequest(provider, host))
	}
	c, err := id.registry(ctx, s, provider, host)
	if err != nil {
		return nil, err
	}
	return plugin.EncodeDockerCredentials(host, c.Username, c.Password)
}

func registryRequest(provider auth.Provider, repository string) request {
	return request{Kind: "registry", Provider: provider.GetName(), Target: []string{repository}}
}

// registry is auth.GetArtifactRegistryCredentials through the cache on disk.
func (id *Identity) registry(ctx context.Context, s *Source, provider auth.Provider, repository string,
) (*credential, error) {
	mint := func(ctx context.Context, opts []auth.Option) (*credential, error) {
		r, err := auth.GetArtifactRegistryCredentials(ctx, provider, repository, opts...)
		if err != nil {
			return nil, err
		}
		login, err := r.Authorization()
		if err != nil {
			return nil, err
		}
		return &credential{Provider: provider.GetName(), Username: login.Username, Password: login.Password, Expires: r.ExpiresAt()}, nil
	}
	return id.get(ctx, s, registryRequest(provider, repository), mint)
}

// NewGitCredential returns wid git-credential.
func (a *App) NewGitCredential() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "git-credential get|store|erase|capability",
		Short:     "Act as a Git credential helper, for CodeCommit, Azure DevOps and Secure Source Manager",
		Example:   "  git config --global credential.https://dev.azure.com.helper '!wid git-credential --service-account tenant-a/app'",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"get", "store", "erase", "capability"},
	}
	id := a.NewIdentity(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.git(ctx, cmd, args[0]) })
	}
	return cmd
}

func (id *Identity) git(ctx context.Context, cmd *cobra.Command, action string) ([]byte, error) {
	if id.TokenStdin {
		return nil, cli.Usagef("standard input has git's request, so --token-stdin cannot be used here; use --token-file")
	}
	switch action {
	case "capability":
		return plugin.EncodeGitCapabilities(), nil
	case "store":
		return nil, nil // git offers every credential that worked; it is kept already
	case "get", "erase":
	default:
		return nil, nil // helpers ignore actions that they do not know (gitcredentials(7))
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return nil, err
	}
	r, err := plugin.ReadGitRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	u, err := r.URL()
	if err != nil {
		return nil, err
	}
	provider, err := id.gitProvider(&u)
	if err != nil {
		return nil, err
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if action == "erase" {
		return nil, id.invalidate(s, gitRequest(provider, &u))
	}
	c, err := id.repository(ctx, s, provider, &u)
	if err != nil {
		return nil, err
	}
	return plugin.EncodeGitCredential(r, plugin.GitCredential{
		Username: c.Username, Password: c.Password, BearerToken: c.Token, Expires: c.Expires})
}

// gitProvider explains the missing setting useHttpPath.
func (id *Identity) gitProvider(u *url.URL) (auth.Provider, error) {
	ours := isCodeCommit(u)
	if ours && u.Path == "/" {
		return nil, &auth.Error{Provider: aws.ProviderName, Reason: auth.ErrMisconfigured,
			Message: "git did not say which repository, which CodeCommit needs to know",
			Remedy:  fmt.Sprintf("git config --global credential.https://%s.useHttpPath true", u.Host)}
	}
	if ours && id.Provider == "" {
		return &id.aws, nil // its error explains the path
	}
	return id.atRepository(u)
}

// isCodeCommit reports whether the host is one of CodeCommit, whose credentials are for one repository each.
func isCodeCommit(u *url.URL) bool {
	somewhere := *u
	somewhere.Path, somewhere.RawPath = "/v1/repos/any", ""
	_, err := (&aws.Provider{}).ParseGitRepository(&somewhere, &auth.Options{})
	return u.Scheme == "https" && u.User == nil && err == nil
}

func gitRequest(provider auth.Provider, u *url.URL) request {
	return request{Kind: "git", Provider: provider.GetName(), Target: []string{u.String()}}
}

// repository is auth.GetGitCredentials through the cache on disk.
func (id *Identity) repository(ctx context.Context, s *Source, provider auth.Provider, u *url.URL) (*credential, error) {
	return id.get(ctx, s, gitRequest(provider, u), func(ctx context.Context, opts []auth.Option) (*credential, error) {
		g, err := auth.GetGitCredentials(ctx, provider, append(opts[:len(opts):len(opts)], auth.WithGitURL(*u))...)
		if err != nil {
			return nil, err
		}
		return &credential{Provider: provider.GetName(), Username: g.Username(), Password: g.Password(), Token: g.BearerToken(),
			Expires: g.ExpiresAt()}, nil
	})
}

// NewCredentialProcess returns wid credential-process.
func (a *App) NewCredentialProcess() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "credential-process",
		Short:   "Act as the credential_process of the AWS SDKs and of the aws command",
		Example: "  # in ~/.aws/config\n  credential_process = wid credential-process --service-account tenant-a/app --region eu-central-1",
		Args:    cobra.NoArgs,
	}
	id := a.NewIdentity(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.process(ctx, cmd) })
	}
	return cmd
}

func (id *Identity) process(ctx context.Context, cmd *cobra.Command) ([]byte, error) {
	switch {
	case id.Provider != "" && id.Provider != aws.ProviderName:
		return nil, cli.Usagef("credential_process is for AWS; leave --provider out")
	case id.ServiceAccount == "" && !id.HasToken():
		// The SDK's own chain would find this very setting and call wid again.
		return nil, cli.Usagef("pass --service-account namespace/name, or --token-file")
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, err
	}
	c, err := id.accessToken(ctx, s, &id.aws)
	if err != nil {
		return nil, err
	}
	return plugin.EncodeProcessCredentials(plugin.ProcessCredentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretKey,
		SessionToken: c.SessionToken, AccountID: c.AccountID, Expires: c.Expires})
}

// NewKubeletProvider returns wid kubelet-credential-provider.
func (a *App) NewKubeletProvider() *cobra.Command {
	var node bool
	cmd := &cobra.Command{
		Use:     "kubelet-credential-provider",
		Short:   "Act as a credential provider of the kubelet, with the identity of the pod's ServiceAccount",
		Example: "  # in the CredentialProviderConfig\n  args: [kubelet-credential-provider, --no-cache]",
		Args:    cobra.NoArgs,
	}
	id := a.NewIdentity(cmd)
	cmd.Flags().BoolVar(&node, "node-identity", false, "use the node's own identity if the kubelet sends no token of a ServiceAccount")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.kubelet(ctx, cmd, node) })
	}
	return cmd
}

func (id *Identity) kubelet(ctx context.Context, cmd *cobra.Command, node bool) ([]byte, error) {
	if id.HasToken() || id.ServiceAccount != "" {
		return nil, cli.Usagef("the kubelet says whose identity it is: leave --service-account, --token-file and --token-stdin out")
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return nil, err
	}
	r, err := plugin.ReadKubeletRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	_, host, err := plugin.KubeletRegistry(r) // credentials are good for the whole registry
	if err != nil {
		return nil, err
	}
	provider, err := id.atRegistry(host)
	if err != nil {
		return nil, err
	}
	s, err := id.ofPod(ctx, r.ServiceAccountToken, r.ServiceAccountAnnotations, node)
	if err != nil {
		return nil, err
	}
	c, err := id.registry(ctx, s, provider, host)
	if err != nil {
		return nil, err
	}
	return plugin.EncodeKubeletResponse(r, c.Username, c.Password, c.Expires)
}

// ofPod never falls back to the node: it may do more than any pod on it.
func (id *Identity) ofPod(ctx context.Context, token string, annotations map[string]string, node bool) (s *Source, err error) {
	opts, err := id.Options()
	if err != nil {
		return nil, err
	}
	switch {
	case token != "":
		s, err = sourceOfToken(ctx, token, annotations)
	case node:
		s = id.own()
	default:
		err = &auth.Error{Reason: auth.ErrMisconfigured, Message: "the kubelet's request holds no token of a ServiceAccount",
			Remedy: "set tokenAttributes in the CredentialProviderConfig, or pass --node-identity to pull as the node"}
	}
	if err != nil {
		return nil, err
	}
	s.opts = append(opts, s.opts...)
	return s, nil
}
