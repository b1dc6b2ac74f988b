package auth

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// AccessTokenSource gets access tokens with the same options over and over, as clients of SDKs do before each of their
// requests. It is safe for concurrent use.
type AccessTokenSource struct {
	provider    Provider
	opts        []Option
	invalidated invalidation
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
	return GetAccessToken(ctx, s.provider, append(s.opts, ofCall...)...)
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
