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

// errBrokenRole is a failure of an exchange that the other keys of the group
// would see too.
var errBrokenRole = &classified{"the role is broken", Failure{Shared: true, Permanent: true}}

// grouped is a key of a group whose exchange takes a tenth of a second.
type grouped struct {
	minter
	c   *TokenCache
	req Request
	err error
}

func newGrouped(c *TokenCache, n, group int, err error) *grouped {
	g := &grouped{c: c, err: err}
	g.mint = func(context.Context) (Token, error) {
		time.Sleep(100 * time.Millisecond) // of a bubble
		if g.err != nil {
			return nil, g.err
		}
		return token("t", time.Hour), nil
	}
	g.req = g.request(n, "a")
	g.req.Group = key(group)
	return g
}

func (g *grouped) get(t *testing.T) (Token, error) {
	t.Helper()
	got, _, err := g.c.GetOrSet(t.Context(), g.req)
	return got, err
}

func (g *grouped) mustFail(t *testing.T, want error) {
	t.Helper()
	if got, err := g.get(t); !errors.Is(err, want) {
		t.Fatalf("got %v, %v, want %v", got, err, want)
	}
}

func (g *grouped) mustGet(t *testing.T) Token {
	t.Helper()
	got, err := g.get(t)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// mustBeHeldBack makes sure that the answer is the failure of the group, and
// that no exchange was made for it.
func (g *grouped) mustBeHeldBack(t *testing.T, want error) time.Duration {
	t.Helper()
	before := g.calls.Load()
	_, err := g.get(t)
	var held *BackoffError
	if !errors.As(err, &held) || !errors.Is(err, want) || err.Error() != want.Error() || g.calls.Load() != before {
		t.Fatalf("got %v after %d more exchanges", err, g.calls.Load()-before)
	}
	return held.RetryAfter()
}

// failGroup has two keys of the group fail, so that it holds back its other
// keys.
func failGroup(t *testing.T, c *TokenCache, group int, err error) {
	t.Helper()
	for n := range 2 {
		newGrouped(c, 2000+n, group, err).mustFail(t, err)
	}
}

// 200 keys with one broken role, each asked for every second, cost a few
// exchanges a minute.
func TestGroupOfManyKeysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		keys := make([]*grouped, 200)
		for i := range keys {
			keys[i] = newGrouped(c, i+1, 1, errBrokenRole)
		}
		calls := func() (n int64) {
			for _, k := range keys {
				n += k.calls.Load()
			}
			return n
		}
		ask := func(d time.Duration) int64 {
			before := calls()
			for range d / time.Second {
				var wg sync.WaitGroup
				for _, k := range keys {
					wg.Go(func() { k.mustFail(t, errBrokenRole) })
				}
				wg.Wait()
				time.Sleep(time.Second)
			}
			return calls() - before
		}
		if n := ask(30 * time.Second); n > 8+6 {
			t.Errorf("%d exchanges in the first half minute", n)
		}
		if n := c.Stats().Failing[Failing{"test", "error"}]; int64(n) > calls() {
			t.Errorf("%d keys failed in %d exchanges", n, calls())
		}
		if n := ask(10 * time.Minute); n > 50 {
			t.Errorf("%d exchanges in ten minutes", n)
		}
		for _, k := range keys {
			k.err = nil
		}
		time.Sleep(maxBackoff * 11 / 10)
		keys[17].mustGet(t)
		for _, k := range keys {
			if k != keys[17] {
				k.mustGet(t)
			}
		}
	})
}

func TestGroupHoldsBackItsOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		sibling := newGrouped(c, 2, 1, nil)
		foreign, alone := newGrouped(c, 3, 2, nil), newGrouped(c, 4, 0, nil)
		failGroup(t, c, 1, errBrokenRole)
		wait := sibling.mustBeHeldBack(t, errBrokenRole)
		if wait <= 0 || wait > time.Second {
			t.Errorf("held back for %s", wait)
		}
		foreign.mustGet(t)
		alone.mustGet(t)
		time.Sleep(wait)
		sibling.mustGet(t)
		if s := c.Stats(); len(s.Failing) != 1 || s.Failing[Failing{"test", "error"}] != 2 {
			t.Errorf("failing: %v", s.Failing)
		}
	})
}

