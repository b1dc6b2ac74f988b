package cache

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Defaults and bounds of the options.
const (
	// MaxDuration is the longest time that a token is kept, and the default of
	// WithMaxDuration.
	MaxDuration = time.Hour

	mintTimeout                  = 30 * time.Second // for an exchange, and for its turn of the rate
	defaultPatience              = 5 * time.Second
	defaultRate                  = 1000 // a second
	defaultBurst                 = 500
	defaultMaxExchangesPerTenant = 8

	// longest bounds the arithmetic of WithoutMaxDuration.
	longest = 365 * 24 * time.Hour
)

// Option configures a [TokenCache].
type Option func(*TokenCache)

// WithMaxDuration bounds the time that a token is kept, however long it is
// valid. At most [MaxDuration], the default. Trust that was revoked at the
// provider can still be used for that time.
func WithMaxDuration(d time.Duration) Option { return func(c *TokenCache) { c.maxDuration = d } }

// WithoutMaxDuration keeps each token for as long as it is valid, a year at
// most. It takes the place of [WithMaxDuration] in the private cache of one
// client that would otherwise keep its credential itself.
func WithoutMaxDuration() Option {
	return func(c *TokenCache) { c.maxDuration, c.unbounded = longest, true }
}

// WithRate bounds how many exchanges start, over all tenants and providers:
// limit a second, and burst at once. The default is 1,000 a second and a burst
// of 500. Match it to the quotas of the clouds and of the API server. An
// exchange waits for its turn for half a minute, as long as it may take.
// [rate.Inf] removes the bound, and burst then has no meaning.
func WithRate(limit rate.Limit, burst int) Option {
	return func(c *TokenCache) {
		c.limits.starts, c.limits.paced = rate.NewLimiter(limit, burst), rate.NewLimiter(limit, burst)
	}
}

// WithMaxExchangesPerTenant sets the number of slots: how many exchanges of one
// [Request.Tenant] run in parallel with each [Request.Provider], 8 by default.
// An exchange that gets none within two seconds fails with a [LimitError]. It
// fails at once while all slots have been held for longer than the patience of
// [WithPatience].
func WithMaxExchangesPerTenant(n int) Option { return func(c *TokenCache) { c.limits.perTenant = n } }

// WithPatience bounds how long a caller waits for an exchange that has started,
// 5 s by default. The caller then gets a [PendingError], or its old token if
// that is still valid. The exchange goes on, and its result is cached. A wait
// for the turn of the rate does not count. Exchanges that wait for each other
// and callers with [Request.Patient] have no such bound.
func WithPatience(d time.Duration) Option { return func(c *TokenCache) { c.limits.patience = d } }

// WithObserver sets the observer of the cache, such as metrics.Metrics.
func WithObserver(o Observer) Option { return func(c *TokenCache) { c.observer = o } }

func (c *TokenCache) check() error {
	limit, burst := c.limits.starts.Limit(), c.limits.starts.Burst()
	positive := limit > 0 // NaN is not
	switch {
	case c.capacity < 0:
		return fmt.Errorf("the capacity of the token cache cannot be negative, but is %d", c.capacity)
	case !positive || burst < 1 && limit != rate.Inf:
		return fmt.Errorf("exchanges could never start at %v a second with a burst of %d; both must be positive",
			float64(limit), burst)
	case c.limits.perTenant < 1:
		return fmt.Errorf("a tenant needs at least one slot for exchanges, not %d", c.limits.perTenant)
	case c.limits.patience <= 0:
		return fmt.Errorf("the patience of callers must be positive, not %s", c.limits.patience)
	case c.observer == nil:
		return errors.New("the observer is nil; leave the option out")
	}
	if c.unbounded {
		return nil
	}
	return checkMaxDuration(c.maxDuration)
}

func checkMaxDuration(d time.Duration) error {
	if d <= 0 || d > MaxDuration {
		return fmt.Errorf("tokens are cached for more than 0s and at most %s, not for %s", MaxDuration, d)
	}
	return nil
}
