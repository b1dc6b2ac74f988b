package gcp

import (
	"context"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/gcpname"
)

var _ provider.GitCredentialsProvider = (*Provider)(nil)

// ParseGitRepository accepts repositories of Secure Source Manager,
// https://<instance>-<project
// number>-git.<location>.sourcemanager.dev/<project>/<repository>. They belong
// to the universe googleapis.com and receive its tokens only.
func (p *Provider) ParseGitRepository(gitURL *url.URL, _ *provider.Options) (gitInput string, err error) {
	host := strings.ToLower(gitURL.Hostname())
	if port := gitURL.Port(); gitURL.Scheme != "https" || port != "" && port != "443" || !gcpname.IsGitHost(host) {
		return "",
			self.Misconfigured("use https://<instance>-<project number>-git.<location>.sourcemanager.dev/<project>/<repository>",
				"%.300q is not a Git host of Secure Source Manager", gitURL.Host)
	}
	if p.universe() != gcpname.DefaultUniverse {
		return "", self.Misconfigured("leave the universe domain out",
			"the Git host %.300q belongs to the universe %q, the provider to %.100q", host, gcpname.DefaultUniverse,
			p.universe()).
			About("gcp.Provider.UniverseDomain")
	}
	return ProviderName, nil
}

// GetAccessTokenOptionsForGitRepository returns none: the default scopes
// suffice.
func (*Provider) GetAccessTokenOptionsForGitRepository(string, *provider.Options) ([]provider.Option, error) {
	return nil, nil
}

// NewGitCredentials returns the access token as password.
func (*Provider) NewGitCredentials(_ context.Context, _ string, accessToken auth.Token, _ *provider.Options,
) (*auth.GitCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	return provider.NewGitBasicCredentials(tokenUser, token.AccessToken(), token.ExpiresAt()), nil
}
