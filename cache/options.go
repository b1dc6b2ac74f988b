package cache

import (
	"fmt"
	"time"
)

// Defaults and bounds of the options.
const (
	// MaxDuration is the longest time that a token is kept, and the default of WithMaxDuration.
	MaxDuration = time.Hour

	defaultMintTimeout         = 30 * time.Second
	defaultMaxFlights          = 64
	defaultMaxFlightsPerTenant = 8
)

// Option configures a TokenCache.
type Option func(*TokenCache) error

// WithMaxDuration bounds the time that a token is kept, however long it is valid. At most MaxDuration, the default. It is
// also the time for which trust that was revoked at the provider can still be used.
func WithMaxDuration(d time.Duration) Option {
	return func(c *TokenCache) error {
		if err := checkMaxDuration(d); err != nil {
			return err
		}
		c.maxDuration = d
		return nil
	}
}

func checkMaxDuration(d time.Duration) error {
	if d <= 0 || d > MaxDuration {
		return fmt.Errorf("tokens are cached for more than 0s and at most %s, not for %s", MaxDuration, d)
	}
	return nil
}

// WithMaxFlights bounds how many exchanges run in parallel, 64 by default. Those that have run for longer than a second
// do not count any more, so that a service that hangs does not hold up the others; they are bounded by eight times as
// many. When these run out, each Request.Provider leaves as many of the n places free as it has taken: those of one that hangs
// get half of them at most, rounded up, and the rest is for others (with n = 1 there is none).
func WithMaxFlights(n int) Option {
	return func(c *TokenCache) error {
		if n < 1 {
			return fmt.Errorf("at least one exchange has to be possible, not %d", n)
		}
		c.places.setFree(n)
		return nil
	}
}

// WithMaxFlightsPerTenant bounds how many exchanges of one Request.Tenant run in parallel with each Request.Provider, 8 by default,
// slow ones included.
func WithMaxFlightsPerTenant(n int) Option {
	return func(c *TokenCache) error {
		if n < 1 {
			return fmt.Errorf("at least one exchange has to be possible, not %d", n)
		}
		c.places.perTenant = n
		return nil
	}
}

// WithMintTimeout bounds the time that an exchange takes, 30 s by default, and the time that it waits for its turn.
func WithMintTimeout(d time.Duration) Option {
	return func(c *TokenCache) error {
		if d <= 0 {
			return fmt.Errorf("the time-out of exchanges must be positive, not %s", d)
		}
		c.mintTimeout = d
		return nil
	}
}

// WithObserver has the cache tell an observer what happens, such as metrics.Metrics.
func WithObserver(o Observer) Option {
	return func(c *TokenCache) error {
		if o == nil {
			return fmt.Errorf("the observer is nil; leave the option out")
		}
		c.observer = o
		return nil
	}
}
