package gcp

import (
	"context"

	cloudauth "cloud.google.com/go/auth"
	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
)

// NewTokenSource returns an oauth2.TokenSource for the options of auth.GetAccessToken. It has a Provider of its own; use the
// method of a Provider that you share if you make many.
//
// Its method Token takes no context, so ctx is that of all calls. It is safe for concurrent use.
//
// Give it a cache with auth.WithCache: clients ask for a token before every request.
func NewTokenSource(ctx context.Context, opts ...auth.Option) oauth2.TokenSource {
	return (&Provider{}).NewTokenSource(ctx, opts...)
}

// NewTokenSource returns an oauth2.TokenSource that uses p.
func (p *Provider) NewTokenSource(ctx context.Context, opts ...auth.Option) oauth2.TokenSource {
	return tokenSource{ctx, p, opts}
}

type tokenSource struct {
	ctx      context.Context
	provider *Provider
	opts     []auth.Option
}

// Token implements oauth2.TokenSource. Its errors are those of auth.GetAccessToken.
func (s tokenSource) Token() (*oauth2.Token, error) {
	token, err := s.provider.accessToken(s.ctx, s.opts)
	if err != nil {
		return nil, err
	}
	return token.OAuth2Token(), nil
}

// NewCredentials returns credentials of cloud.google.com/go/auth for the options of auth.GetAccessToken, as the clients of
// Google's SDK take them. They have a Provider of their own; use the method of a Provider that you share if you make many.
//
// Give them a cache with auth.WithCache: clients ask for a token before every request.
func NewCredentials(opts ...auth.Option) *cloudauth.Credentials {
	return (&Provider{}).NewCredentials(opts...)
}

// NewCredentials returns credentials of cloud.google.com/go/auth that use p. They honour the context of each call.
func (p *Provider) NewCredentials(opts ...auth.Option) *cloudauth.Credentials {
	return cloudauth.NewCredentials(&cloudauth.CredentialsOptions{
		TokenProvider: tokenProvider{p, opts},
		UniverseDomainProvider: cloudauth.CredentialsPropertyFunc(func(context.Context) (string, error) {
			return p.universe(), nil
		}),
	})
}

type tokenProvider struct {
	provider *Provider
	opts     []auth.Option
}

// Token implements the TokenProvider of cloud.google.com/go/auth. Its errors are those of auth.GetAccessToken.
func (t tokenProvider) Token(ctx context.Context) (*cloudauth.Token, error) {
	token, err := t.provider.accessToken(ctx, t.opts)
	if err != nil {
		return nil, err
	}
	return token.AuthToken(), nil
}

func (p *Provider) accessToken(ctx context.Context, opts []auth.Option) (*Token, error) {
	token, err := auth.GetAccessToken(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	return FromToken(token)
}
