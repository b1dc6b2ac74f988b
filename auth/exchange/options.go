package exchange

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

type (
	audienceKey struct{}
	resourceKey struct{}
)

// WithAudience sets the audience of the issued token for one call. It has to be
// [Provider.Audience] or one of [Provider.AllowedAudiences].
func WithAudience(audience string) auth.Option {
	return auth.WithProviderOption(audienceKey{}, audience)
}

// WithResource sets the resource of the issued token for one call. It has to be
// [Provider.Resource] or one of [Provider.AllowedResources].
func WithResource(resource string) auth.Option {
	return auth.WithProviderOption(resourceKey{}, resource)
}

func (p *Provider) audience(opts *provider.Options) string {
	return chosen(opts, audienceKey{}, p.Audience)
}

func (p *Provider) resource(opts *provider.Options) string {
	return chosen(opts, resourceKey{}, p.Resource)
}

func (p *Provider) scopes(opts *provider.Options) []string {
	if len(opts.Scopes) == 0 {
		return p.DefaultScopes
	}
	return opts.Scopes
}

func chosen(opts *provider.Options, key any, preset string) string {
	if value, ok := opts.Value(key).(string); ok {
		return value
	}
	return preset
}

// ValidateOptions refuses a [Provider] whose fields are malformed, and options
// that it does not allow.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	if c := p.learn(); c.err != nil {
		return c.err
	}
	if opts.STSEndpoint != "" {
		return self.Misconfigured("leave it out; the controller configures the server",
			"the STS endpoint %q is refused: tokens go to the provider's own server only",
			redact.URL(opts.STSEndpoint)).About("auth.WithSTSEndpoint")
	}
	if err := p.form().checkOptions(opts); err != nil {
		return err
	}
	for _, scope := range p.scopes(opts) {
		if !oauth.ValidScope(scope) {
			return self.Misconfigured("pass each scope by itself", "%.100q is not a scope of OAuth 2.0", scope)
		}
	}
	if a := p.audience(opts); a != p.Audience && !slices.Contains(p.AllowedAudiences, a) {
		return self.Denied("allow it if callers may choose it",
			"the audience %.300q is not one that the provider allows for issued tokens",
			a).About("exchange.Provider.AllowedAudiences")
	}
	if r := p.resource(opts); r != p.Resource && !slices.Contains(p.AllowedResources, r) {
		return self.Denied("allow it if callers may choose it",
			"the resource %.300q is not one that the provider allows for issued tokens",
			r).About("exchange.Provider.AllowedResources")
	}
	return nil
}

// config follows from a Provider's fields. It is computed once, because every
// hit of the cache needs it.
type config struct {
	err       error
	audiences [1]string // of the ServiceAccount's token
	endpoint  *url.URL  // nil if the issuer's metadata name the endpoint
	metadata  []string  // URLs of the metadata
	hosts     []string  // canonical, where the issuer's token endpoint may be
	key       string

	parameters []parameter // by name
	annotated  int
}

func (p *Provider) learn() *config {
	p.once.Do(func() {
		p.config.audiences[0] = cmp.Or(p.KubernetesAudience, p.server())
		p.config.key = p.fingerprint()
		p.config.parameters, p.config.annotated = p.prepareParameters(), len(p.AnnotatedParameters)
		if p.config.err = p.check(); p.config.err == nil {
			p.config.err = p.locate(&p.config)
		}
	})
	return &p.config
}

// server returns the name by which the controller knows the server.
func (p *Provider) server() string { return cmp.Or(p.Endpoint, p.IssuerURL) }

