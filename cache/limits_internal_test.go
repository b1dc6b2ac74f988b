package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func hang(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }

// isLimited reports whether a limit refused the exchange.
func isLimited(err error) bool {
	var limit *LimitError
	return errors.As(err, &limit)
}

// askForever makes many tenants request credentials that their service never
// returns, until stop. Their keys begin at first.
func askForever(t *testing.T, c *TokenCache, tenants int, provider string, first int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range tenants {
		req := Request{Key: key(first + n), Tenant: fmt.Sprintf("hangs-%d", n), Provider: provider, Mint: plain(hang)}
		all.Go(func() {
			for wait := time.Duration(n) * 20 * time.Millisecond; ctx.Err() == nil; wait = 10 * time.Second {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
				_, _, _ = c.GetOrSet(ctx, req) // fails
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// expectUnused reports what the limits keep although no exchange runs.
func expectUnused(t *testing.T, l *limits) {
	t.Helper()
	if forSlot, forRate := l.queuedForSlot.Load(), l.queuedForRate.Load(); forSlot+forRate != 0 || l.slots.Len() != 0 ||
		len(l.running) != 0 {
		t.Errorf("kept: %d and %d wait, %d tenants, %d providers", forSlot, forRate, l.slots.Len(), len(l.running))
	}
}

// worstOf makes many tenants use a service that works, and returns the longest
// time that one waited.
func worstOf(t *testing.T, c *TokenCache) (worst time.Duration) {
	t.Helper()
	for n := range 900 {
		start := time.Now()
		_, _, err := c.GetOrSet(t.Context(), Request{Key: key(n), Tenant: fmt.Sprint(n), Provider: "good",
			Mint: plain(func(context.Context) (Token, error) {
				time.Sleep(100 * time.Millisecond)
				return token("t", time.Hour), nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(start))
		time.Sleep(100 * time.Millisecond)
	}
	return worst
}

// Services that hang for any number of tenants do not delay the tenants of a
// service that works.
func TestServicesThatHangForManyTenants(t *testing.T) {
	for _, tc := range []struct{ services, tenants int }{{1, 500}, {1, 1000}, {1, 5000}, {2, 300}, {4, 300}} {
		t.Run(fmt.Sprintf("%d services, %d tenants each", tc.services, tc.tenants), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				for n := range tc.services {
					defer askForever(t, c, tc.tenants, fmt.Sprint("hanging-", n), (n+1)*1_000_000)()
				}
				if worst := worstOf(t, c); worst > 200*time.Millisecond {
					t.Errorf("a tenant of a service that works waited %s", worst)
				}
				if n := c.Stats().Running; n < min(tc.services*tc.tenants, maxRunning)*7/10 {
					t.Errorf("only %d exchanges are running", n)
				}
				c.Close()
				expectUnused(t, c.limits)
			})
		})
	}
}

// A tenant whose one cloud hangs still gets the credentials of another cloud.
func TestTenantOfTwoServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		for n := range 100 {
			go c.GetOrSet(t.Context(),
				Request{Key: key(1000 + n), Tenant: "a", Provider: "hanging", Mint: plain(hang)}) //nolint:errcheck // fails
		}
		synctest.Wait()
		start := time.Now()
		mustSet(t, c, Request{Key: key(1), Tenant: "a", Provider: "good", Mint: plain(hourly)})
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it waited %s", waited)
		}
		if n := c.Stats().Running; n != defaultMaxExchangesPerTenant {
			t.Errorf("%d exchanges of the tenant run with the provider that hangs", n)
		}
	})
}

// Two hundred keys of a tenant that hang, asked for by twenty workers: a worker
// is free after the patience, or without a slot after two seconds, or at once
// if all slots hang.
func TestHangingKeysHoldWorkersBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		keys := make(chan int)
		var workers sync.WaitGroup
		var mu sync.Mutex
		var sum time.Duration
		counts := map[time.Duration]int{}
		for range 20 {
			workers.Go(func() {
				for n := range keys {
					start := time.Now()
					_, _, err := c.GetOrSet(t.Context(), Request{Key: key(n), Tenant: "a", Provider: "hanging", Mint: plain(hang)})
					took := time.Since(start)
					if want := map[bool]time.Duration{true: slotWait, false: defaultPatience}[isLimited(err)]; took != want &&
						took != 0 {
						t.Errorf("key %d took %s: %v", n, took, err)
					}
					mu.Lock()
					sum += took
					counts[took]++
					mu.Unlock()
				}
			})
		}
		for n := range 200 {
			keys <- n
		}
		close(keys)
		workers.Wait()
		t.Logf("a worker was held for %s on average: %v", sum/200, counts)
		if mean := sum / 200; mean > time.Second || counts[0] < 100 ||
			counts[defaultPatience] != defaultMaxExchangesPerTenant {
			t.Errorf("a worker was held for %s on average: %v", mean, counts)
		}
	})
}

