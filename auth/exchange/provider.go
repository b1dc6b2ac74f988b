package exchange

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// ProviderName is the name by which users pick this provider, unless Provider.Name says otherwise.
const ProviderName = "exchange"

// self is nameless: auth fills in what GetName returns.
const self = provider.Name("")

// Token types of RFC 8693, section 3, for Provider.RequestedTokenType, SubjectTokenType and ActorTokenType.
const (
	TokenTypeAccessToken = oauth.TokenTypeAccessToken
	TokenTypeIDToken     = oauth.TokenTypeIDToken
	TokenTypeJWT         = oauth.TokenTypeJWT
)

// Provider implements auth.Provider with an OAuth 2.0 authorization server. Either Endpoint or IssuerURL has to be set;
// without them every call is refused with ErrMisconfigured. All fields belong to the controller: never fill them in from
// what a tenant writes. Share one Provider in the whole controller: it keeps connections and what it has learned. It is safe
// for concurrent use if its fields are not changed any more.
type Provider struct {
	// Name tells several providers of this kind apart. Empty: ProviderName.
	Name string

	// Endpoint is the https URL of the token endpoint. It may have a query (RFC 6749, section 3.2), but neither user
	// information nor a fragment. It excludes IssuerURL.
	Endpoint string
	// IssuerURL is the server's issuer identifier, an https URL without query and fragment. The token endpoint is looked up
	// in its metadata on first need, once.
	IssuerURL string
	// AllowedEndpointHosts are hosts, with the port if it is not 443, that the issuer's token endpoint may be at besides the
	// issuer's own.
	AllowedEndpointHosts []string

	// Audience is the name of the service that the issued token is for, in the server's own terms. Optional.
	Audience string
	// Resource is the URI of the service that the issued token is for (RFC 8707), without a fragment. Optional.
	Resource string
	// AllowedAudiences and AllowedResources are what calls may choose instead, with WithAudience and WithResource.
	AllowedAudiences, AllowedResources []string
	// RequestedTokenType is the kind of token to ask for, such as TokenTypeAccessToken. Empty leaves that to the server.
	// Refresh tokens cannot be asked for.
	RequestedTokenType string
	// AssumedLifetime is how long a token counts as valid if neither the answer nor the token itself tells. Zero refuses
	// such an answer with ErrUnavailable.
	AssumedLifetime time.Duration

	// KubernetesAudience is the audience of the ServiceAccounts' tokens. Empty: Endpoint or IssuerURL.
	KubernetesAudience string
	// SubjectTokenType says what the ServiceAccount's token is to the server. Empty: TokenTypeJWT.
	SubjectTokenType string
	// ActorToken is the source of a token of the party that acts for the ServiceAccount, the controller itself. It is asked
	// for KubernetesAudience at every exchange. Nil sends none.
	ActorToken auth.SubjectTokenSource
	// ActorTokenType says what that token is. Empty: TokenTypeJWT.
	ActorTokenType string
	// TokenFile is the controller's own projected ServiceAccount token, with KubernetesAudience, for calls that name no
	// ServiceAccount. Empty refuses those with ErrMisconfigured.
	TokenFile string

	// Client authenticates the controller at the server. Nil does not.
	Client ClientAuthentication
	// ClientAudience is the audience of the assertions that PrivateKeyJWT and ServiceAccountAssertion send. Empty: for the
	// former Endpoint or IssuerURL, for the latter KubernetesAudience.
	ClientAudience string

	clients    auth.HTTPClients
	discovered atomic.Pointer[string]

	once   sync.Once
	config config
}

var (
	_ auth.Provider            = (*Provider)(nil)
	_ auth.OptionsValidator    = (*Provider)(nil)
	_ auth.CacheKeyContributor = (*Provider)(nil)
)

// GetName returns Name, or ProviderName.
func (p *Provider) GetName() string { return cmp.Or(p.Name, ProviderName) }

// ValidateOptions refuses a Provider whose fields are malformed, and options that it does not allow.
func (p *Provider) ValidateOptions(opts *auth.Options) error {
	if c := p.learn(); c.err != nil {
		return c.err
	}
	if opts.STSEndpoint != "" {
		return self.Misconfigured("leave WithSTSEndpoint out; the controller configures the server",
			"the STS endpoint %q is refused: tokens go to the provider's own server only", redact.URL(opts.STSEndpoint))
	}
	for _, scope := range opts.Scopes {
		if !oauth.ValidScope(scope) {
			return self.Misconfigured("pass each scope by itself", "%.100q is not a scope of OAuth 2.0", scope)
		}
	}
	return p.checkTargets(opts)
}

// AddToCacheKey implements auth.CacheKeyContributor.
func (p *Provider) AddToCacheKey(key *auth.KeyBuilder, _ *corev1.ServiceAccount, opts *auth.Options) {
	key.Add("exchange", p.learn().key)
	key.Add("exchangeAudience", p.audience(opts))
	key.Add("exchangeResource", p.resource(opts))
}

// GetAudiences returns KubernetesAudience or its default.
func (p *Provider) GetAudiences(context.Context, *corev1.ServiceAccount, *auth.Options) ([]string, error) {
	c := p.learn()
	if c.err != nil {
		return nil, c.err
	}
	return c.audiences[:], nil
}

// GetIdentity returns "": the ServiceAccount is the identity.
func (*Provider) GetIdentity(*corev1.ServiceAccount, *auth.Options) (string, error) { return "", nil }