func (p *Provider) check() error {
	switch {
	case p.server() == "":
		return self.Misconfigured("set its token endpoint or its issuer",
			"the provider knows no authorization server").About(optionEndpoint, optionIssuer)
	case p.Endpoint != "" && p.IssuerURL != "":
		return self.Misconfigured("leave one out",
			"the token endpoint and the issuer exclude each other").About(optionEndpoint, optionIssuer)
	case p.RequestedTokenType == oauth.TokenTypeRefreshToken:
		return self.Misconfigured("request an access token, "+oauth.TokenTypeAccessToken,
			"refresh tokens cannot be requested: they outlive the ServiceAccount").
			About(optionTokenType)
	case p.AssumedLifetime < 0 || p.AssumedLifetime > maxLifetime:
		return self.Misconfigured("use some minutes", "the lifetime to assume cannot be %s",
			p.AssumedLifetime).About(optionAssumedLifetime)
	case slices.Contains(p.AllowedAudiences, "") || slices.Contains(p.AllowedResources, ""):
		return self.Misconfigured("leave it out", "an allowed audience or resource is empty").
			About("exchange.Provider.AllowedAudiences", "exchange.Provider.AllowedResources")
	}
	for option, values := range map[string][]string{optionTokenType: {p.RequestedTokenType},
		"exchange.Provider.SubjectTokenType": {p.SubjectTokenType},
		"exchange.Provider.ActorTokenType":   {p.ActorTokenType}, "exchange.Provider.Resource": {p.Resource},
		"exchange.Provider.AllowedResources": p.AllowedResources} {
		for _, uri := range values {
			if uri != "" && !oauth.AbsoluteURI(uri) {
				return self.Misconfigured("use an absolute URI without a fragment", "%.300q is not a URI", uri).About(option)
			}
		}
	}
	if p.Client != nil && p.Client.settings().problem != nil {
		return p.Client.settings().problem
	}
	return p.checkForm(p.config.parameters)
}

// locate parses the address of the server and derives the address of its
// metadata.
func (p *Provider) locate(c *config) error {
	var err error
	if p.Endpoint != "" {
		if c.endpoint, err = parseEndpoint(p.Endpoint); err != nil {
			return self.Misconfigured("use https://<host>/<path>", "%v", err)
		}
		return nil
	}
	u, err := address.Parse("issuer", p.IssuerURL, address.Path)
	if err != nil {
		return self.Misconfigured("use https://<host>[/<path>]", "%v", err)
	}
	origin, path := "https://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	c.metadata = []string{
		origin + "/.well-known/oauth-authorization-server" + path, // RFC 8414, section 3.1
		origin + path + "/.well-known/openid-configuration",       // OpenID Connect Discovery 1.0, section 4.1
	}
	own, _ := address.Canonical(u)
	c.hosts, err = canonicalHosts(p.AllowedEndpointHosts)
	c.hosts = append(c.hosts, own)
	return err
}

// parseEndpoint accepts the URL of a token endpoint (RFC 6749, section 3.2).
func parseEndpoint(endpoint string) (*url.URL, error) {
	return address.Parse("token endpoint", endpoint, address.Path|address.Query)
}

// canonicalHost returns <host>:<port> in the one form in which hosts are
// compared. The default port is 443.
func canonicalHost(host string) (string, bool) {
	if strings.ContainsAny(host, "/?") {
		return "", false
	}
	u, err := address.Parse("host", "https://"+host, 0)
	if err != nil {
		return "", false
	}
	return address.Canonical(u)
}

func canonicalHosts(hosts []string) (canonical []string, err error) {
	for _, host := range hosts {
		c, ok := canonicalHost(host)
		if !ok {
			return nil, self.Misconfigured("use <host> or <host>:<port>", "%.300q is not a host", host)
		}
		canonical = append(canonical, c)
	}
	return canonical, nil
}

// fingerprint distinguishes Provider values that share a cache. Go's syntax
// shows each field of the service. The actor shapes the token too, but sources
// of tokens cannot be compared, so a Provider with an actor shares no entries.
func (p *Provider) fingerprint() string {
	values := []string{p.Endpoint, p.IssuerURL, p.RequestedTokenType, p.SubjectTokenType, p.ActorTokenType, p.TokenFile,
		p.KubernetesAudience, p.AssumedLifetime.String(), string(p.Grant), fmt.Sprint(p.JSONBody, p.AssumeBearer),
		fmt.Sprintf("%#v", p.service),
		// fmt sorts the keys of maps
		fmt.Sprintf("%q %q %q %q", p.Parameters, p.AnnotatedParameters, p.headers(), p.DefaultScopes)}
	if p.Client != nil {
		values = append(values, p.Client.settings().method, p.Client.settings().id)
	}
	if p.ActorToken != nil || p.Client != nil && p.Client.settings().id == "" {
		values = append(values, rand.Text())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", values)) // quoted: different lists never collide
	return string(sum[:])
}
