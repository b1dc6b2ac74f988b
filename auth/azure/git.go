package azure

import (
	"context"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
)

// gitInput is the same for all repositories, because the token is.
const gitInput = "azure-devops"

const gitRemedy = "use https://dev.azure.com/<organization>/<project>/_git/<repository>"

// ParseGitRepository accepts repositories of Azure DevOps: dev.azure.com and
// <organization>.visualstudio.com, over HTTPS.
func (p *Provider) ParseGitRepository(gitURL *url.URL, opts *provider.Options) (string, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return "", err
	}
	host := strings.ToLower(gitURL.Hostname())
	switch port := gitURL.Port(); {
	case gitURL.Scheme != "https", host == "ssh.dev.azure.com", host == "vs-ssh.visualstudio.com":
		return "", self.Misconfigured(gitRemedy, "%.300q does not serve Git over HTTPS", gitURL.Host)
	case port != "" && port != "443", gitURL.Host != gitURL.Hostname() && port == "", !azurename.IsDevOps(host):
		return "", self.Misconfigured(gitRemedy, "%.300q is not a host of Azure DevOps", gitURL.Host)
	case !e.public:
		return "", self.Misconfigured("use the authority "+publicAuthority,
			"Azure DevOps belongs to the public cloud, the authority to %s", e.name).About(optionAuthority)
	}
	return gitInput, nil
}

// GetAccessTokenOptionsForGitRepository returns the scope of Azure DevOps.
func (p *Provider) GetAccessTokenOptionsForGitRepository(string, *provider.Options) ([]provider.Option, error) {
	return p.learn().gitScope, nil
}

// NewGitCredentials returns the access token as bearer token.
func (*Provider) NewGitCredentials(_ context.Context, _ string, accessToken auth.Token, _ *provider.Options,
) (*auth.GitCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	return provider.NewGitBearerCredentials(token.accessToken.Reveal(), token.expiresAt), nil
}
