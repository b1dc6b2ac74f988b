package auth

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

const opGit = "get Git credentials"

// GetGitCredentials returns credentials for the Git repository of [WithGitURL],
// which has to be an https URL. The provider refuses hosts that are not its
// own, with [ErrMisconfigured]: no other host receives the credentials.
//
// Policy, cache and errors work as in [GetAccessToken]. Cached credentials cost
// one lookup. It is safe for concurrent use.
func GetGitCredentials(ctx context.Context, provider Provider, opts ...Option) (*GitCredentials, error) {
	return as[*GitCredentials](get(ctx, provider, opGit, opts, gitRepository))
}

func gitRepository(p Provider, o *Options) (*product, error) {
	g, ok := p.(provider.GitCredentialsProvider)
	if !ok {
		return nil, incapable(p, "Git repositories")
	}
	if err := checkGitURL(o.GitURL); err != nil {
		return nil, err
	}
	input, err := g.ParseGitRepository(o.GitURL, &o.Options)
	return newProduct("git", p, o, input, err, g.GetAccessTokenOptionsForGitRepository, g.NewGitCredentials)
}

// checkGitURL applies the rules that hold for all providers.
func checkGitURL(u *url.URL) error {
	if u == nil {
		return misconfigured("give the URL", "there is no URL of a Git repository").About("auth.WithGitURL")
	}
	problem := ""
	port := u.Port()
	switch {
	case u.Scheme != "https":
		problem = fmt.Sprintf("its scheme is %.20q", u.Scheme)
	case u.User != nil:
		problem = "it holds a user name and a password"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawFragment != "" || u.Opaque != "":
		problem = "it holds a query or a fragment"
	case strings.HasSuffix(u.Host, ":") || !validHostName(u.Hostname()) || port != "" && !address.ValidPort(port):
		problem = "it has no valid host"
	default:
		return nil
	}
	return misconfigured("use the repository's https:// URL", "the Git URL %q is refused: %s",
		redact.URL(u.String()), problem)
}

func validHostName(s string) bool {
	valid, _ := address.HostName(s)
	return valid
}
