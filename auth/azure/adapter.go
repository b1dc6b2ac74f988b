package azure

import (
	"context"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth"
)

// TokenCredential hands access tokens to clients of the Azure SDK. It is safe for concurrent use.
type TokenCredential struct {
	provider *Provider
	opts     []auth.Option
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
	return &TokenCredential{provider: p, opts: slices.Clip(opts)}
}

// GetToken implements azcore.TokenCredential. It honours the context of each call, and its errors are those of
// auth.GetAccessToken.
//
// The scopes of the call replace those of auth.WithScopes. A tenant has to be that of the identity, or the call is refused
// with ErrMisconfigured. Claims, which are the answer to a challenge, get a new token with these claims, since the resource
// has refused the one that is cached: at most every ten seconds, and those who answer the same challenge at the same time
// share it. With EnableCAE the resource is told that challenges are understood.
func (c *TokenCredential) GetToken(ctx context.Context, request policy.TokenRequestOptions) (azcore.AccessToken, error) {
	opts, err := c.options(request)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	token, err := auth.GetAccessToken(ctx, c.provider, opts...)
	if err == nil && request.Claims != "" && isCached(opts) {
		// What the cache holds for these claims may be what was refused, or what somebody else has got for them just now.
		token, err = auth.GetAccessToken(ctx, c.provider, append(opts, auth.WithRejected(token))...)
	}
	if err != nil {
		return azcore.AccessToken{}, err
	}
	own, err := FromToken(token)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return own.AccessToken(), nil
}

func (c *TokenCredential) options(request policy.TokenRequestOptions) ([]auth.Option, error) {
	opts := c.opts
	if len(request.Scopes) > 0 {
		opts = append(opts, auth.WithScopes(slices.Clone(request.Scopes)...))
	}
	if request.TenantID != "" {
		opts = append(opts, withTenant(request.TenantID))
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

// isCached reports whether asking again is not another exchange.
func isCached(opts []auth.Option) bool {
	var o auth.Options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o.Cache.Enabled()
}
