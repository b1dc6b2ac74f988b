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

// slowly returns a Mint that takes d.
func slowly(d time.Duration) func(context.Context) (Token, error) {
	return func(context.Context) (Token, error) {
		time.Sleep(d) // of a bubble
		return token("t", time.Hour), nil
	}
}

// retryAfter returns what the error says, zero if it says nothing.
func retryAfter(err error) time.Duration {
	if hint := find[interface{ RetryAfter() time.Duration }](err); hint != nil {
		return hint.RetryAfter()
	}
	return 0
}

// mustLeave requests a token and checks that the caller leaves without it after
// the given time, and may come back.
func mustLeave(t *testing.T, c *TokenCache, req Request, after time.Duration) {
	t.Helper()
	start := time.Now()
	got, _, err := c.GetOrSet(t.Context(), req)
	if took := time.Since(start); took != after || got != nil || isLimited(err) || retryAfter(err) <= 0 {
		t.Errorf("after %s: %v, %v; retry after %s", took, got, err, retryAfter(err))
	}
}

// A caller leaves after the patience, and later ones at once. The exchange goes
// on and fills the cache. It is no failure of the key.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &recorder{}
		c, m := newTestCache(t, WithObserver(o)), &minter{mint: slowly(7 * time.Second)}
		req := m.request(1, "a")
		mustLeave(t, c, req, 5*time.Second)
		time.Sleep(time.Second)
		mustLeave(t, c, req, 0)
		if s := c.Stats(); s.Failing != nil || s.Waiting != 0 || s.Running != 1 {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, retrieved, err := c.GetOrSet(t.Context(), req); !retrieved || err != nil || m.calls.Load() != 1 {
			t.Errorf("after the exchange: retrieved %t, %v, %d exchanges", retrieved, err, m.calls.Load())
		}
		if o.mints["success"] != 1 || len(o.mints) != 1 {
			t.Errorf("observed %v", o.mints)
		}
	})
}

// The next exchange of the key has its own patience.
func TestPatienceStartsAnewWithEachExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, withMintTimeout(10*time.Second))
		for range 3 {
			mustLeave(t, c, Request{Key: key(1), Mint: plain(hang)}, 5*time.Second)
			time.Sleep(time.Minute)
		}
	})
}

// A caller that wants a renewal gets the old token after the patience.
func TestPatienceWithAnOldToken(t *testing.T) {
	for name, change := range map[string]func(*Request){
		"Fresh":           func(r *Request) { r.fresh = true },
		"MinimumLifetime": func(r *Request) { r.MinimumLifetime = 40 * time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := newTestCache(t), &minter{mint: hourly}
				req := m.request(1, "a")
				old := mustSet(t, c, req)
				time.Sleep(50 * time.Minute)
				m.mint = slowly(7 * time.Second)
				change(&req)
				start := time.Now()
				got, retrieved, err := c.GetOrSet(t.Context(), req)
				if took := time.Since(start); got != old || !retrieved || err != nil || took != 5*time.Second {
					t.Errorf("after %s: %v, retrieved %t, %v", took, got, retrieved, err)
				}
				time.Sleep(3 * time.Second)
				if got := mustSet(t, c, req); got == old {
					t.Error("the renewed token is not there")
				}
			})
		})
	}
}

// A credential that is made of others, one inside the other: the caller leaves
// when the innermost exchange takes too long. The waits of the exchanges for
// each other have no patience, so that all of them succeed.
func TestPatienceOfDerivedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: slowly(7 * time.Second)}
		on := func(n int, inner Request) Request {
			req := Request{Key: key(n), Tenant: "a", Provider: "test", Mint: plain(hourly)}
			req.Needs = func() ([]Request, error) { return []Request{inner}, nil }
			return req
		}
		outer := on(3, on(2, m.request(1, "a")))
		mustLeave(t, c, outer, 5*time.Second)
		mustLeave(t, c, outer, 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, retrieved, err := c.GetOrSet(t.Context(), outer); !retrieved || err != nil || c.Len() != 3 {
			t.Errorf("retrieved %t, %v, %d tokens", retrieved, err, c.Len())
		}
	})
}

// While all slots of a tenant are held longer than the patience, a call does
// not wait for one. Otherwise it does.
func TestNoWaitForSlotsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, WithMaxExchangesPerTenant(2))
		request := func(n int) Request { return Request{Key: key(n), Tenant: "a", Mint: plain(hang)} }
		mustBeLimited := func(n int, after time.Duration) {
			t.Helper()
			start := time.Now()
			if _, _, err := c.GetOrSet(t.Context(), request(n)); !isLimited(err) || time.Since(start) != after {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
		}
		go c.GetOrSet(t.Context(), request(1)) //nolint:errcheck // fails
		time.Sleep(4 * time.Second)
		go c.GetOrSet(t.Context(), request(2)) //nolint:errcheck // fails
		time.Sleep(2 * time.Second)
		mustBeLimited(3, slotWait) // one slot is held for two seconds only
		time.Sleep(3 * time.Second)
		mustBeLimited(3, 0)
		time.Sleep(20 * time.Second)           // the first exchange has ended
		go c.GetOrSet(t.Context(), request(4)) //nolint:errcheck // fails
		synctest.Wait()
		mustBeLimited(3, slotWait)
		c.Close()
		expectUnused(t, c.limits)
	})
}