// An exchange without a slot is no failure of the key: nothing backs off,
// nothing is dropped, and the next call tries at once.
func TestLimitedExchangeIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &recorder{}
		c := newTestCache(t, WithMaxExchangesPerTenant(1), WithObserver(o), WithPatience(time.Minute))
		m := &minter{mint: hourly}
		old := mustSet(t, c, m.request(1, "a"))
		time.Sleep(50 * time.Minute) // the token is stale
		free := make(chan struct{})
		go c.GetOrSet(t.Context(),
			Request{Key: key(2), Tenant: "a", Provider: "test", //nolint:errcheck // only holds the slot
				Mint: plain(func(context.Context) (Token, error) { <-free; return token("t", time.Hour), nil })})
		synctest.Wait()

		for range 3 {
			if got, retrieved, err := c.GetOrSet(t.Context(), m.request(1, "a")); got != old || !retrieved || err != nil {
				t.Errorf("a refresh without a slot: %v, retrieved %t, %v", got, retrieved, err)
			}
			fresh := m.request(1, "a")
			fresh.fresh = true
			if got, _, err := c.GetOrSet(t.Context(), fresh); got != old || err != nil {
				t.Errorf("a caller that waits for the refresh: %v, %v", got, err)
			}
		}
		_, _, err := c.GetOrSet(t.Context(), m.request(3, "a"))
		var limit *LimitError
		if !errors.As(err, &limit) || limit.RetryAfter() != time.Second ||
			!strings.Contains(err.Error(), `all 1 slots of tenant "a" for exchanges with provider "test"`) {
			t.Errorf("got %v", err)
		}
		derived := m.request(4, "a")
		derived.Needs = func() ([]Request, error) { return []Request{m.request(3, "a")}, nil }
		if _, _, err := c.GetOrSet(t.Context(), derived); !isLimited(err) {
			t.Errorf("a credential that is made of another: %v", err)
		}
		synctest.Wait()
		if s := c.Stats(); s.Failing != nil || c.failures.Len() != 0 {
			t.Errorf("it counts as a failure: %+v", s)
		}
		if n := o.mints["limited"]; n != 6 || o.mints["throttled"] != 0 || o.refreshes["limited"] != 3 {
			t.Errorf("observed %v, refreshes %v", o.mints, o.refreshes)
		}
		close(free)
		mustSet(t, c, m.request(3, "a")) // at once, since nothing backs off
		if s := c.Stats(); s.Items != 3 {
			t.Errorf("stats %+v", s)
		}
		c.Close()
		expectUnused(t, c.limits)
	})
}

// recorder counts results. The test must not read them while flights end.
type recorder struct {
	noObserver
	mu               sync.Mutex
	mints, refreshes map[string]int
}

func (r *recorder) Mint(_, result string, _ time.Duration) { r.add(&r.mints, result) }
func (r *recorder) Refresh(result string)                  { r.add(&r.refreshes, result) }

func (r *recorder) add(to *map[string]int, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *to == nil {
		*to = map[string]int{}
	}
	(*to)[result]++
}

