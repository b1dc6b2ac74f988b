package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
)

func (a *app) newDockerCredential() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docker-credential get|store|erase|list",
		Short: "Be a credential helper of docker, for ECR, ACR and Artifact Registry",
		Long: "Be a credential helper of docker, podman, go-containerregistry and the like, for ECR, ACR and Artifact\n" +
			"Registry. They call docker-credential-wid, a link to wid, without flags: set the environment variables instead.",
		Example: "  ln -s \"$(command -v wid)\" ~/bin/docker-credential-wid\n" +
			"  export WID_SERVICE_ACCOUNT=tenant-a/app\n" +
			"  # in ~/.docker/config.json:\n" +
			"  #   \"credHelpers\": {\"123456789012.dkr.ecr.eu-central-1.amazonaws.com\": \"wid\"}\n" +
			"  echo 123456789012.dkr.ecr.eu-central-1.amazonaws.com | wid docker-credential get --service-account tenant-a/app",
		Args:      exactly(cobra.ExactArgs(1)),
		ValidArgs: []string{"get", "store", "erase", "list"},
	}
	id := a.newIdentity(cmd)
	checkArgs := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error { return tellDocker(cmd, checkArgs(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return tellDocker(cmd, usagef("%v; see %s --help", err, cmd.CommandPath()))
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return tellDocker(cmd, id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.docker(ctx, cmd, args[0]) }))
	}
	return cmd
}

// dockerError ends the program with the code that docker's own helpers have.
type dockerError struct{ error }

func (e *dockerError) Unwrap() error { return e.error }

// tellDocker puts the message where docker looks for it: it shows what a helper that fails writes to standard output. No
// message is JSON. For a registry of somebody else's docker goes on without credentials, if it is told so in these words.
func tellDocker(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	message := "wid: " + err.Error()
	if errors.Is(err, errNotOurs) {
		message = plugin.DockerNotFound
	}
	_, _ = cmd.OutOrStdout().Write([]byte(message + "\n")) // there is nobody else to tell
	return &dockerError{err}
}

func (id *identity) docker(ctx context.Context, cmd *cobra.Command, action string) ([]byte, error) {
	if id.tokenStdin {
		return nil, usagef("standard input has the registry's name, so --token-stdin cannot be used here; use --token-file")
	}
	switch action {
	case "list":
		return []byte("{}\n"), nil // credentials exist when somebody asks for them
	case "store":
		return nil, usagef("credentials are not stored but made when they are needed; there is no need to log in")
	case "get", "erase":
	default:
		return nil, usagef("a docker credential helper does get, store, erase and list, not %.100q", action)
	}
	in, err := inputOf(cmd)
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
func (id *identity) registry(ctx context.Context, s *source, provider auth.Provider, repository string,
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
		return &credential{Provider: provider.GetName(), Username: login.Username, Password: login.Password,
			Expires: r.ExpiresAt()}, nil
	}
	return id.get(ctx, s, registryRequest(provider, repository), mint)
}
