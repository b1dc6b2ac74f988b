package github

import (
	"context"
	"net/url"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
)

var _ provider.GitCredentialsProvider = (*Provider)(nil)

// gitUser is the user name beside an installation token.
const gitUser = "x-access-token"

// ParseGitRepository accepts repositories of the API's own Git host, such as
// https://github.com/<owner>/<repository>.
func (p *Provider) ParseGitRepository(gitURL *url.URL, _ *provider.Options) (gitInput string, err error) {
	host, ok := address.Canonical(gitURL)
	if own := p.learn().gitHost; !ok || gitURL.Scheme != "https" || own == "" || host != own {
		return "", self.Misconfigured("use the provider of that host", "%.300q is not the Git host of this GitHub, %q",
			gitURL.Host, own).About(optionURL)
	}
	return host, nil
}

// GetAccessTokenOptionsForGitRepository returns none.
func (*Provider) GetAccessTokenOptionsForGitRepository(string, *provider.Options) ([]provider.Option, error) {
	return nil, nil
}

// NewGitCredentials returns the installation token as password.
func (*Provider) NewGitCredentials(_ context.Context, _ string, accessToken auth.Token, _ *provider.Options,
) (*auth.GitCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	return provider.NewGitBasicCredentials(gitUser, token.Reveal(), token.expiresAt), nil
}
