package exchange

import (
	"net/http"
	"slices"

	"github.com/workloadid/workloadid/auth"
)

// Transport is an http.RoundTripper that puts a token into the Authorization header of requests to the hosts it was made
// for. It is safe for concurrent use.
type Transport struct {
	base   http.RoundTripper
	hosts  []string // canonical
	source *auth.AccessTokenSource
}

// NewTransport returns a Transport that sends requests through base (nil: http.DefaultTransport). hosts are the services
// that may see the token, <host> or <host>:<port>, compared whole; without a port it is 443. opts are those of
// auth.GetAccessToken; give it a cache with auth.WithCache, because the token is asked for at each request.
//
// A request to one of the hosts gets the token, in place of an Authorization header of its own, and is refused if it is not
// for https. Requests to other hosts, redirects among them, go through as they are, without the token. Hosts that are
// missing or malformed are ErrMisconfigured.
func (p *Provider) NewTransport(base http.RoundTripper, hosts []string, opts ...auth.Option) (*Transport, error) {
	canonical, err := canonicalHosts(hosts)
	if err != nil {
		return nil, err
	}
	if len(canonical) == 0 {
		return nil, self.Misconfigured("name the hosts of the service", "there is no host that may see the token")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, hosts: canonical, source: auth.NewAccessTokenSource(p, opts...)}, nil
}

// Invalidate has the token replaced, because one of the hosts has refused it: see auth.WithInvalidBefore.
func (t *Transport) Invalidate() { t.source.Invalidate() }

// RoundTrip implements http.RoundTripper. Getting the token honours the request's context; its errors are those of
// auth.GetAccessToken.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.mayHaveToken(req) {
		return t.base.RoundTrip(req)
	}
	authorized, err := t.authorize(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper always closes it
		}
		return nil, err
	}
	return t.base.RoundTrip(authorized)
}

// mayHaveToken looks at where the request goes and at whom it is addressed to: behind one address there may be several
// hosts.
func (t *Transport) mayHaveToken(req *http.Request) bool {
	return t.listed(req.URL.Host) && (req.Host == "" || req.Host == req.URL.Host || t.listed(req.Host))
}

func (t *Transport) listed(host string) bool {
	canonical, ok := canonicalHost(host)
	return ok && slices.Contains(t.hosts, canonical)
}

func (t *Transport) authorize(req *http.Request) (*http.Request, error) {
	if req.URL.Scheme != "https" {
		return nil, self.Misconfigured("use https", "a token is not sent to %q without encryption", req.URL.Host)
	}
	token, err := oauth2Token(t.source.Token(req.Context()))
	if err != nil {
		return nil, err
	}
	authorized := req.Clone(req.Context())
	token.SetAuthHeader(authorized)
	return authorized, nil
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
