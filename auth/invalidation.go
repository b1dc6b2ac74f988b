package auth

import (
	"slices"
	"sync/atomic"
	"time"
)

// invalidation is the time at which a service last refused a credential of one adapter. The zero value is ready for use.
type invalidation struct{ at atomic.Pointer[time.Time] }

func (i *invalidation) set(t time.Time) { i.at.Store(&t) }

func (i *invalidation) time() (t time.Time) {
	if at := i.at.Load(); at != nil {
		t = *at
	}
	return t
}

// observedBy returns options that end with the time, as it is when they are resolved.
func (i *invalidation) observedBy(opts []Option) []Option {
	return slices.Clip(append(slices.Clone(opts), func(o *Options) {
		if t := i.time(); !t.IsZero() {
			o.invalidBefore = t
		}
	}))
}
