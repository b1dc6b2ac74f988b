package soak

import "time"

// window is a time in which something is wrong.
type window struct {
	from, to time.Time // to is zero until it has ended
	of       func(s *side, kind string) bool
}

// fault opens a window.
func (w *environment) fault(of func(s *side, kind string) bool) (end func()) {
	added := &window{from: time.Now(), of: of}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.windows = append(w.windows, added)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		added.to = time.Now()
	}
}

// faulty reports whether something was wrong with a cloud at any time between
// the two. No kind means all.
func (w *environment) faulty(s *side, kind string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, window := range w.windows {
		if window.from.Before(to) && (window.to.IsZero() || window.to.After(from)) && window.of(s, kind) {
			return true
		}
	}
	return false
}

func clouds(_ *side, kind string) bool { return !surroundings(kind) }
