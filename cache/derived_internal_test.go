package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNeedsFail(t *testing.T) {
	for name, c := range map[string]*TokenCache{"cached": newTestCache(t), "uncached": nil} {
		m := &minter{mint: hourly}
		for _, needs := range []func() ([]Request, error){
			func() ([]Request, error) { return nil, errors.New("boom") },
			func() ([]Request, error) { panic("secret") },
		} {
			req := m.request(1, "a")
			req.Needs = needs
			token, _, err := c.GetOrSet(t.Context(), req)
			if token != nil || err == nil || m.calls.Load() != 0 {
				t.Errorf("%s: got %v, %v", name, token, err)
			}
			c.Delete(req.Key)
		}
	}
}

// A credential is held back exactly as long as the part that it is made from.
func TestPartIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		part := &minter{mint: func(context.Context) (Token, error) { return nil, errors.New("unavailable") }}
		whole := &minter{mint: hourly}
		wait := func(ctx context.Context, req Request) (time.Duration, error) {
			_, _, err := c.GetOrSet(ctx, req)
			var held *BackoffError
			if !errors.As(err, &held) {
				return 0, err
			}
			if errors.As(held.Err, new(*BackoffError)) {
				t.Errorf("one within the other: %#v", held)
			}
			return held.RetryAfter(), err
		}
		req := whole.request(2, "a")
		req.Needs = func() ([]Request, error) { return []Request{part.request(1, "a")}, nil }
		const jitter = maxBackoff / 5 // of failures that both have seen
		for range 10 * 60 {
			_, _ = wait(t.Context(), req)
			ofPart, _ := wait(t.Context(), part.request(1, "a"))
			if ofWhole, _ := wait(t.Context(), req); ofWhole > ofPart+jitter {
				t.Fatalf("held back for %s, its part for %s", ofWhole, ofPart)
			}
			time.Sleep(time.Second)
		}
	})
}

// slow mints in a second, or fails with err.
func slow(err *error) *minter {
	return &minter{mint: func(context.Context) (Token, error) {
		time.Sleep(time.Second) // of a bubble
		return token("t", time.Hour), *err
	}}
}

// A request for a fresh token waits where others are served what is due for
// renewal, and takes that if renewal fails.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		var err error
		m := slow(&err)
		get := func(fresh bool) Token {
			t.Helper()
			req := m.request(1, "a")
			req.fresh = fresh
			got, _, err := c.GetOrSet(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		first := get(true)
		time.Sleep(55 * time.Minute)
		if got := get(false); got != first {
			t.Error("an ordinary request waited")
		}
		second := get(true)
		if second == first || m.calls.Load() != 2 {
			t.Errorf("got the old token after %d exchanges", m.calls.Load())
		}
		time.Sleep(55 * time.Minute)
		err = errors.New("unavailable")
		if got := get(true); got != second {
			t.Error("the old token is still valid and was not served")
		}
	})
}

func TestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		m := &minter{mint: hourly}
		first := mustSet(t, c, m.request(1, "a"))
		c.invalidate(key(1))
		if mustSet(t, c, m.request(1, "a")) != first {
			t.Error("a token of this moment was dropped")
		}
		time.Sleep(replaceAfter)
		c.invalidate(key(2))
		if mustSet(t, c, m.request(1, "a")) != first {
			t.Error("the token of another key was dropped")
		}
		c.invalidate(key(1))
		if mustSet(t, c, m.request(1, "a")) == first {
			t.Error("the invalid token is still served")
		}
		(*TokenCache)(nil).invalidate(key(1))
	})
}

// Waiters never receive a closed, deleted, invalid or expired token.
func TestFreshInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(c *TokenCache)
		want      error
	}{
		"closed":    {func(c *TokenCache) { c.Close() }, ErrClosed},
		"deleted":   {func(c *TokenCache) { c.Delete(key(1)) }, context.DeadlineExceeded},
		"purged":    {func(c *TokenCache) { c.Purge() }, context.DeadlineExceeded},
		"invalid":   {func(c *TokenCache) { c.invalidate(key(1)) }, context.DeadlineExceeded},
		"hard time": {func(*TokenCache) { time.Sleep(10 * time.Second) }, context.DeadlineExceeded},
		"none":      {func(*TokenCache) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const kept = 10 * time.Minute
				c := newTestCache(t, WithMaxDuration(kept), withMintTimeout(8*time.Second))
				old := mustSet(t, c, Request{Key: key(1), Mint: plain(hourly)})
				time.Sleep(kept - 9*time.Second)
				if name == "hard time" {
					time.Sleep(5 * time.Second)
				}
				var got Token
				var err error
				var wg sync.WaitGroup
				wg.Go(func() {
					got, _, err = c.GetOrSet(t.Context(), Request{Key: key(1), fresh: true, Patient: true, Mint: plain(hang)})
				})
				synctest.Wait()
				tc.meanwhile(c)
				wg.Wait()
				if !errors.Is(err, tc.want) || (err == nil) != (got == old) {
					t.Errorf("got %v, %v, want %v", got, err, tc.want)
				}
			})
		})
	}
}

