package exchange

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
)

// ProviderName is the name by which users pick this provider, unless
// [Provider.Name] says otherwise.
const ProviderName = "exchange"

// self is nameless: auth fills in what GetName returns.
const self = provider.Name("")

// Token types of RFC 8693, section 3, for [Provider.RequestedTokenType],
// SubjectTokenType and ActorTokenType.
const (
	TokenTypeAccessToken = oauth.TokenTypeAccessToken
	TokenTypeIDToken     = oauth.TokenTypeIDToken
	TokenTypeJWT         = oauth.TokenTypeJWT
)

// Provider implements [auth.Provider] with an OAuth 2.0 authorization server.
// Set Endpoint or IssuerURL: without them every call fails with
// [auth.ErrMisconfigured]. All fields belong to the controller: never fill them
// in from what a tenant writes. Share one Provider in the whole controller,
// because it keeps connections and the endpoint that it has looked up. It is
// safe for concurrent use, as long as its fields stay unchanged.
type Provider struct {
	// Name distinguishes several providers of this kind. Empty: ProviderName.
	Name string

	// Endpoint is the https URL of the token endpoint. It may have a query
	// (RFC 6749, section 3.2). It excludes IssuerURL.
	Endpoint string
	// IssuerURL is the server's issuer identifier, an https URL without query
	// and fragment. The first call that needs the token endpoint looks it up in
	// the issuer's metadata, once.
	IssuerURL string
	// AllowedEndpointHosts are hosts, with the port if it is not 443, where the
	// issuer's token endpoint may be. The issuer's own host is always allowed.
	AllowedEndpointHosts []string

	// Grant selects how the provider presents the tenant's token. The provider
	// refuses fields that the grant, or a service's own form, cannot send.
	Grant Grant
	// JSONBody sends the parameters as a JSON object instead of a form.
	JSONBody bool
	// Parameters are sent with each request. They hold no secret, since the
	// server may repeat them in an error that a tenant reads. Reserved are
	// grant_type, assertion, client_assertion*, client_secret, subject_*,
	// actor_*, requested_token_type, audience, resource, scope and jwt, and
	// client_id if Client is set.
	Parameters map[string]string
	// AnnotatedParameters are sent too. They map a parameter to an annotation
	// of the ServiceAccount (auth.WithAnnotations wins). A parameter is never
	// also in Parameters. A missing annotation, or one that is not 1 to 256 of
	// [A-Za-z0-9._:/@+-], is ErrMisconfigured. GetIdentity returns the values,
	// so auth.Policy.Authorize sees them.
	AnnotatedParameters map[string]string
	// Headers are sent with each request. They may hold a key of the
	// controller, so errors never repeat their values. Authorization, Accept,
	// Host, the headers of the body and the headers that a service's
	// constructor sets are reserved.
	Headers map[string]string
	// AssumeBearer accepts an answer without token_type, which OAuth requires.
	AssumeBearer bool

	// Audience is the service that accepts the issued token, in the server's
	// own terms. Optional.
	Audience string
	// DefaultScopes are requested by calls without auth.WithScopes.
	DefaultScopes []string
	// Resource is the URI, without a fragment, of the service that accepts the
	// issued token (RFC 8707). Optional.
	Resource string
	// AllowedAudiences and AllowedResources list the values that calls may
	// choose instead, with WithAudience and WithResource.
	AllowedAudiences, AllowedResources []string
	// RequestedTokenType is the type of token to request, such as
	// TokenTypeAccessToken. If it is empty, the server chooses. Refresh tokens
	// are refused.
	RequestedTokenType string
	// AssumedLifetime is the lifetime of a token if neither the answer nor the
	// token itself states one. Zero refuses such an answer with ErrUnavailable.
	AssumedLifetime time.Duration

	// KubernetesAudience is the audience of the ServiceAccounts' tokens. Empty:
	// Endpoint or IssuerURL.
	KubernetesAudience string
	// SubjectTokenType and ActorTokenType are the types of the ServiceAccount's
	// and of the actor's token. Empty: TokenTypeJWT.
	SubjectTokenType, ActorTokenType string
	// ActorToken is the source of the token of the acting party, the controller
	// itself, which acts for the ServiceAccount. Every exchange asks it for
	// KubernetesAudience. Nil sends none.
	ActorToken auth.SubjectTokenSource
	// TokenFile is the controller's own projected ServiceAccount token, with
	// KubernetesAudience, for calls that name no ServiceAccount. Empty refuses
	// such calls with ErrMisconfigured.
	TokenFile string

	// Client authenticates the controller at the server. Nil sends no client
	// authentication.
	Client ClientAuthentication
	// ClientAudience is the audience of the token that ServiceAccountAssertion
	// sends. Empty: KubernetesAudience.
	ClientAudience string

	service    service // nil: plain OAuth 2.0
	clients    provider.HTTPClients
	discovered atomic.Pointer[url.URL]

	once   sync.Once
	config config
}

var (
	_ auth.Provider                = (*Provider)(nil)
	_ provider.OptionsValidator    = (*Provider)(nil)
	_ provider.AnnotationReader    = (*Provider)(nil)
	_ provider.CacheKeyContributor = (*Provider)(nil)
)

// GetName returns Name, or [ProviderName].
func (p *Provider) GetName() string { return cmp.Or(p.Name, ProviderName) }

// ServiceName returns the service's own spelling of its name, such as "Vault",
// or [Provider.GetName] for a server that no constructor knows.
func (p *Provider) ServiceName() string {
	return cmp.Or(p.form().title(), p.GetName())
}

// GetAnnotations implements [provider.AnnotationReader].
func (p *Provider) GetAnnotations() []string {
	return slices.Sorted(maps.Values(p.AnnotatedParameters))
}

// AddToCacheKey implements [provider.CacheKeyContributor].
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, serviceAccount *corev1.ServiceAccount,
	opts *provider.Options) {
	key.Add("exchange", p.learn().key)
	key.Add("exchangeAudience", p.audience(opts))
	key.Add("exchangeResource", p.resource(opts))
	for i := range p.config.parameters {
		if one := &p.config.parameters[i]; one.annotation != "" && serviceAccount != nil {
			key.Add(one.key, serviceAccount.Annotations[one.annotation])
		}
	}
}

// GetAudiences returns KubernetesAudience or its default. For some services the
// default depends on a parameter.
func (p *Provider) GetAudiences(_ context.Context, serviceAccount *corev1.ServiceAccount,
	_ *provider.Options) ([]string, error) {
	c := p.learn()
	if c.err != nil {
		return nil, c.err
	}
	if p.KubernetesAudience != "" {
		return c.audiences[:], nil
	}
	return p.form().audiences(c, serviceAccount)
}

// GetIdentity returns the values of AnnotatedParameters: a single value by
// itself, several as name=value,name=value in the order of their names. Values
// whose case a service ignores are in lower case. Without such parameters it
// returns "", because the ServiceAccount itself is the identity.
func (p *Provider) GetIdentity(serviceAccount *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	return p.learn().identity(serviceAccount)
}
