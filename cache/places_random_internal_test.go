package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever comes, stays, gives up and leaves in which order: the numbers add up, and no place is free that somebody waits for
// who may have it.
func TestPlacesAddUp(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time
			p := newPlaces(1+r.IntN(5), 1+r.IntN(3))
			providers, tenants := 1+r.IntN(6), 1+r.IntN(60)
			upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
			var all sync.WaitGroup
			for range 400 {
				w := whose{fmt.Sprint(r.IntN(tenants)), fmt.Sprint(r.IntN(providers))}
				start, patience, takes := upTo(time.Minute), upTo(time.Minute), upTo(2*slowAfter)
				if r.IntN(3) == 0 {
					takes = upTo(time.Minute)
				}
				all.Go(func() {
					time.Sleep(start)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					held, err := p.take(ctx, w)
					addUp(t, p)
					if err == nil {
						time.Sleep(takes)
						held.leave()
						addUp(t, p)
					}
				})
			}
			all.Wait()
			if p.free != p.all || p.freeSlow != p.all*slowFactor || len(p.lines) != 0 || len(p.services) != 0 || p.turns.Len() != 0 {
				t.Errorf("seed %d: something is left: %+v", seed, p)
			}
		})
	}
}

func addUp(t *testing.T, p *places) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var fast, running, queued int
	for name, s := range p.services {
		fast += s.fast
		waits := s.ready.Len() > 0
		if waits != (s.inTurns != nil) || waits && p.free > 0 && (p.freeSlow >= p.all || s.fast < p.free) {
			t.Errorf("%d places are free and %d for slow ones, and provider %s waits with %d", p.free, p.freeSlow, name, s.fast)
		}
	}
	for whose, l := range p.lines {
		running, queued = running+l.running, queued+l.queue.Len()
		if l.running > p.perTenant || l.service != p.services[whose.provider] {
			t.Errorf("%v has %d of %d places", whose, l.running, p.perTenant)
		}
	}
	slow := p.all*slowFactor - p.freeSlow
	if fast+p.free != p.all || slow+fast != running || running != p.running || queued != p.queued {
		t.Errorf("%d fast, %d slow and %d free of %d; %d of %d run, %d of %d wait", fast, slow, p.free, p.all, running, p.running,
			queued, p.queued)
	}
}
