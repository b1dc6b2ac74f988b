package azure

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth"
)

// TokenCredential returns access tokens to clients of the Azure SDK. It is safe
// for concurrent use.
type TokenCredential struct {
	source *auth.AccessTokenSource
}

var _ azcore.TokenCredential = (*TokenCredential)(nil)

// NewTokenCredential returns an azcore.TokenCredential with a Provider of its
// own, for the options of [auth.GetAccessToken]. To make many, share a Provider
// and use its method.
//
// Pass [auth.WithCache]: many clients can share one identity.
func NewTokenCredential(opts ...auth.Option) *TokenCredential {
	return (&Provider{}).NewTokenCredential(opts...)
}

// NewTokenCredential returns an azcore.TokenCredential that uses p. It makes no
// request: in a reconciler, call [Provider.GetTokenCredential].
func (p *Provider) NewTokenCredential(opts ...auth.Option) *TokenCredential {
	return &TokenCredential{source: auth.NewAccessTokenSource(p, opts...)}
}

// GetTokenCredential obtains the first token as [auth.GetAccessToken] does,
// with the patience of a reconciler and its errors, and returns an
// azcore.TokenCredential that uses p. Pass the scope of the client's service
// with [auth.WithScopes]: another scope needs another token.
func (p *Provider) GetTokenCredential(ctx context.Context, opts ...auth.Option) (*TokenCredential, error) {
	source, err := auth.GetAccessTokenSource(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	return &TokenCredential{source: source}, nil
}

// Invalidate makes the next calls return new tokens for all scopes, after a
// service has refused one.
func (c *TokenCredential) Invalidate() { c.source.Invalidate() }

// GetToken implements azcore.TokenCredential. It honours the context of each
// call, and fails with the errors of [auth.GetAccessToken].
//
// The scopes of the call replace the ones of [auth.WithScopes]. GetToken
// refuses a tenant other than the identity's with ErrMisconfigured. Claims
// answer a challenge: the resource has refused the cached token, so GetToken
// returns a new one with these claims. Concurrent calls with the same claims
// share it, and there is at most one in ten seconds. With EnableCAE the token
// says that the client understands challenges.
func (c *TokenCredential) GetToken(ctx context.Context,
	request policy.TokenRequestOptions) (azcore.AccessToken, error) {
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