// workers are those of a controller. They reconcile objects from one queue, and
// queue an object again as the documented Reconciler does.
type workers struct {
	c     *TokenCache
	queue chan *reconciled
	until time.Time
}

type reconciled struct {
	Request
	due      time.Time
	n        int
	late     time.Duration // in total
	longest  time.Duration
	failures int
}

const reconcileEvery = 10 * time.Second

func (w *workers) add(r *reconciled, after time.Duration) {
	r.due = time.Now().Add(after)
	if r.due.Before(w.until) {
		time.AfterFunc(after, func() { w.queue <- r })
	}
}

func (w *workers) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.queue:
			_, _, err := w.c.GetOrSet(ctx, r.Request)
			late := time.Since(r.due)
			r.n, r.late, r.longest = r.n+1, r.late+late, max(r.longest, late)
			again := reconcileEvery
			if err != nil {
				r.failures++
				again = max(retryAfter(err), time.Second)
			}
			w.add(r, again)
		}
	}
}

// Ten workers of a controller reconcile the objects of a tenant whose service
// hangs, and those of a neighbour. The neighbour is hardly late.
func TestTenantThatHangsHoldsNoWorkers(t *testing.T) {
	for name, tc := range map[string]struct {
		objects       int
		key           func(object int) int
		mean, longest time.Duration // that the neighbour is late
	}{
		"one key of ten objects": {10, func(int) int {
			return 0
		}, 500 * time.Millisecond, 5*time.Second + 50*time.Millisecond},
		"a hundred keys": {100, func(n int) int { return n }, 100 * time.Millisecond, 5*time.Second + slotWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const duration = 5 * time.Minute
				w := &workers{c: newTestCache(t), queue: make(chan *reconciled, 1000), until: time.Now().Add(duration)}
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() { w.work(ctx) })
				}
				for n := range tc.objects {
					w.add(&reconciled{Request: Request{Key: key(1000 + tc.key(n)), Tenant: "hangs", Provider: "test",
						Mint: plain(hang)}}, 0)
				}
				r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
				neighbours := make([]*reconciled, 50)
				for n := range neighbours {
					neighbours[n] = &reconciled{Request: Request{Key: key(n), Tenant: "neighbour", Provider: "test",
						Mint: plain(slowly(50 * time.Millisecond))}}
					w.add(neighbours[n], time.Duration(r.Int64N(int64(reconcileEvery))))
				}
				time.Sleep(duration + time.Minute)
				stop()
				all.Wait()
				var late, longest time.Duration
				var n, failures int
				for _, one := range neighbours {
					late, longest, n, failures = late+one.late, max(longest, one.longest), n+one.n, failures+one.failures
				}
				mean := late / time.Duration(n)
				t.Logf("the neighbour was late for %s on average and for %s at most, in %d reconciles", mean, longest, n)
				if failures != 0 || n < 1200 || mean > tc.mean || longest > tc.longest {
					t.Errorf("%d of %d reconciles of the neighbour failed; it was late for %s on average, %s at most", failures, n,
						mean, longest)
				}
				w.c.Close()
				expectUnused(t, w.c.limits)
			})
		})
	}
}

// The error is that of no exchange: an exchange that fails with it, because it
// waited without the context of its own, does not back off.
func TestPatienceOfAPartIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: slowly(7 * time.Second)}
		outer := Request{Key: key(2), Mint: plain(func(context.Context) (Token, error) {
			_, _, err := c.GetOrSet(t.Context(), m.request(1, "a"))
			return nil, fmt.Errorf("wrapped: %w", err)
		})}
		if _, _, err := c.GetOrSet(t.Context(), outer); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		if s := c.Stats(); s.Failing != nil || c.failures.Len() != 0 {
			t.Errorf("it counts as a failure: %+v", s)
		}
	})
}

// A patient caller waits for the exchange. Callers of other patience leave.
func TestPatientCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: slowly(29 * time.Second)}
		go func() { mustLeave(t, c, m.request(1, "a"), 5*time.Second) }()
		req := m.request(1, "a")
		req.Patient = true
		mustSet(t, c, req)
	})
}

func TestWithPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mustLeave(t, newTestCache(t, WithPatience(2*time.Second)), Request{Key: key(1), Mint: plain(slowly(3 * time.Second))},
			2*time.Second)
	})
	for _, d := range []time.Duration{0, -1} {
		if _, err := NewTokenCache(1, WithPatience(d)); err == nil {
			t.Errorf("a patience of %s was accepted", d)
		}
	}
}
