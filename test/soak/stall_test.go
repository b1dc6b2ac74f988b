package soak

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// stalls knows when this process got no processor. No component is to blame for
// what is late because of that.
type stalls struct {
	mu      sync.Mutex
	seen    []stall
	longest time.Duration
	// goroutines is the most that there were at once.
	goroutines int
}

type stall struct{ from, to time.Time }

// watch looks at the clock until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	const every, longer = 10 * time.Millisecond, 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		s.mu.Lock()
		s.goroutines = max(s.goroutines, runtime.NumGoroutine())
		s.mu.Unlock()
		if gap := now.Sub(last); gap > longer {
			s.mu.Lock()
			s.seen, s.longest = append(s.seen, stall{last, now}), max(s.longest, gap)
			s.mu.Unlock()
		}
		last = now
	}
}

// within adds up those between two times.
func (s *stalls) within(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.seen {
		first, last := one.from, one.to
		if first.Before(from) {
			first = from
		}
		if last.After(to) {
			last = to
		}
		sum += max(0, last.Sub(first))
	}
	return sum
}

func (s *stalls) max() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}
