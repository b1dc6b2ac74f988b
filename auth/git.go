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

// GetGitCredentials returns credentials for the Git repository of WithGitURL, which has to be an https URL. The provider
// refuses hosts that are not its own, with ErrMisconfigured: no other host receives the credentials.
//
// Policy, cache and errors are those of GetAccessToken. Cached credentials cost one lookup. It is safe for concurrent use.
func GetGitCredentials(ctx context.Context, provider Provider, opts ...Option) (*GitCredentials, error) {
	token, err := getDerived(ctx, provider, opGit, gitDerivation{}, "", nil, opts)
	return as[*GitCredentials](token, err)
}

type gitDerivation struct{}

func (gitDerivation) prepare(c *call) error {
	p, ok := c.provider.(provider.GitCredentialsProvider)
	if !ok {
		return c.incapable("Git repositories")
	}
	if err := checkGitURL(c.opts.GitURL); err != nil {
		return err
	}
	input, err := p.ParseGitRepository(c.opts.GitURL, &c.opts.Options)
	return c.dependOn(input, err, p.GetAccessTokenOptionsForGitRepository)
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
	return misconfigured("use the repository's https:// URL", "the Git URL %q is refused: %s", redact.URL(u.String()), problem)
}

func validHostName(s string) bool {
	valid, _ := address.HostName(s)
	return valid
}

func (gitDerivation) addKey(c *call) { c.key.buf = appendInput(c.key.buf, inputGit, c.input) }

func (gitDerivation) derive(ctx context.Context, c *call) (Token, error) {
	p, ok := c.provider.(provider.GitCredentialsProvider)
	if !ok {
		return nil, c.incapable("Git repositories")
	}
	return p.NewGitCredentials(ctx, c.input, c.tokens[0], &c.opts.Options)
}
