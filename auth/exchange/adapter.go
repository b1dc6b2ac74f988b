package exchange

import (
	"context"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
)

type tokenSource struct {
	ctx      context.Context // Token has none
	provider *Provider
	opts     []auth.Option
}

// NewTokenSource returns an oauth2.TokenSource for the options of auth.GetAccessToken. Its Token method has no context, so
// it uses ctx: once that has ended, every call fails. Errors are those of auth.GetAccessToken; a token that is not an access
// token is ErrMisconfigured. It is safe for concurrent use, and each call returns a token of its own.
//
// Give it a cache with auth.WithCache. oauth2.NewClient keeps the token until it expires, so a ServiceAccount that is
// deleted keeps its access until then; NewTransport does not, and honours the context of each request.
func (p *Provider) NewTokenSource(ctx context.Context, opts ...auth.Option) oauth2.TokenSource {
	return &tokenSource{ctx: ctx, provider: p, opts: opts}
}

// Token implements oauth2.TokenSource.
func (s *tokenSource) Token() (*oauth2.Token, error) {
	return s.provider.oauth2Token(s.ctx, s.opts)
}

func (p *Provider) oauth2Token(ctx context.Context, opts []auth.Option) (*oauth2.Token, error) {
	token, err := auth.GetAccessToken(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	own, err := FromToken(token)
	if err != nil {
		return nil, err
	}
	return own.OAuth2Token()
}