// One wrong session tag of one object fails every time. The other objects get
// their credentials.
func TestGroupIsNotHeldByOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		broken := newGrouped(c, 1, 1, errBrokenRole)
		for n := range 10 {
			for range 3 {
				time.Sleep(maxBackoff * 11 / 10)
				broken.mustFail(t, errBrokenRole)
			}
			newGrouped(c, 100+n, 1, nil).mustGet(t)
		}
		if broken.calls.Load() != 30 {
			t.Errorf("the broken key tried %d times", broken.calls.Load())
		}
	})
}

// Keys that try at the same time after a single failure do not hold back each
// other.
func TestGroupTriesTogetherAfterOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		newGrouped(c, 1, 1, errBrokenRole).mustFail(t, errBrokenRole)
		start := time.Now()
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() {
				if _, err := newGrouped(c, 2+n, 1, nil).get(t); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("they took %s", took)
		}
	})
}

// Errors that say nothing of the other keys hold none of them back.
func TestGroupFailuresOfOneKey(t *testing.T) {
	for name, fail := range map[string]func(*Request){
		"an error without the method": func(r *Request) {
			r.Mint = plain(func(context.Context) (Token, error) { return nil, errors.New("x") })
		},
		"a panic": func(r *Request) {
			r.Mint = plain(func(context.Context) (Token, error) { panic("x") })
		},
		"no token": func(r *Request) {
			r.Mint = plain(func(context.Context) (Token, error) { return nil, nil })
		},
		"what it is made of": func(r *Request) {
			r.Needs = func() ([]Request, error) {
				return nil, fmt.Errorf("part: %w", &BackoffError{Err: errBrokenRole, wait: time.Minute})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				broken, sibling := newGrouped(c, 1, 1, nil), newGrouped(c, 2, 1, nil)
				fail(&broken.req)
				if _, err := broken.get(t); err == nil {
					t.Fatal("no error")
				}
				sibling.mustGet(t)
			})
		})
	}
}

// Whatever happens to its group, a key keeps its valid token and renews it.
func TestGroupLeavesValidTokensAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		good := newGrouped(c, 1, 1, nil)
		old := good.mustGet(t)
		failGroup(t, c, 1, errBrokenRole)
		if good.mustGet(t) != old {
			t.Error("the token was dropped")
		}
		time.Sleep(50 * time.Minute)
		failGroup(t, c, 1, errBrokenRole)
		if good.mustGet(t) != old {
			t.Error("the token was dropped when it was due for renewal")
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if good.mustGet(t) == old || good.calls.Load() != 2 {
			t.Error("the token was not renewed")
		}
	})
}

// A key whose token is invalid has none that is valid for that request.
func TestGroupHoldsBackInvalidTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		good := newGrouped(c, 1, 1, nil)
		old := good.mustGet(t)
		time.Sleep(replaceAfter)
		failGroup(t, c, 1, errBrokenRole)
		good.req.InvalidBefore = time.Now()
		good.mustBeHeldBack(t, errBrokenRole)
		good.req.InvalidBefore = time.Time{}
		if good.mustGet(t) != old {
			t.Error("others lost the token")
		}
	})
}

// After the back-off, one key tries and the others wait for its result.
func TestGroupProbes(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(prober *grouped)
		want error // for the others, once the prober is done; nil if they may try
	}{
		"success":                   {func(p *grouped) { p.err = nil }, nil},
		"shared failure":            {func(*grouped) {}, errBrokenRole},
		"failure of the key itself": {func(p *grouped) { p.err = errors.New("x") }, nil},
		"deleted meanwhile": {func(p *grouped) {
			time.AfterFunc(50*time.Millisecond, func() { p.c.Delete(p.req.Key) })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				failGroup(t, c, 1, errBrokenRole)
				time.Sleep(minBackoff)
				prober, other := newGrouped(c, 2, 1, errBrokenRole), newGrouped(c, 3, 1, nil)
				tc.then(prober)
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = prober.get(t) })
				synctest.Wait()
				if wait := other.mustBeHeldBack(t, errBrokenRole); wait != minBackoff {
					t.Errorf("asked to wait for %s", wait)
				}
				wg.Wait()
				if prober.calls.Load() != 1 {
					t.Errorf("%d exchanges", prober.calls.Load())
				}
				if tc.want == nil {
					other.mustGet(t)
				} else {
					other.mustBeHeldBack(t, tc.want)
				}
			})
		})
	}
}

