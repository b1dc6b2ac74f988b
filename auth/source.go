package auth

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// AccessTokenSource gets access tokens with the same options over and over, as
// clients of SDKs do before each of their requests. Without a cache among the
// options it keeps the tokens itself. It is safe for concurrent use.
type AccessTokenSource struct{ adapter *adapter }

// NewAccessTokenSource returns a source for the options of [GetAccessToken],
// without a request. A reconciler calls [GetAccessTokenSource] instead. Neither
// the options nor the fields of the provider may change any more.
func NewAccessTokenSource(provider Provider, opts ...Option) *AccessTokenSource {
	return &AccessTokenSource{newAdapter(provider, opts)}
}

// GetAccessTokenSource obtains the first access token as [GetAccessToken] does,
// within [cache.WithPatience] and with its errors. It returns the source of
// that token and of later ones. The source itself waits for as long as the
// context of each call allows. A reconciler handles the error of a new client
// here, and its SDK finds the token in the cache.
func GetAccessTokenSource(ctx context.Context, provider Provider, opts ...Option) (*AccessTokenSource, error) {
	s := NewAccessTokenSource(provider, opts...)
	if _, err := s.Token(ctx, impatient); err != nil {
		return nil, err
	}
	return s, nil
}

// Invalidate replaces the tokens of the source, as [WithInvalidBefore] of this
// moment does. Call it when a service has refused one.
func (s *AccessTokenSource) Invalidate() { s.adapter.invalidate(time.Now()) }

// Token is [GetAccessToken], except that it waits for as long as ctx allows,
// without the bound of [cache.WithPatience]. Each call reads the
// ServiceAccount, if there is one, and calls the Policy's functions. The
// options of the call follow the source's.
func (s *AccessTokenSource) Token(ctx context.Context, ofCall ...Option) (Token, error) {
	return GetAccessToken(ctx, s.adapter.provider, s.adapter.options(ofCall...)...)
}

// adapter holds the state that all adapters have: a provider, the options of
// each call, and the time at which a service last refused a credential.
type adapter struct {
	provider Provider
	opts     []Option
	refused  atomic.Pointer[time.Time]
	own      func() *cache.TokenCache
}

func newAdapter(provider Provider, opts []Option) *adapter {
	a := &adapter{provider: provider, own: sync.OnceValue(newOwnCache)}
	a.opts = slices.Clip(append(slices.Clone(opts), a.complete))
	return a
}

// maxOwnTokens bounds the credentials that an adapter keeps itself. They belong
// to one subject, whose annotations may change, and serve a few registries or
// scopes.
const maxOwnTokens = 64

// newOwnCache needs no Close: it has a goroutine only during an exchange.
func newOwnCache() *cache.TokenCache {
	c, _ := cache.NewTokenCache(maxOwnTokens, cache.WithoutMaxDuration()) // these options are valid
	return c
}

// complete ends the options of a call. The adapter's callers wait for as long
// as their contexts allow, because clients of SDKs do not come back.
func (a *adapter) complete(o *Options) {
	o.patient, o.renews = true, true
	if o.private = !o.Cache.Enabled(); o.private {
		o.Cache = a.own()
	}
	if t := a.refused.Load(); t != nil {
		o.invalidateBefore(*t)
	}
}

// impatient bounds the wait for an adapter whose callers do come back. One that
// keeps its credential itself might be gone by then, and the exchange with it.
func impatient(o *Options) { o.patient = o.private }

func (a *adapter) options(ofCall ...Option) []Option { return append(a.opts, ofCall...) }

// invalidate keeps the latest time: the refusal of an old credential may arrive
// after the refusal of a newer one.
func (a *adapter) invalidate(t time.Time) {
	for {
		last := a.refused.Load()
		if last != nil && !t.After(*last) || a.refused.CompareAndSwap(last, &t) {
			return
		}
	}
}
