package gcp

import (
	"context"
	"fmt"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/gcpname"
)

var (
	_ provider.ArtifactRegistryCredentialsProvider = (*Provider)(nil)
	_ provider.RegistryOwner                       = (*Provider)(nil)
)

// tokenUser is the user name that registries and Git servers require beside an
// access token. They take the identity from the token.
const tokenUser = "oauth2accesstoken"

// ParseArtifactRepository accepts repositories in Artifact Registry: at gcr.io,
// <region>.gcr.io or <location>-docker.pkg.dev, or in the universe s3nsapis.fr
// at docker.s3nsregistry.fr or <location>-docker.s3nsregistry.fr. All
// registries of a universe accept the same credential. It refuses a registry of
// another universe, because another company runs it and would receive the
// access token as password.
func (p *Provider) ParseArtifactRepository(artifactRepository string,
	_ *provider.Options) (registryInput string, err error) {
	host, err := provider.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	switch universe := gcpname.RegistryUniverse(host); universe {
	case p.universe():
		return ProviderName, nil
	case "":
		return "",
			self.Misconfigured("use gcr.io, <region>.gcr.io or <location>-docker.pkg.dev, or the provider of that registry",
				"%.300q is not a registry of Google Cloud", host)
	default:
		return "",
			self.Misconfigured(fmt.Sprintf("use a registry of %s, or a Provider whose UniverseDomain is %s", p.universe(),
				universe), "the registry %.300q belongs to the universe %q, the Provider to %.100q", host, universe, p.universe())
	}
}

// OwnsRegistry implements [provider.RegistryOwner]. It claims the hosts whose
// names look like registries of a known universe. A Keychain never accesses
// them anonymously.
func (*Provider) OwnsRegistry(host string) bool { return gcpname.LooksLikeRegistry(host) }

// GetAccessTokenOptionsForArtifactRepository returns none: the default scopes
// suffice.
func (*Provider) GetAccessTokenOptionsForArtifactRepository(string, *provider.Options) ([]provider.Option, error) {
	return nil, nil
}

// NewArtifactRegistryCredentials returns the access token as password.
func (*Provider) NewArtifactRegistryCredentials(_ context.Context, _ string, accessToken auth.Token,
	_ *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	return provider.NewArtifactRegistryCredentials(tokenUser, token.AccessToken(), token.ExpiresAt()), nil
}
