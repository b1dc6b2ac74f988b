package token

import (
	"cmp"
	"context"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// Registry is an artifact registry that trusts the cluster's token issuer, such
// as Zot with OpenID Connect.
type Registry struct {
	// Host has the form of provider.RegistryHost: lower case, with the port
	// unless it is 443. Calls refuse any other form.
	Host string
	// Audience is the audience of the tokens. Empty: Host. auth.WithAudiences
	// replaces it.
	Audience string
	// Username is the user name for the token as password. Empty: the token is
	// a bearer token.
	Username string
}

// optionRegistries is a value of auth.Error.Option.
const optionRegistries = "token.Provider.Registries"

var (
	_ provider.ArtifactRegistryCredentialsProvider = (*Provider)(nil)
	_ provider.OptionsValidator                    = (*Provider)(nil)
	_ provider.RegistryOwner                       = (*Provider)(nil)
)

// ValidateOptions refuses an STS endpoint, and a [Registry] whose Host can
// match no registry.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	if opts.STSEndpoint != "" {
		return self.Misconfigured("leave it out", "the STS endpoint %q is refused: the API server issues the token",
			redact.URL(opts.STSEndpoint)).About("auth.WithSTSEndpoint")
	}
	return p.checkRegistries()
}

func (p *Provider) checkRegistries() error {
	for _, r := range p.Registries {
		if host, err := provider.RegistryHost(r.Host); err != nil || host != r.Host {
			return self.Misconfigured("use <host> or <host>:<port> in lower case, without the port 443",
				"the registry %q is not the canonical host of one", redact.URL(r.Host)).About(optionRegistries)
		}
	}
	return nil
}

// OwnsRegistry implements [provider.RegistryOwner]. It claims all registries if
// a Host is malformed, because the Host may mean any of them: a Keychain then
// returns the error instead of anonymous access.
func (p *Provider) OwnsRegistry(string) bool { return p.checkRegistries() != nil }

// ParseArtifactRepository accepts repositories in [Provider.Registries]. The
// credentials depend on the host and on the user name.
func (p *Provider) ParseArtifactRepository(artifactRepository string,
	_ *provider.Options) (registryInput string, err error) {
	if err := p.checkRegistries(); err != nil {
		return "", err
	}
	host, err := provider.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	registry, ok := p.registry(host)
	switch {
	case !ok:
		return "", self.Misconfigured("use another provider, or add the registry in the controller",
			"%.300q is not a registry that the controller allows to receive ServiceAccount tokens", host).About(optionRegistries)
	case registry.Username == "":
		return host, nil
	}
	return host + " " + registry.Username, nil
}

// registry compares whole hosts. The list belongs to the controller, because a
// server that receives a token can use it at every other server that accepts
// the same audience.
func (p *Provider) registry(host string) (Registry, bool) {
	for _, r := range p.Registries {
		if r.Host == host {
			return r, true
		}
	}
	return Registry{}, false
}

// GetAccessTokenOptionsForArtifactRepository returns the registry's audience
// unless the caller chose one.
func (p *Provider) GetAccessTokenOptionsForArtifactRepository(registryInput string,
	opts *provider.Options) ([]provider.Option, error) {
	if len(opts.Audiences) > 0 {
		return nil, nil
	}
	host, _, _ := strings.Cut(registryInput, " ")
	r, _ := p.registry(host)
	audiences := []string{cmp.Or(r.Audience, host)}
	return []provider.Option{func(o *provider.Options) { o.Audiences = audiences }}, nil
}

// NewArtifactRegistryCredentials returns the token as bearer, or as password
// beside the registry's user name.
func (*Provider) NewArtifactRegistryCredentials(_ context.Context, registryInput string, accessToken auth.Token,
	_ *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	if _, username, ok := strings.Cut(registryInput, " "); ok {
		return provider.NewArtifactRegistryCredentials(username, token.Reveal(), token.ExpiresAt()), nil
	}
	return provider.NewArtifactRegistryBearerCredentials(token.Reveal(), token.ExpiresAt()), nil
}
