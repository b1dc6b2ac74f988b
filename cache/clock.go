package cache

import "time"

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