// Two tenants share a key. The other one never waits for a slot of the one
// without, which gets what the other one minted.
func TestSharedKeyOfTenantWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithMaxExchangesPerTenant(1)), &minter{mint: hourly}
		go c.GetOrSet(t.Context(),
			Request{Key: key(1), Tenant: "bad", Provider: "test", Mint: plain(hang)}) //nolint:errcheck // fails
		synctest.Wait()
		failed := make(chan error)
		go func() {
			_, _, err := c.GetOrSet(t.Context(), m.request(2, "bad"))
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		var good sync.WaitGroup
		for _, tenant := range []string{"good", "better"} {
			good.Go(func() {
				if _, _, err := c.GetOrSet(t.Context(), m.request(2, tenant)); err != nil {
					t.Errorf("%s: %v", tenant, err)
				}
			})
		}
		good.Wait()
		if took := time.Since(start); took > 0 || m.calls.Load() != 1 {
			t.Errorf("the others waited %s for %d exchanges", took, m.calls.Load())
		}
		if err := <-failed; err != nil {
			t.Errorf("the tenant without a slot got %v", err)
		}
		if s := c.Stats(); s.Waiting != 1 {
			t.Errorf("%d callers wait, want that of the exchange that hangs", s.Waiting)
		}
	})
}

// A tenant without a slot asks all the time for a key that others share. The
// renewal of that key is not held up.
func TestRenewalOfASharedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithMaxExchangesPerTenant(1)), &minter{mint: hourly}
		if _, _, err := c.GetOrSet(t.Context(), m.request(2, "good")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		go c.GetOrSet(t.Context(),
			Request{Key: key(1), Tenant: "bad", Provider: "test", Mint: plain(hang)}) //nolint:errcheck // fails
		synctest.Wait()
		for range 5 {
			for _, tenant := range []string{"bad", "good"} {
				if _, _, err := c.GetOrSet(t.Context(), m.request(2, tenant)); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
		}
		if m.calls.Load() != 2 {
			t.Errorf("%d exchanges, want 2", m.calls.Load())
		}
	})
}

// The rate lets a burst start at once and the others in turn. An exchange whose
// turn would come too late is refused at once.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithRate(10, 5), withMintTimeout(3*time.Second)), &minter{mint: hourly}
		start := time.Now()
		var mu sync.Mutex
		var limited int
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				_, _, err := c.GetOrSet(t.Context(), m.request(n, fmt.Sprint(n)))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					limited++
				}
				if took := time.Since(start); err != nil &&
					(took != 0 || !isLimited(err) || !strings.Contains(err.Error(), "than 10 a second")) {
					t.Errorf("after %s: %v", took, err)
				}
			})
		}
		synctest.Wait()
		if s := c.Stats(); m.calls.Load() != 5 || s.QueuedForRate != 30 || s.QueuedForSlot != 0 || s.Running != 0 {
			t.Errorf("%d started at once, stats %+v", m.calls.Load(), s)
		}
		all.Wait()
		if took := time.Since(start); limited != 15 || took != 3*time.Second {
			t.Errorf("%d of 50 were refused, the others took %s", limited, took)
		}
		c.Close()
		expectUnused(t, c.limits)
	})
}

// The queue of the rate is fair: a tenant with very many keys has no more of it
// than its slots.
func TestRateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithRate(10, 1)), &minter{mint: hourly}
		for n := range 1000 {
			go c.GetOrSet(t.Context(), m.request(n, "many")) //nolint:errcheck // most get no slot
		}
		synctest.Wait()
		start := time.Now()
		mustSet(t, c, m.request(5000, "one"))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a tenant with one key waited %s", took)
		}
	})
}

func TestInfiniteRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithRate(rate.Inf, 0)), &minter{mint: hourly}
		start := time.Now()
		for n := range 5000 {
			mustSet(t, c, m.request(n, "a"))
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("5,000 exchanges waited %s", took)
		}
	})
}

