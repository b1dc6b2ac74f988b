package azure

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth"
)

// TokenCredential hands access tokens to clients of the Azure SDK. It is safe for concurrent use.
type TokenCredential struct {
	source *auth.AccessTokenSource
}

var _ azcore.TokenCredential = (*TokenCredential)(nil)

// NewTokenCredential returns an azcore.TokenCredential for the options of auth.GetAccessToken. It has a Provider of its own;
// use the method of a Provider that you share if you make many.
//
// Give it a cache with auth.WithCache: there may be many clients for the same identity.
func NewTokenCredential(opts ...auth.Option) *TokenCredential {
	return (&Provider{}).NewTokenCredential(opts...)
}

// NewTokenCredential returns an azcore.TokenCredential that uses p.
func (p *Provider) NewTokenCredential(opts ...auth.Option) *TokenCredential {
	return &TokenCredential{source: auth.NewAccessTokenSource(p, opts...)}
}

// Invalidate has the tokens for all scopes replaced, because a service has refused one: see auth.WithInvalidBefore.
func (c *TokenCredential) Invalidate() { c.source.Invalidate() }

// GetToken implements azcore.TokenCredential. It honours the context of each call, and its errors are those of
// auth.GetAccessToken.
//
// The scopes of the call replace those of auth.WithScopes. A tenant has to be that of the identity, or the call is refused
// with ErrMisconfigured. Claims, which are the answer to a challenge, get a new token with these claims, since the resource
// has refused the one that is cached: at most every ten seconds, and those who answer the same challenge at the same time
// share it. With EnableCAE the resource is told that challenges are understood.
func (c *TokenCredential) GetToken(ctx context.Context, request policy.TokenRequestOptions) (azcore.AccessToken, error) {
	opts, err := optionsOf(request)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	token, err := c.source.Token(ctx, opts...)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	own, err := FromToken(token)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return own.AccessToken(), nil
}

func optionsOf(request policy.TokenRequestOptions) (opts []auth.Option, err error) {
	if len(request.Scopes) > 0 {
		opts = append(opts, auth.WithScopes(slices.Clone(request.Scopes)...))
	}
	if request.TenantID != "" {
		opts = append(opts, withTenant(request.TenantID))
	}
	if request.Claims != "" {
		opts = append(opts, auth.WithInvalidBefore(time.Now()))
	}
	claims, err := mergeClaims(request.Claims, request.EnableCAE)
	if err != nil {
		return nil, err
	}
	if claims != "" {
		opts = append(opts, withClaims(claims))
	}
	return opts, nil
}
