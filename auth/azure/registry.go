package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/transport"
)

const opRegistry = "get credentials of the container registry"

// registryUser is the user name beside a refresh token.
const registryUser = "00000000-0000-0000-0000-000000000000"

// ParseArtifactRepository accepts repositories of Azure Container Registry and
// returns the registry's host. It refuses a registry of another cloud, which
// accepts no token of this authority.
func (p *Provider) ParseArtifactRepository(artifactRepository string, opts *provider.Options) (string, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return "", err
	}
	host, err := provider.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	if e.hasRegistry(host) {
		return host, nil
	}
	for _, other := range p.learn().environments {
		if other.hasRegistry(host) {
			return "", self.Misconfigured("use the authority https://"+other.authorities[0],
				"the registry %q belongs to %s, the authority to %s", host, other.name, e.name).About(optionAuthority)
		}
	}
	return "", self.Misconfigured("use <registry>.azurecr.io/<repository>",
		"%.300q is not a login server of Azure Container Registry", host)
}

func (e *environment) hasRegistry(host string) bool {
	return azurename.IsRegistry(host, e.registry) || e.microsoft != nil && e.microsoft.hasRegistry(host)
}

// OwnsRegistry implements [provider.RegistryOwner] for every name in the
// registry domains of the clouds that the Provider knows, except data
// endpoints. It knows Microsoft's clouds even if its settings are malformed:
// findEnvironments begins with them.
func (p *Provider) OwnsRegistry(host string) bool {
	name, _, _ := strings.Cut(host, ":")
	domains := []string{azurename.ClosedRegistrySuffix}
	for _, e := range p.learn().environments {
		domains = append(domains, e.registry)
	}
	return slices.ContainsFunc(domains, func(domain string) bool {
		return azurename.InRegistryDomain(name, domain) && !azurename.IsRegistryData(name, domain)
	})
}

// GetAccessTokenOptionsForArtifactRepository returns the scope of the
// registry's cloud.
func (p *Provider) GetAccessTokenOptionsForArtifactRepository(host string,
	opts *provider.Options) ([]provider.Option, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	if e.microsoft != nil && e.microsoft.hasRegistry(host) {
		return e.microsoft.registryScope, nil
	}
	if e.registryScope == nil {
		return nil, self.Misconfigured(
			"set ResourceManagerAudience, or tokenAudience in the file of AZURE_ENVIRONMENT_FILEPATH",
			"the audience of the registries of %s is not known", e.name).About(optionClouds)
	}
	return e.registryScope, nil
}

// NewArtifactRegistryCredentials exchanges an access token for a refresh token
// of the registry.
func (p *Provider) NewArtifactRegistryCredentials(ctx context.Context, host string, accessToken auth.Token,
	opts *provider.Options) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	secret := token.accessToken.Reveal()
	form := url.Values{"grant_type": {"access_token"}, "service": {host}, "access_token": {secret}}
	if token.tenant != "" {
		form.Set("tenant", token.tenant)
	}
	answer, err := transport.Send(ctx, p.clients.ForTokens(opts), func() (*http.Request, error) {
		return oauth.NewRequest(ctx, "https://"+host+"/oauth2/exchange", form)
	}, nil)
	if err != nil {
		return nil, self.Unanswered(opRegistry, err, secret)
	}
	if answer.Status != http.StatusOK {
		return nil, registryError(answer, host, secret)
	}
	password, expiry, err := readRefreshToken(answer.Body, time.Now())
	if err != nil {
		return nil, self.Unusable(opRegistry, host, "%v", err)
	}
	return provider.NewArtifactRegistryCredentials(registryUser, password, expiry), nil
}

// readRefreshToken reads the expiry from the refresh token, because the answer
// has none beside it.
func readRefreshToken(body []byte, now time.Time) (token string, expiry time.Time, err error) {
	answer, err := exactjson.ParseObject(body)
	if err != nil {
		return "", expiry, err
	}
	token = answer.Text("refresh_token")
	if oauth.CheckToken(token) != nil {
		return "", expiry, errors.New("refresh_token is missing or malformed")
	}
	claims, err := jwt.Parse(token)
	if err != nil {
		return "", expiry, fmt.Errorf("refresh_token: %w", err)
	}
	if err := provider.CheckExpiry(claims.Expiry.Time, now, maxLife); err != nil {
		return "", expiry, fmt.Errorf("refresh_token: %w", err)
	}
	return token, claims.Expiry.Time, nil
}

// registryError explains why a registry gave no credentials.
func registryError(answer transport.Answer, host, secret string) error {
	e := refused(answer, opRegistry, "X-Ms-Correlation-Request-Id", secret)
	e.Message = fmt.Sprintf("registry %q: the answer is not one of a registry", host)
	var body struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	parsed := exactjson.Unmarshal(answer.Body, &body) == nil && len(body.Errors) > 0
	if parsed {
		e.Code = provider.Redact(body.Errors[0].Code, secret)
		e.Message = fmt.Sprintf("registry %q: %s", host, provider.Redact(strings.TrimSpace(body.Errors[0].Message), secret))
	}
	switch {
	case answer.Status == http.StatusTooManyRequests:
		e.Reason = auth.ErrThrottled
	case !parsed || isTemporary(answer.Status):
	case answer.Status == http.StatusNotFound:
		e.Reason, e.Remedy = auth.ErrMisconfigured, "correct the name of the registry"
	default:
		e.Reason = auth.ErrDenied
		e.Remedy = "assign the identity the role AcrPull on the registry (with ABAC repository permissions, which ignore " +
			"AcrPull, Container Registry Repository Reader), wait some minutes, and check that both are of one tenant"
	}
	return e
}