// A provider at the limit of running exchanges refuses others at once, and uses
// none of the rate. Other providers are not affected.
func TestRunningExchangesPerProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, withMintTimeout(time.Minute))
		good := &minter{mint: hourly}
		var all sync.WaitGroup
		for n := range maxRunning + 1000 {
			all.Go(func() {
				_, _, err := c.GetOrSet(t.Context(),
					Request{Key: key(n), Tenant: fmt.Sprint(n), Provider: "hanging", Mint: plain(hang)})
				if err == nil {
					t.Error("an exchange that hangs succeeded")
				}
			})
		}
		time.Sleep(10 * time.Second)
		if s := c.Stats(); s.Running != maxRunning || s.QueuedForRate != 0 {
			t.Errorf("stats %+v", s)
		}
		start := time.Now()
		for n := range 5000 {
			_, _, err := c.GetOrSet(t.Context(),
				Request{Key: key(100_000 + n), Tenant: "late", Provider: "hanging", Mint: plain(hang)})
			if !isLimited(err) || !strings.Contains(err.Error(), `4096 exchanges with provider "hanging" are running`) {
				t.Fatalf("got %v", err)
			}
		}
		mustSet(t, c, good.request(1_000_000, "good"))
		if took := time.Since(start); took != 0 {
			t.Errorf("the refusals and another provider waited %s", took)
		}
		all.Wait()
		c.Close()
		expectUnused(t, c.limits)
	})
}

// Close ends exchanges that wait for a slot or for their turn.
func TestCloseEndsWaitingExchanges(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   []Option
		tenant string
	}{
		"for a slot": {[]Option{WithMaxExchangesPerTenant(1)}, "a"},
		"for a turn": {[]Option{WithRate(0.1, 1)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t, tc.opts...)
				go c.GetOrSet(t.Context(), Request{Key: key(1), Tenant: "a", Mint: plain(hang)}) //nolint:errcheck // fails
				synctest.Wait()
				closed := make(chan error)
				go func() {
					// Close ends the flights one after the other, so this one
					// may get the slot of the first before it ends.
					_, _, err := c.GetOrSet(t.Context(), Request{Key: key(2), Tenant: tc.tenant, Mint: plain(hang)})
					closed <- err
				}()
				synctest.Wait()
				if s := c.Stats(); s.QueuedForSlot+s.QueuedForRate != 1 {
					t.Errorf("stats %+v", s)
				}
				go c.Close()
				if err := <-closed; !errors.Is(err, ErrClosed) {
					t.Errorf("got %v", err)
				}
				c.Close()
				expectUnused(t, c.limits)
			})
		})
	}
}

// TestColdStart checks the start with an empty cache in
// docs/monitoring/README.md.
func TestColdStart(t *testing.T) {
	mint := func(d time.Duration) func(context.Context) (Token, error) {
		return func(context.Context) (Token, error) { time.Sleep(d); return token("t", time.Hour), nil }
	}
	for name, tc := range map[string]struct {
		keys   int
		tenant func(n int) string
		sts    time.Duration
		atMost time.Duration
		retry  int // at most
	}{
		"10,000 tenants": {10_000, func(n int) string {
			return fmt.Sprint(n)
		}, 50 * time.Millisecond, 10 * time.Second, 0},
		"200 ServiceAccounts of a tenant": {200, func(int) string {
			return "a"
		}, 500 * time.Millisecond, 20 * time.Second, math.MaxInt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := newTestCache(t), &minter{mint: mint(tc.sts)}
				start := time.Now()
				var mu sync.Mutex
				var retries int
				var longest time.Duration
				var all sync.WaitGroup
				for n := range tc.keys {
					all.Go(func() {
						for {
							_, _, err := c.GetOrSet(t.Context(), m.request(n, tc.tenant(n)))
							var limit *LimitError
							if !errors.As(err, &limit) {
								if err != nil {
									t.Error(err)
								}
								break
							}
							mu.Lock()
							retries++
							mu.Unlock()
							time.Sleep(limit.RetryAfter())
						}
						mu.Lock()
						longest = max(longest, time.Since(start))
						mu.Unlock()
					})
				}
				all.Wait()
				t.Logf("%s with STS at %s: %s, with %d calls that had to retry", name, tc.sts, longest, retries)
				if longest > tc.atMost || m.calls.Load() != int64(tc.keys) || retries > tc.retry {
					t.Errorf("it took %s, %d exchanges and %d retries", longest, m.calls.Load(), retries)
				}
			})
		})
	}
}
