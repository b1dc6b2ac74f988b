package auth

import (
	"context"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

const opGit = "get Git credentials"

// GetGitCredentials returns credentials for the Git repository of WithGitURL, which has to be an https URL. The provider
// refuses hosts that are not its own, with ErrMisconfigured: nobody else gets to see the credentials.
//
// Policy, cache and errors are those of GetAccessToken. Credentials that are cached cost one look-up. It is safe for
// concurrent use.
func GetGitCredentials(ctx context.Context, provider Provider, opts ...Option) (*GitCredentials, error) {
	token, err := getDerived(ctx, provider, opGit, gitKind, "", nil, opts)
	return as[*GitCredentials](token, err)
}

func (c *call) prepareGit() error {
	p, ok := c.provider.(GitCredentialsProvider)
	if !ok {
		return c.incapable("Git repositories")
	}
	if err := checkGitURL(c.opts.GitURL); err != nil {
		return err
	}
	input, err := p.ParseGitRepository(c.opts.GitURL, &c.opts)
	if err != nil {
		return err
	}
	if input == "" {
		return misconfigured("have ParseGitRepository return one", "the provider knows no input for the Git repository")
	}
	c.input = input
	list, err := p.GetAccessTokenOptionsForGitRepository(input, &c.opts)
	if len(list) > 0 {
		c.lists = [][]Option{list}
	}
	return err
}

// checkGitURL has the rules that hold for all providers.
func checkGitURL(u *url.URL) error {
	const remedy = "use the repository's https:// URL"
	if u == nil {
		return misconfigured("pass WithGitURL", "there is no URL of a Git repository")
	}
	if ok := u.Scheme == "https" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && u.RawFragment == "" && u.Opaque == "" && !u.ForceQuery; ok &&
		validHostName(u.Host) {
		return nil
	}
	shown := redact.URL(u.String())
	switch {
	case u.Scheme != "https":
		return misconfigured(remedy, "the Git URL %q is refused: its scheme is %.20q", shown, u.Scheme)
	case u.User != nil:
		return misconfigured("leave the user out", "the Git URL %q is refused: it holds a user name", shown)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawFragment != "" || u.Opaque != "":
		return misconfigured(remedy, "the Git URL %q is refused: it holds a query or a fragment", shown)
	case strings.HasSuffix(u.Host, ":") || !validHostName(u.Hostname()) || u.Port() != "" && !address.ValidPort(u.Port()):
		return misconfigured(remedy, "the Git URL %q is refused: it has no valid host", shown)
	}
	return nil
}

func (m *minter) newGitCredentials(ctx context.Context) (Token, error) {
	p, ok := m.provider.(GitCredentialsProvider)
	if !ok {
		return nil, m.incapable("Git repositories")
	}
	return tokenOrNil(p.NewGitCredentials(ctx, m.input, m.tokens[0], &m.opts))
}
