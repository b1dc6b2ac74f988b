package exchange

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/oauth"
)

// config is what follows from a Provider's fields. It is made once, because it is needed on every hit of the cache.
type config struct {
	err       error
	audiences [1]string // of the ServiceAccount's token
	hosts     []string  // canonical, that the token endpoint may be at
	key       string
}

func (p *Provider) learn() *config {
	p.once.Do(func() {
		c := &p.config
		c.audiences[0] = cmp.Or(p.KubernetesAudience, p.server())
		c.key = p.fingerprint()
		if c.err = p.check(); c.err == nil {
			c.hosts, c.err = p.endpointHosts()
		}
	})
	return &p.config
}

// server is how the server calls itself as far as the controller knows.
func (p *Provider) server() string { return cmp.Or(p.Endpoint, p.IssuerURL) }

func (p *Provider) check() error {
	switch {
	case p.Endpoint == "" && p.IssuerURL == "":
		return self.Misconfigured("set Provider.Endpoint or Provider.IssuerURL", "the provider knows no authorization server")
	case p.Endpoint != "" && p.IssuerURL != "":
		return self.Misconfigured("leave one out", "Provider.Endpoint and Provider.IssuerURL exclude each other")
	case p.RequestedTokenType == oauth.TokenTypeRefreshToken:
		return self.Misconfigured("ask for TokenTypeAccessToken", "refresh tokens cannot be asked for: they outlive the ServiceAccount")
	case p.AssumedLifetime < 0 || p.AssumedLifetime > maxLifetime:
		return self.Misconfigured("use some minutes", "Provider.AssumedLifetime cannot be %s", p.AssumedLifetime)
	}
	return p.checkTokenRequest()
}

func (p *Provider) checkTokenRequest() error {
	for field, value := range map[string]string{"RequestedTokenType": p.RequestedTokenType,
		"SubjectTokenType": p.SubjectTokenType, "ActorTokenType": p.ActorTokenType, "Resource": p.Resource} {
		if value != "" && !oauth.AbsoluteURI(value) {
			return self.Misconfigured("use an absolute URI without a fragment", "Provider.%s is %.300q", field, value)
		}
	}
	for _, resource := range p.AllowedResources {
		if !oauth.AbsoluteURI(resource) {
			return self.Misconfigured("use absolute URIs without a fragment", "Provider.AllowedResources has %.300q", resource)
		}
	}
	if slices.Contains(p.AllowedAudiences, "") {
		return self.Misconfigured("leave it out", "an audience of Provider.AllowedAudiences is empty")
	}
	if p.Client != nil {
		return p.Client.check()
	}
	return nil
}

// endpointHosts also checks the address of the server.
func (p *Provider) endpointHosts() ([]string, error) {
	if p.IssuerURL == "" {
		if _, err := parseEndpoint(p.Endpoint); err != nil {
			return nil, self.Misconfigured("use https://<host>/<path>", "%v", err)
		}
		return nil, nil
	}
	u, err := address.Parse("issuer", p.IssuerURL, address.Path)
	if err != nil {
		return nil, self.Misconfigured("use https://<host>[/<path>]", "%v", err)
	}
	own, _ := address.Canonical(u)
	allowed, err := canonicalHosts(p.AllowedEndpointHosts)
	return append(allowed, own), err
}

// fingerprint tells Provider values apart that share a cache. Whoever acts for the ServiceAccount shapes the token too, but
// a source of tokens cannot be compared: then the Provider shares with none.
func (p *Provider) fingerprint() string {
	var b strings.Builder
	add := func(values ...string) {
		b.WriteString(strconv.Itoa(len(values)))
		for _, v := range values {
			b.WriteString(";" + strconv.Itoa(len(v)) + ":" + v)
		}
	}
	add(p.Endpoint, p.IssuerURL, p.RequestedTokenType, p.SubjectTokenType, p.ActorTokenType, p.TokenFile, p.KubernetesAudience,
		p.AssumedLifetime.String())
	if p.Client != nil {
		add(p.Client.method(), p.Client.id())
	}
	if p.ActorToken != nil || p.Client != nil && p.Client.id() == "" {
		add(rand.Text())
	}
	sum := sha256.Sum256([]byte(b.String()))
	return string(sum[:])
}
