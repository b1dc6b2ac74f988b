package exchange

import (
	"context"
	"net/http"
	"slices"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
)

// TokenSource is an [oauth2.TokenSource]. It is safe for concurrent use.
type TokenSource struct {
	ctx    context.Context // the method Token takes no context
	source *auth.AccessTokenSource
}

var _ oauth2.TokenSource = (*TokenSource)(nil)

// NewTokenSource returns an [oauth2.TokenSource] for the options of
// [auth.GetAccessToken]. Its Token method has no context, so it uses ctx: once
// ctx is done, every call fails. Calls fail with the errors of
// auth.GetAccessToken, and with [auth.ErrMisconfigured] for a token that is not
// an access token. Each call returns a copy of its own.
//
// Give it a cache with [auth.WithCache]. [oauth2.NewClient] keeps the token
// until it expires, so a deleted ServiceAccount keeps its access until then.
// [Provider.NewTransport] asks for the token at every request, and honours the
// context of each.
func (p *Provider) NewTokenSource(ctx context.Context, opts ...auth.Option) *TokenSource {
	return &TokenSource{ctx: ctx, source: auth.NewAccessTokenSource(p, opts...)}
}

// Invalidate replaces the token after a service has refused it, see
// [auth.WithInvalidBefore].
func (s *TokenSource) Invalidate() { s.source.Invalidate() }

// Token implements [oauth2.TokenSource].
func (s *TokenSource) Token() (*oauth2.Token, error) {
	token, err := s.source.Token(s.ctx)
	if err != nil {
		return nil, err
	}
	own, err := FromToken(token)
	if err != nil {
		return nil, err
	}
	return own.OAuth2Token()
}

// Transport is an [http.RoundTripper] that puts a token into the Authorization
// header of requests to its hosts. It is safe for concurrent use.
type Transport struct {
	base   http.RoundTripper
	hosts  []string // canonical
	source *auth.AccessTokenSource
}

// NewTransport returns a [Transport] that sends requests through base (nil:
// [http.DefaultTransport]). hosts are the services that may see the token, as
// <host> or <host>:<port>, compared whole. The default port is 443. opts are
// the options of [auth.GetAccessToken]. Pass a cache with [auth.WithCache],
// because each request asks for the token.
//
// A request to one of the hosts gets the token, which replaces any
// Authorization header of the request. The Transport refuses such a request
// unless it uses https. Requests to other hosts, also after a redirect, pass
// unchanged and without the token. Missing or malformed hosts fail with
// [auth.ErrMisconfigured].
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

// Invalidate replaces the token after one of the hosts has refused it, see
// [auth.WithInvalidBefore].
func (t *Transport) Invalidate() { t.source.Invalidate() }

// RoundTrip implements [http.RoundTripper]. It honours the request's context.
// It fails with the errors of [auth.GetAccessToken] and of the base.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// The header Host counts too, because one address can serve several hosts.
	if !t.lists(req.URL.Host) || req.Host != "" && !t.lists(req.Host) {
		return t.base.RoundTrip(req)
	}
	if req.URL.Scheme != "https" {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper always closes it
		}
		return nil, self.Misconfigured("use https", "a token is not sent to %q without encryption", req.URL.Host)
	}
	return (&oauth2.Transport{Base: t.base, Source: &TokenSource{req.Context(), t.source}}).RoundTrip(req)
}

func (t *Transport) lists(host string) bool {
	canonical, ok := canonicalHost(host)
	return ok && slices.Contains(t.hosts, canonical)
}

// CloseIdleConnections closes the idle connections of the base.
// [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
