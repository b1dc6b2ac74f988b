package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
)

func (a *app) newGitCredential() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "git-credential get|store|erase|capability",
		Short: "Be a credential helper of git, for CodeCommit, Azure DevOps and Secure Source Manager",
		Long: "Be a credential helper of git, for CodeCommit, Azure DevOps and Secure Source Manager. An empty helper before it\n" +
			"keeps those for all hosts from being asked first and from keeping what wid hands out.",
		Example: "  git config --global credential.https://git-codecommit.eu-central-1.amazonaws.com.helper ''\n" +
			"  git config --global --add credential.https://git-codecommit.eu-central-1.amazonaws.com.helper \\\n" +
			"    '!wid git-credential --service-account tenant-a/app'\n" +
			"  git config --global credential.https://git-codecommit.eu-central-1.amazonaws.com.useHttpPath true",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"get", "store", "erase", "capability"},
	}
	id := a.newIdentity(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.git(ctx, cmd, args[0]) })
	}
	return cmd
}

func (id *identity) git(ctx context.Context, cmd *cobra.Command, action string) ([]byte, error) {
	if id.tokenStdin {
		return nil, usagef("standard input has git's request, so --token-stdin cannot be used here; use --token-file")
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
	in, err := inputOf(cmd)
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

// gitProvider explains the setting that is forgotten most.
func (id *identity) gitProvider(u *url.URL) (auth.Provider, error) {
	ours := isCodeCommit(u)
	if ours && u.Path == "/" {
		return nil, &auth.Error{Provider: aws.ProviderName, Reason: auth.ErrMisconfigured,
			Message: "git did not say which repository, which CodeCommit needs to know",
			Remedy:  fmt.Sprintf("git config --global credential.https://%s.useHttpPath true", u.Host)}
	}
	if ours && id.provider == "" {
		return id.awsProvider(), nil // which knows best what is wrong with the path
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
func (id *identity) repository(ctx context.Context, s *source, provider auth.Provider, u *url.URL) (*credential, error) {
	return id.get(ctx, s, gitRequest(provider, u), func(ctx context.Context, opts []auth.Option) (*credential, error) {
		g, err := auth.GetGitCredentials(ctx, provider, append(opts[:len(opts):len(opts)], auth.WithGitURL(*u))...)
		if err != nil {
			return nil, err
		}
		return &credential{Provider: provider.GetName(), Username: g.Username(), Password: g.Password(), Token: g.BearerToken(),
			Expires: g.ExpiresAt()}, nil
	})
}
