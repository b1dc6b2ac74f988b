package auth

import (
	"slices"
	"sync/atomic"
	"time"
)

// invalidation is the time at which a service last refused a credential of one adapter. The zero value is ready for use.
type invalidation struct{ at atomic.Pointer[time.Time] }

func (i *invalidation) set(t time.Time) { i.at.Store(&t) }

// observedBy returns options that also apply the time, as it is when they are resolved.
func (i *invalidation) observedBy(opts []Option) []Option {
	return slices.Clip(append(slices.Clone(opts), func(o *Options) { o.invalidBefore = i.later(o.invalidBefore) }))
}

func (i *invalidation) later(t time.Time) time.Time {
	if at := i.at.Load(); at != nil {
		return later(t, *at)
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
