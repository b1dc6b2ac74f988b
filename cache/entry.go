package cache

import (
	"math"
	"math/rand/v2"
	"time"
)

// instant is one moment on both clocks, in nanoseconds.
type instant struct {
	wall int64 // since 1970; jumps when somebody sets the clock
	mono int64 // since the cache was made; stands still while the machine is suspended
}

func instantAt(t, base time.Time) instant {
	return instant{wall: t.UnixNano(), mono: int64(t.Sub(base))}
}

func (i instant) add(d time.Duration) instant {
	return instant{wall: i.wall + int64(d), mono: i.mono + int64(d)}
}

// before reports whether i lies before other on both clocks.
func (i instant) before(other instant) bool {
	return i.wall < other.wall && i.mono < other.mono
}

// entry is small: there may be very many.
type entry struct {
	token      Token
	minted     instant
	soft, hard uint32 // milliseconds after that
	life       uint32 // until the real expiry, or the longest time that fits
}

// fresh entries are served without any I/O.
func (e *entry) fresh(now instant) bool { return now.before(e.minted.add(millis(e.soft))) }

// valid entries may be served.
func (e *entry) valid(now instant) bool { return now.before(e.minted.add(millis(e.hard))) }

// lasts reports whether the token is valid for d more, or for three quarters of its lifetime where d is longer than that:
// a token that never lasts long enough must not cause an exchange for every request.
func (e *entry) lasts(d time.Duration, now instant) bool {
	life := millis(e.life)
	return d <= 0 || now.before(e.minted.add(life-min(d, life/4*3)))
}

// replaceAfter is how old a token has to be before it can be invalid.
const replaceAfter = 10 * time.Second

func (e *entry) isReplaceable(now instant) bool { return now.mono-e.minted.mono >= int64(replaceAfter) }

func millis(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

const (
	// maxMargin is how long before its expiry a token is no longer handed out, so that it does not expire in the
	// hands of the receiver. Tokens that live shorter than ten times that have a tenth of their life.
	maxMargin = 30 * time.Second
	// softShare and softJitter say, in percent of the remaining life, when a token is renewed ahead of time.
	softShare  = 80
	softJitter = 5
)

// newEntry is for a token with the given remaining life, which must be positive.
func newEntry(token Token, life, maxDuration time.Duration, now instant) entry {
	e := entry{token: token, minted: now, life: uint32(min(life/time.Millisecond, math.MaxUint32))} //nolint:gosec // at most that
	life -= min(maxMargin, life/10)
	life = min(life, maxDuration)
	share := softShare - softJitter*rand.Float64() //nolint:gosec // spreads load, keeps no secret
	soft := time.Duration(float64(life) * share / 100)
	e.soft, e.hard = uint32(soft/time.Millisecond), uint32(life/time.Millisecond) //nolint:gosec // at most MaxDuration
	return e
}
