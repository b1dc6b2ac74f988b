package cache

import (
	"math/rand/v2"
	"time"
)

const (
	// maxMargin is the time before its expiry from which a token is no longer
	// returned, so that it does not expire while the receiver uses it. The
	// margin is at most a tenth of the token's lifetime.
	maxMargin = 30 * time.Second
	// softShare and softJitter set, in percent of the remaining lifetime, when
	// a token is renewed ahead of time.
	softShare  = 80
	softJitter = 5
	// replaceAfter is the age from which a token can be invalid.
	replaceAfter = 10 * time.Second
)

// entry is immutable. From the time at which its token was minted, it is fresh
// until soft, valid until hard, and really expires after life.
type entry struct {
	token            Token
	until            int64 // Minted.Until in Unix nanoseconds; zero for none
	minted           instant
	soft, hard, life time.Duration
}

// newEntry returns the entry of a token with the given remaining lifetime,
// which must be positive.
func newEntry(of Minted, life, maxDuration time.Duration, now instant) *entry {
	hard := min(life-min(maxMargin, life/10), maxDuration)
	share := softShare - softJitter*rand.Float64() //nolint:gosec // spreads load, keeps no secret
	// A longer life does not matter: a quarter of it lasts as long as the token
	// is kept.
	e := &entry{token: of.Token, minted: now, hard: hard, life: min(life, 4*maxDuration)}
	e.soft = time.Duration(float64(hard) * share / 100)
	if !of.Until.IsZero() {
		e.until = of.Until.UnixNano()
	}
	return e
}

// result returns what the exchange returned.
func (e *entry) result() Minted {
	m := Minted{Token: e.token}
	if e.until != 0 {
		m.Until = time.Unix(0, e.until)
	}
	return m
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
