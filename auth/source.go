package auth

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// AccessTokenSource gets access tokens with the same options over and over, as clients of SDKs do before each of their
// requests. It does what GetAccessToken does, which it saves from looking at options that cannot have changed: a token of
// the controller's own that is cached costs little more than the look-up. It is safe for concurrent use.
type AccessTokenSource struct {
	provider    Provider
	opts        []Option
	known       atomic.Pointer[knownKey]
	invalidated invalidation
}

// knownKey is where the token is cached, once a call has found out that its key depends on nothing but the options.
type knownKey struct {
	key    cache.Key
	cache  *cache.TokenCache
	object cache.InvolvedObject
	lasts  time.Duration
}

// NewAccessTokenSource returns a source for the options of GetAccessToken. Neither they nor the fields of the provider may
// change any more.
func NewAccessTokenSource(provider Provider, opts ...Option) *AccessTokenSource {
	s := &AccessTokenSource{provider: provider}
	s.opts = s.invalidated.observedBy(opts)
	return s
}

// Invalidate has the tokens of the source replaced, as WithInvalidBefore of this moment does, because a service has refused one.
func (s *AccessTokenSource) Invalidate() { s.invalidated.set(time.Now()) }

// Token is GetAccessToken, except that it waits for as long as ctx allows, without the bound of cache.WithPatience. With a
// ServiceAccount, that is read each time; the Policy's functions are asked each time. The options of the call follow those of the source.
func (s *AccessTokenSource) Token(ctx context.Context, ofCall ...Option) (Token, error) {
	if k := s.known.Load(); k != nil && len(ofCall) == 0 {
		if token, ok := k.cache.Get(k.key, k.object, k.lasts, s.invalidated.time()); ok {
			return token, nil
		}
	}
	return s.get(ctx, ofCall)
}

func (s *AccessTokenSource) get(ctx context.Context, ofCall []Option) (token Token, err error) {
	c := beginCall(s.provider, opAccessToken, append(s.opts, ofCall...))
	defer c.end(&token, &err)
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	token, err = c.accessToken(ctx)
	if err == nil && len(ofCall) == 0 && s.known.Load() == nil && c.dependsOnOptionsOnly() {
		s.known.Store(&knownKey{c.key.sum(), c.opts.Cache, c.opts.InvolvedObject, c.opts.MinimumLifetime})
	}
	return token, err
}

// dependsOnOptionsOnly is false where something has to be looked at on every call: a ServiceAccount, the token that a caller
// holds, a function of the Policy.
func (c *call) dependsOnOptionsOnly() bool {
	p := c.opts.Policy
	return !c.hasSubject() && c.opts.SubjectToken == nil &&
		p.Authorize == nil && p.AllowCrossNamespace == nil && p.AllowProxy == nil
}

// invalidation is the time at which a service last refused a credential of one adapter. The zero value is ready for use.
type invalidation struct{ at atomic.Pointer[time.Time] }

func (i *invalidation) set(t time.Time) { i.at.Store(&t) }

func (i *invalidation) time() (t time.Time) {
	if at := i.at.Load(); at != nil {
		t = *at
	}
	return t
}

// observedBy returns the options of an adapter. They end with the time as it is when they are resolved. The adapter's callers wait for
// as long as their contexts allow, because clients of SDKs do not come back.
func (i *invalidation) observedBy(opts []Option) []Option {
	return slices.Clip(append(slices.Clone(opts), func(o *Options) {
		o.patient, o.renews = true, true
		if t := i.time(); !t.IsZero() {
			o.invalidBefore = t
		}
	}))
}
