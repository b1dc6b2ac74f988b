package exchange

import (
	"context"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
)

// TokenSource hands access tokens to clients of golang.org/x/oauth2. It is safe for concurrent use.
type TokenSource struct {
	ctx    context.Context // Token has none
	source *auth.AccessTokenSource
}

var _ oauth2.TokenSource = (*TokenSource)(nil)

// NewTokenSource returns an oauth2.TokenSource for the options of auth.GetAccessToken. Its Token method has no context, so
// it uses ctx: once that has ended, every call fails. Errors are those of auth.GetAccessToken; a token that is not an access
// token is ErrMisconfigured. Each call returns a token of its own.
//
// Give it a cache with auth.WithCache. oauth2.NewClient keeps the token until it expires, so a ServiceAccount that is
// deleted keeps its access until then; NewTransport does not, and honours the context of each request.
func (p *Provider) NewTokenSource(ctx context.Context, opts ...auth.Option) *TokenSource {
	return &TokenSource{ctx: ctx, source: auth.NewAccessTokenSource(p, opts...)}
}

// Invalidate has the token replaced, because a service has refused it: see auth.WithInvalidBefore.
func (s *TokenSource) Invalidate() { s.source.Invalidate() }

// Token implements oauth2.TokenSource.
func (s *TokenSource) Token() (*oauth2.Token, error) { return oauth2Token(s.source.Token(s.ctx)) }

func oauth2Token(token auth.Token, err error) (*oauth2.Token, error) {
	if err != nil {
		return nil, err
	}
	own, err := FromToken(token)
	if err != nil {
		return nil, err
	}
	return own.OAuth2Token()
}
