package cache

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// instant is one moment on both clocks, in nanoseconds.
type instant struct {
	wall int64 // since 1970; jumps when the clock is set
	mono int64 // since the cache was made; stands still while the machine is suspended
}

func instantAt(t, base time.Time) instant {
	return instant{wall: t.UnixNano(), mono: int64(t.Sub(base))}
}

func (i instant) add(d time.Duration) instant {
	return instant{wall: i.wall + int64(d), mono: i.mono + int64(d)}
}

// sub returns the shorter time since other.
func (i instant) sub(other instant) time.Duration {
	return time.Duration(min(i.wall-other.wall, i.mono-other.mono))
}

// before reports whether i lies before other on both clocks.
func (i instant) before(other instant) bool {
	return i.wall < other.wall && i.mono < other.mono
}

const (
	// maxMargin is how long before its expiry a token is no longer handed out, so that it does not expire in the hands of
	// the receiver. The margin is at most a tenth of the token's lifetime.
	maxMargin = 30 * time.Second
	// softShare and softJitter set, in percent of the remaining lifetime, when a token is renewed ahead of time.
	softShare  = 80
	softJitter = 5
	// replaceAfter is the age from which a token can be invalid.
	replaceAfter = 10 * time.Second
	// maxLife is the longest lifetime that matters: of a longer one, a quarter lasts as long as the token is kept.
	maxLife = 4 * MaxDuration

	sweepEvery = 30 * time.Second
	sweepBatch = 256
)

// entry is immutable. From the time at which its token was minted, it is fresh until soft, valid until hard, and really expires after
// life.
type entry struct {
	token            Token
	minted           instant
	soft, hard, life time.Duration
}

// newEntry returns the entry of a token with the given remaining lifetime, which must be positive.
func newEntry(token Token, life, maxDuration time.Duration, now instant) *entry {
	hard := min(life-min(maxMargin, life/10), maxDuration)
	share := softShare - softJitter*rand.Float64() //nolint:gosec // spreads load, keeps no secret
	return &entry{token: token, minted: now, soft: time.Duration(float64(hard) * share / 100), hard: hard, life: min(life, maxLife)}
}

// fresh entries are served without any I/O.
func (e *entry) fresh(now instant) bool { return now.before(e.minted.add(e.soft)) }

// valid entries may be served.
func (e *entry) valid(now instant) bool { return now.before(e.minted.add(e.hard)) }

// lasts implements Request.MinimumLifetime.
func (e *entry) lasts(d time.Duration, now instant) bool {
	return d <= 0 || now.before(e.minted.add(e.life-min(d, e.life/4*3)))
}

func (e *entry) isReplaceable(now instant) bool { return now.mono-e.minted.mono >= int64(replaceAfter) }

// sweepUntilClosed removes what has expired and is no longer requested.
func (c *TokenCache) sweepUntilClosed() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			sweep(c, c.entries, func(e *entry, now instant) bool { return !e.valid(now) })
			sweep(c, c.failures, failure.forgotten)
			sweep(c, c.groups, (*groupFailure).forgotten)
		}
	}
}

// sweep holds the lock for a batch of keys at a time, so that callers need not wait for a large cache.
func sweep[V any](c *TokenCache, from *simplelru.LRU[Key, V], expired func(V, instant) bool) {
	c.mu.Lock()
	keys := from.Keys()
	c.mu.Unlock()
	for batch := range slices.Chunk(keys, sweepBatch) {
		now := c.now()
		c.mu.Lock()
		for _, key := range batch {
			if v, ok := from.Peek(key); ok && expired(v, now) {
				from.Remove(key)
			}
		}
		c.mu.Unlock()
	}
}