// A token that was refused is invalid for the request that says so. Others keep
// it until there is a new one.
func TestInvalidBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		var err error
		m := slow(&err)
		old := mustSet(t, c, m.request(1, "a"))
		req := m.request(1, "a")
		req.fresh, req.InvalidBefore = true, time.Now()
		if got := mustSet(t, c, req); got != old {
			t.Error("a token that is seconds old was replaced")
		}
		time.Sleep(replaceAfter)
		err = errors.New("away")
		for range 2 { // the second time, the key is held back
			if got, ok := c.Get(key(1), InvolvedObject{}, 0, req.InvalidBefore); ok {
				t.Errorf("Get returned %v", got)
			}
			if got, _, failed := c.GetOrSet(t.Context(), req); !errors.Is(failed, err) {
				t.Errorf("got %v, %v", got, failed)
			}
			if got, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); !ok || got != old {
				t.Error("the token was taken from others")
			}
		}
		time.Sleep(time.Minute)
		err = nil
		got := mustSet(t, c, req)
		if others, _ := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); got == old || others != got || m.calls.Load() != 3 {
			t.Errorf("got the old token, others another one, or there were %d exchanges", m.calls.Load())
		}
		time.Sleep(replaceAfter)
		if again := mustSet(t, c, req); again != got {
			t.Error("a request that refuses the old token replaced the new one")
		}
	})
}

// keepsSlotsBusy makes a tenant hold all of its slots with exchanges that take
// d, each of another key, until stop.
func keepsSlotsBusy(t *testing.T, c *TokenCache, tenant string, d time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range 2 * defaultMaxExchangesPerTenant {
		all.Go(func() {
			for k := 1000 * (1 + n); ctx.Err() == nil; k++ {
				// or is limited
				_, _, _ = c.GetOrSet(ctx, Request{Key: key(k), Tenant: tenant, Provider: "test", Mint: plain(slowly(d))})
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// derivedOn returns the request of a tenant for a credential that is made of
// others, depth of them, one inside the other. All tenants share their keys.
// The innermost is a credential of its own.
func derivedOn(c *TokenCache, depth int, tenant string) Request {
	req := Request{Key: key(depth), Tenant: tenant, Provider: "test", fresh: true,
		Mint: plain(slowly(10 * time.Millisecond))}
	if depth > 0 {
		req.Needs = func() ([]Request, error) { return []Request{derivedOn(c, depth-1, tenant)}, nil }
	}
	return req
}

// A tenant that uses all of its slots requests a credential that others share.
// At no depth do the others wait for a slot of that tenant.
func TestSharedDerivedCredentialOfTenantWithoutSlot(t *testing.T) {
	for _, depth := range []int{0, 1, 2, 5} {
		for name, busyFirst := range map[string]bool{"blocked before the other joins": true, "blocked later": false} {
			t.Run(fmt.Sprintf("depth %d, %s", depth, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTestCache(t)
					var slow sync.WaitGroup
					ask := func() {
						slow.Go(func() {
							for range 20 {
								_, _, _ = c.GetOrSet(t.Context(), derivedOn(c, depth, "slow")) // or is limited
							}
						})
						synctest.Wait()
					}
					if !busyFirst {
						ask()
					}
					stop := keepsSlotsBusy(t, c, "slow", 4*time.Second)
					synctest.Wait()
					if busyFirst {
						ask()
					}
					start := time.Now()
					_, _, err := c.GetOrSet(t.Context(), derivedOn(c, depth, "good"))
					if took, most := time.Since(start), time.Duration(depth+1)*10*time.Millisecond; err != nil || took > most {
						t.Errorf("after %s: %v; want a token after %s", took, err, most)
					}
					slow.Wait()
					stop()
					c.Close()
					expectUnused(t, c.limits)
				})
			})
		}
	}
}

// invalidate is what a Request with InvalidBefore does to a token.
func (c *TokenCache) invalidate(key Key) {
	c.locked(func() { c.drop(key, c.now()) })
}
