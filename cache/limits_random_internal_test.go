package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// Exchanges arrive, run, give up and end in any order: no tenant has more slots
// and no provider more exchanges than it may, no slot is free while an exchange
// waits for it, and nothing is kept at the end.
func TestLimitsAddUp(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time
			l := newLimits()
			l.perTenant, l.perProvider, l.starts = 1+r.IntN(3), 5+r.IntN(20), rate.NewLimiter(rate.Limit(5+r.IntN(10)), 1)
			providers, tenants := 1+r.IntN(6), 1+r.IntN(60)
			upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
			users, all := map[tenantAt]*atomic.Int64{}, sync.WaitGroup{}
			for range 400 {
				w := tenantAt{fmt.Sprint(r.IntN(tenants)), fmt.Sprint(r.IntN(providers))}
				start, patience, takes := upTo(time.Minute), upTo(time.Minute), upTo(2*time.Second)
				if r.IntN(3) == 0 {
					takes = upTo(time.Minute)
				}
				if users[w] == nil {
					users[w] = &atomic.Int64{}
				}
				own := users[w]
				all.Go(func() {
					time.Sleep(start)
					own.Add(1)
					defer own.Add(-1)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					leave, err := l.enter(ctx, w, 10*time.Second, func() {})
					if err == nil {
						time.Sleep(takes)
						leave()
					}
				})
			}
			for range 150 { // longer than the last start, its patience and its exchange
				time.Sleep(time.Duration(1+r.Int64N(1999)) * time.Millisecond)
				synctest.Wait()
				addUp(t, l, users)
			}
			all.Wait()
			expectUnused(t, l)
		})
	}
}

func addUp(t *testing.T, l *limits, usersOf map[tenantAt]*atomic.Int64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var taken, users, running int
	for tenant, count := range usersOf {
		own, unuse := l.slots.Use(tenant)
		unuse()
		n, wanted := len(own.taken), int(count.Load())
		taken, users = taken+n, users+wanted
		if n > l.perTenant || n < min(wanted, l.perTenant) {
			t.Errorf("%v: %d of %d slots are taken for %d exchanges", tenant, n, l.perTenant, wanted)
		}
	}
	for provider, n := range l.running {
		running += n
		if n < 1 || n > l.perProvider {
			t.Errorf("%d exchanges with provider %q run, %d may", n, provider, l.perProvider)
		}
	}
	forSlot, forRate := int(l.queuedForSlot.Load()), int(l.queuedForRate.Load())
	if users != taken+forSlot || taken != running+forRate {
		t.Errorf("%d exchanges, %d slots taken, %d wait for one, %d for their turn, %d run", users, taken, forSlot, forRate,
			running)
	}
}
