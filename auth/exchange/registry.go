package exchange

import (
	"context"
	"slices"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

var _ provider.ArtifactRegistryCredentialsProvider = (*Provider)(nil)

// ParseArtifactRepository accepts repositories at the hosts of [NewQuay] and
// [NewDockerHub].
func (p *Provider) ParseArtifactRepository(artifactRepository string, _ *provider.Options) (string, error) {
	host, err := provider.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	if r, ok := p.service.(registry); !ok || !slices.Contains(r.hosts(), host) {
		return "", self.Misconfigured("use the provider of that registry", "%.300q is not a registry of this service", host)
	}
	return host, nil
}

// GetAccessTokenOptionsForArtifactRepository returns none.
func (*Provider) GetAccessTokenOptionsForArtifactRepository(string, *provider.Options) ([]provider.Option, error) {
	return nil, nil
}

// NewArtifactRegistryCredentials returns the issued token as password.
func (*Provider) NewArtifactRegistryCredentials(_ context.Context, _ string, token auth.Token, _ *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	own, err := FromToken(token)
	if err != nil {
		return nil, err
	}
	return provider.NewArtifactRegistryCredentials(own.registryUser, own.Reveal(), own.expiresAt), nil
}
