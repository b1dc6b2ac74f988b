package gcp

import (
	"context"

	cloudauth "cloud.google.com/go/auth"
	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
)

// TokenSource returns access tokens to clients of golang.org/x/oauth2. It is
// safe for concurrent use.
type TokenSource struct {
	ctx    context.Context
	source *auth.AccessTokenSource
}

var _ oauth2.TokenSource = (*TokenSource)(nil)

// NewTokenSource returns an oauth2.TokenSource with a Provider of its own, for
// the options of [auth.GetAccessToken]. To make many, share a Provider and use
// its method. The method Token takes no context, so all calls use ctx.
//
// Clients ask for a token before every request. Without [auth.WithCache] the
// result keeps it itself, so each of several makes exchanges of its own.
func NewTokenSource(ctx context.Context, opts ...auth.Option) *TokenSource {
	return (&Provider{}).NewTokenSource(ctx, opts...)
}

// NewTokenSource returns an oauth2.TokenSource that uses p.
func (p *Provider) NewTokenSource(ctx context.Context, opts ...auth.Option) *TokenSource {
	return &TokenSource{ctx, auth.NewAccessTokenSource(p, opts...)}
}

// Invalidate makes the next call return a new token, after a service has
// refused the last one. An oauth2.ReuseTokenSource around it keeps the old one.
func (s *TokenSource) Invalidate() { s.source.Invalidate() }

// Token implements oauth2.TokenSource. It fails with the errors of
// [auth.GetAccessToken].
func (s *TokenSource) Token() (*oauth2.Token, error) {
	token, err := tokenOf(s.source.Token(s.ctx))
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: token.AccessToken(), TokenType: tokenType, Expiry: token.ExpiresAt()}, nil
}

// Credentials returns access tokens to clients of Google's SDK. Pass its field
// Credentials to them.
type Credentials struct {
	*cloudauth.Credentials
	source *auth.AccessTokenSource
}

// NewCredentials returns credentials of cloud.google.com/go/auth with a
// Provider of their own, for the options of [auth.GetAccessToken]. To make
// many, share a Provider and use its method.
//
// Clients ask for a token before every request. Without [auth.WithCache] the
// result keeps it itself, so each of several makes exchanges of its own.
func NewCredentials(opts ...auth.Option) *Credentials {
	return (&Provider{}).NewCredentials(opts...)
}

// NewCredentials returns credentials of cloud.google.com/go/auth that use p.
// They honour the context of each call. NewCredentials makes no request: in a
// reconciler, call [Provider.GetCredentials].
func (p *Provider) NewCredentials(opts ...auth.Option) *Credentials {
	return p.credentials(auth.NewAccessTokenSource(p, opts...))
}

// GetCredentials obtains the first token as [auth.GetAccessToken] does, with
// the patience of a reconciler and its errors, and returns credentials of
// cloud.google.com/go/auth that use p.
func (p *Provider) GetCredentials(ctx context.Context, opts ...auth.Option) (*Credentials, error) {
	source, err := auth.GetAccessTokenSource(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	return p.credentials(source), nil
}

func (p *Provider) credentials(source *auth.AccessTokenSource) *Credentials {
	return &Credentials{source: source, Credentials: cloudauth.NewCredentials(&cloudauth.CredentialsOptions{
		TokenProvider: tokenProvider{source},
		UniverseDomainProvider: cloudauth.CredentialsPropertyFunc(func(context.Context) (string, error) {
			return p.universe(), nil
		}),
	})}
}

// Invalidate makes the next call return a new token, after a service has
// refused the last one.
func (c *Credentials) Invalidate() { c.source.Invalidate() }

type tokenProvider struct{ source *auth.AccessTokenSource }

// Token implements the TokenProvider of cloud.google.com/go/auth. It fails with
// the errors of auth.GetAccessToken.
func (t tokenProvider) Token(ctx context.Context) (*cloudauth.Token, error) {
	token, err := tokenOf(t.source.Token(ctx))
	if err != nil {
		return nil, err
	}
	return &cloudauth.Token{Value: token.AccessToken(), Type: tokenType, Expiry: token.ExpiresAt()}, nil
}

func tokenOf(token auth.Token, err error) (*Token, error) {
	if err != nil {
		return nil, err
	}
	return FromToken(token)
}
