package gcp

import (
	"context"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/gcpname"
)

var _ auth.ArtifactRegistryCredentialsProvider = (*Provider)(nil)

// registryUser is the user name that goes with an access token.
const registryUser = "oauth2accesstoken"

// ParseArtifactRepository makes sure that a repository lies in Artifact Registry: at gcr.io, <region>.gcr.io,
// <location>-docker.pkg.dev or docker.s3nsregistry.fr. One credential is good for all of them.
func (*Provider) ParseArtifactRepository(artifactRepository string, _ *auth.Options) (registryInput string, err error) {
	host, err := auth.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	if !gcpname.IsRegistryHost(strings.TrimSuffix(host, ":443")) {
		return "", misconfigured("use gcr.io, <region>.gcr.io or <location>-docker.pkg.dev, or the provider of that registry",
			"%.300q is not a registry of Google Cloud", host)
	}
	return ProviderName, nil
}

// GetAccessTokenOptionsForArtifactRepository adds nothing: the default scopes suffice.
func (*Provider) GetAccessTokenOptionsForArtifactRepository(string, *auth.Options) ([]auth.Option, error) {
	return nil, nil
}

// NewArtifactRegistryCredentials makes a password of the access token. It ends with that.
func (*Provider) NewArtifactRegistryCredentials(_ context.Context, _ string, accessToken auth.Token, _ *auth.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	return auth.NewArtifactRegistryCredentials(registryUser, token.AccessToken(), token.ExpiresAt()), nil
}
