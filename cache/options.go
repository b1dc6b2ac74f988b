package cache

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Defaults and bounds of the options.
const (
	// MaxDuration is the longest time that a token is kept, and the default of WithMaxDuration.
	MaxDuration = time.Hour

	defaultMintTimeout         = 30 * time.Second
	defaultRate                = 1000 // a second
	defaultBurst               = 500
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

// WithRate bounds how many exchanges start, over all tenants and providers: limit a second, and burst at once. The default is
// 1,000 a second and a burst of 500. Match it to the quotas of the clouds and of the API server. An exchange waits for its turn
// for as long as it may take; see WithMintTimeout. With rate.Inf there is no bound, and burst has no meaning.
func WithRate(limit rate.Limit, burst int) Option {
	return func(c *TokenCache) error {
		if positive := limit > 0; !positive || burst < 1 && limit != rate.Inf { // NaN is not positive
			return fmt.Errorf("exchanges could never start at %v a second with a burst of %d; both must be positive", float64(limit), burst)
		}
		c.limits.starts = rate.NewLimiter(limit, burst)
		return nil
	}
}

// WithMaxFlightsPerTenant sets the number of slots: how many exchanges of one Request.Tenant run in parallel with each
// Request.Provider, 8 by default. An exchange that gets none within two seconds fails with a LimitError.
func WithMaxFlightsPerTenant(n int) Option {
	return func(c *TokenCache) error {
		if n < 1 {
			return fmt.Errorf("at least one exchange has to be possible, not %d", n)
		}
		c.limits.perTenant = n
		return nil
	}
}

// WithMintTimeout bounds the time that an exchange takes, 30 s by default, and the time that it waits for its turn of the rate.
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