// Keys that fail for a reason of their own, and are asked for all the time, do
// not keep the others from trying.
func TestGroupIsNotHeldByBrokenKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		keys := make([]*grouped, 50)
		for i := range keys {
			keys[i] = newGrouped(c, i+1, 1, errBrokenRole)
		}
		insist := func(d, every time.Duration) {
			for range d / every {
				for _, k := range keys {
					if k.err != nil {
						_, _ = k.get(t)
					}
				}
				time.Sleep(every)
			}
		}
		insist(30*time.Minute, 500*time.Millisecond) // by then all have failed themselves
		late := newGrouped(c, 1000, 1, nil)
		start := time.Now()
		for {
			_, err := late.get(t)
			if err == nil {
				break
			}
			if time.Since(start) > maxBackoff*11/10 {
				t.Fatalf("held back for %s: %v", time.Since(start), err)
			}
			insist(time.Second, 20*time.Millisecond)
		}
		if late.calls.Load() != 1 {
			t.Errorf("%d exchanges", late.calls.Load())
		}
	})
}

// RetryAfter applies to the whole group.
func TestGroupHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		throttled := &classified{"slow down", Failure{Shared: true, RetryAfter: time.Minute}}
		failGroup(t, c, 1, throttled)
		if wait := newGrouped(c, 2, 1, nil).mustBeHeldBack(t, throttled); wait != time.Minute {
			t.Errorf("held back for %s", wait)
		}
	})
}

// Failures of flights that were under way together count once.
func TestGroupFailureCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		var wg sync.WaitGroup
		for n := range 8 {
			k := newGrouped(c, n+1, 1, errBrokenRole)
			wg.Go(func() { k.mustFail(t, errBrokenRole) })
		}
		wg.Wait()
		if wait := newGrouped(c, 100, 1, nil).mustBeHeldBack(t, errBrokenRole); wait > minBackoff {
			t.Errorf("held back for %s", wait)
		}
	})
}

// A group by itself backs off as a key without a group does.
func TestGroupOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		only, without := newGrouped(c, 1, 1, errBrokenRole), newGrouped(c, 2, 0, errBrokenRole)
		for range 20 * 60 * 10 {
			only.mustFail(t, errBrokenRole)
			without.mustFail(t, errBrokenRole)
			time.Sleep(100 * time.Millisecond)
		}
		if a, b := only.calls.Load(), without.calls.Load(); a < b-6 || a > b+3 {
			t.Errorf("%d exchanges, %d without a group", a, b)
		}
	})
}

func TestGroupIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(c *TokenCache){
		"in time":  func(*TokenCache) { time.Sleep(maxBackoff + forgetAfter + sweepEvery) },
		"by Purge": func(c *TokenCache) { c.Purge() },
		"by LRU": func(c *TokenCache) {
			for n := range c.capacity {
				_, _, _ = c.GetOrSet(context.Background(),
					Request{Key: key(1000 + n), Group: key(1000 + n), //nolint:usetesting // fails
						Classify: classifyForTest, Mint: plain(func(context.Context) (Token, error) { return nil, errBrokenRole })})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				failGroup(t, c, 1, errBrokenRole)
				forget(c)
				c.mu.Lock()
				n, remembered := c.groups.Len(), c.groups.Contains(key(1))
				c.mu.Unlock()
				if n > c.capacity || remembered {
					t.Errorf("%d groups are remembered", n)
				}
				newGrouped(c, 2, 1, nil).mustGet(t)
			})
		})
	}
}
