package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type testToken struct {
	tag     string
	expires time.Time
}

func (t *testToken) GetDuration() time.Duration { return time.Until(t.expires) }

func token(tag string, life time.Duration) *testToken {
	return &testToken{tag: tag, expires: time.Now().Add(life)}
}

func key(n int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(n)) //nolint:gosec // counts up from zero
	return k
}

func withMintTimeout(d time.Duration) Option { return func(c *TokenCache) { c.mintTimeout = d } }

func newTestCache(t testing.TB, opts ...Option) *TokenCache {
	t.Helper()
	return newCacheOf(t, 1000, opts...)
}

func newCacheOf(t testing.TB, capacity int, opts ...Option) *TokenCache {
	t.Helper()
	c, err := NewTokenCache(capacity, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// minter counts exchanges and sets their result.
type minter struct {
	calls atomic.Int64
	mint  func(ctx context.Context) (Token, error)
}

func (m *minter) request(n int, tenant string) Request {
	return Request{Key: key(n), Tenant: tenant, Provider: "test", Classify: classifyForTest,
		Mint: plain(func(ctx context.Context) (Token, error) {
			m.calls.Add(1)
			return m.mint(ctx)
		})}
}

// plain makes the Mint of a Request that has no needs, or does not look at
// them.
func plain(mint func(context.Context) (Token, error)) func(context.Context, []Token) (Minted, error) {
	return func(ctx context.Context, _ []Token) (Minted, error) {
		token, err := mint(ctx)
		return Minted{Token: token}, err
	}
}

func hourly(context.Context) (Token, error) { return token("t", time.Hour), nil }

func mustSet(t *testing.T, c *TokenCache, req Request) Token {
	t.Helper()
	got, _, err := c.GetOrSet(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLifetimeOfAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: hourly}
		req := m.request(1, "a")
		first := mustSet(t, c, req)
		if got, retrieved, err := c.GetOrSet(t.Context(), req); got != first || !retrieved || err != nil {
			t.Errorf("the second request: %v, retrieved %t, %v", got, retrieved, err)
		}

		time.Sleep(44 * time.Minute) // 75 % of 59 m 30 s is 44 m 37 s
		if got, ok := c.Get(req.Key, req.Object, 0, time.Time{}); !ok || got != first {
			t.Error("it is not fresh after 44 minutes")
		}
		time.Sleep(4 * time.Minute) // 80 % is 47 m 36 s
		if _, ok := c.Get(req.Key, req.Object, 0, time.Time{}); ok {
			t.Error("it is still fresh after 48 minutes")
		}
		// Stale: served at once, renewed in the background by one exchange.
		block := make(chan struct{})
		m.mint = func(ctx context.Context) (Token, error) { <-block; return hourly(ctx) }
		for range 10 {
			if got, retrieved, err := c.GetOrSet(t.Context(), req); got != first || !retrieved || err != nil {
				t.Errorf("while stale: %v, retrieved %t, %v", got, retrieved, err)
			}
		}
		close(block)
		synctest.Wait()
		if n := m.calls.Load(); n != 2 {
			t.Errorf("%d exchanges, want 2", n)
		}
		if got, ok := c.Get(req.Key, req.Object, 0, time.Time{}); !ok || got == first {
			t.Error("the renewed token is not there")
		}
	})
}

func TestHardTime(t *testing.T) {
	for name, tc := range map[string]struct {
		life, max, want time.Duration
	}{
		"an hour less half a minute":       {time.Hour, time.Hour, time.Hour - 30*time.Second},
		"a short one less a tenth":         {time.Minute, time.Hour, 54 * time.Second},
		"a long one is cut":                {12 * time.Hour, time.Hour, time.Hour},
		"the maximum of the configuration": {time.Hour, time.Minute, time.Minute},
		"for ever":                         {math.MaxInt64, time.Hour, time.Hour},
		"a long one without a maximum":     {24 * time.Hour, longest, 24*time.Hour - 30*time.Second},
		"for ever without a maximum":       {math.MaxInt64, longest, longest},
		"a nanosecond":                     {1, time.Hour, 1},
	} {
		now := instantAt(time.Now(), time.Now().Add(-time.Second))
		e := newEntry(Minted{}, tc.life, tc.max, now)
		if got := e.hard; got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		if soft := e.soft; soft > tc.want*80/100 || soft < tc.want*75/100-time.Millisecond {
			t.Errorf("%s: soft time %s of %s", name, time.Duration(soft), tc.want)
		}
	}
}

// However the clocks of the machine behave, an expired token is not served.
func TestClocks(t *testing.T) {
	for name, tc := range map[string]struct {
		wall, mono time.Duration
		fresh      bool
	}{
		"both advance":                   {40 * time.Minute, 40 * time.Minute, true},
		"suspended: only the wall clock": {2 * time.Hour, time.Second, false},
		"set forward":                    {time.Hour, time.Minute, false},
		"set back":                       {-time.Hour, 2 * time.Hour, false},
		"set back, token still valid":    {-24 * time.Hour, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, m := newTestCache(t), &minter{mint: hourly}
			start := c.now()
			now := start
			c.now = func() instant { return now }
			mustSet(t, c, m.request(1, ""))
			now.wall, now.mono = start.wall+int64(tc.wall), start.mono+int64(tc.mono)
			if _, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); ok != tc.fresh {
				t.Errorf("fresh is %t", ok)
			}
			want := int64(2)
			if tc.fresh {
				want = 1
			}
			mustSet(t, c, m.request(1, ""))
			if n := m.calls.Load(); n != want {
				t.Errorf("%d exchanges, want %d", n, want)
			}
		})
	}
}

func TestOneFlightPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{}
		type ctxKey struct{}
		m.mint = func(ctx context.Context) (Token, error) {
			if ctx.Value(ctxKey{}) != "first" {
				t.Error("the values of the caller's context are lost")
			}
			select {
			case <-time.After(time.Second):
				return token("t", time.Hour), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "first"))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := c.GetOrSet(first, m.request(1, "a")); !errors.Is(err, context.Canceled) {
				t.Errorf("the first caller got %v", err)
			}
		})
		synctest.Wait()
		for range 99 {
			wg.Go(func() { mustSet(t, c, m.request(1, "a")) })
		}
		synctest.Wait()
		if s := c.Stats(); s.Exchanges != 1 || s.Waiting != 100 {
			t.Errorf("stats %+v", s)
		}
		cancel()
		wg.Wait()
		if n := m.calls.Load(); n != 1 {
			t.Errorf("%d exchanges, want 1", n)
		}
		if s := c.Stats(); !reflect.DeepEqual(s, Stats{Items: 1}) {
			t.Errorf("stats %+v afterwards", s)
		}
	})
}

// The result is kept although every caller has left.
func TestFlightContinuesWithoutCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{}
		m.mint = func(context.Context) (Token, error) { time.Sleep(time.Second); return token("t", time.Hour), nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := c.GetOrSet(ctx, m.request(1, "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if _, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); !ok {
			t.Error("the result was lost")
		}
		if _, _, err := c.GetOrSet(ctx, m.request(2, "a")); err == nil || m.calls.Load() != 1 {
			t.Errorf("a caller that had gone started an exchange: %v", err)
		}
	})
}

func TestMintThatMisbehaves(t *testing.T) {
	for name, mint := range map[string]func(context.Context) (Token, error){
		"nil":        func(context.Context) (Token, error) { return nil, nil },
		"nil inside": func(context.Context) (Token, error) { return (*testToken)(nil), nil },
		"expired":    func(context.Context) (Token, error) { return token("t", -time.Second), nil },
		"zero":       func(context.Context) (Token, error) { return &testToken{}, nil },
		"panic":      func(context.Context) (Token, error) { panic("secret") },
		"Goexit":     func(context.Context) (Token, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, m := newTestCache(t), &minter{mint: mint}
			got, _, err := c.GetOrSet(t.Context(), m.request(1, "a"))
			if got != nil || err == nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if msg := err.Error(); msg == "" || len(msg) > 200 || containsSecret(msg) {
				t.Errorf("message %q", msg)
			}
			if s := c.Stats(); s.Items != 0 || s.Exchanges != 0 || s.Running != 0 || s.Waiting != 0 || len(s.Failing) != 1 {
				t.Errorf("stats %+v", s)
			}
			m.mint = hourly
			mustSet(t, c, m.request(2, "a")) // the cache lives on
		})
	}
}

func containsSecret(s string) bool {
	for i := range len(s) - 5 {
		if s[i:i+6] == "secret" {
			return true
		}
	}
	return false
}

// classified is an error whose meaning classifyForTest returns.
type classified struct {
	text string
	Failure
}

func (c *classified) Error() string { return c.text }

func classifyForTest(err error) Failure {
	var c *classified
	if errors.As(err, &c) {
		return c.Failure
	}
	return Failure{}
}

// A service that is down for ten minutes costs a few exchanges a minute and
// key, and valid tokens are served.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: hourly}
		valid := mustSet(t, c, m.request(1, "a"))
		time.Sleep(48 * time.Minute) // stale now
		failure := errors.New("503")
		m.mint = func(context.Context) (Token, error) { return nil, failure }
		broken := &minter{mint: m.mint}
		var lastMinutes int64
		for second := range 600 {
			if got := mustSet(t, c, m.request(1, "a")); got != valid {
				t.Fatal("another token")
			}
			_, _, err := c.GetOrSet(t.Context(), broken.request(2, "b"))
			if !errors.Is(err, failure) || err.Error() != "503" {
				t.Fatal(err)
			}
			if second == 300 {
				lastMinutes = broken.calls.Load()
			}
			time.Sleep(time.Second)
		}
		if n := broken.calls.Load() - lastMinutes; n < 5 || n > 15 {
			t.Errorf("%d exchanges in the last five minutes, want two or three a minute", n)
		}
		if n := m.calls.Load(); n > 30 {
			t.Errorf("%d refreshes", n)
		}
		time.Sleep(time.Minute)
		m.mint, broken.mint = hourly, hourly
		mustSet(t, c, broken.request(2, "b"))
		if c.failures.Len() != 1 { // that of key 1, whose refresh has not succeeded yet
			t.Errorf("%d failures remembered", c.failures.Len())
		}
	})
}

func TestBackoff(t *testing.T) {
	now := instant{wall: int64(time.Hour), mono: int64(time.Hour)}
	failed := func(retryAfter time.Duration) verdict {
		req := Request{Classify: classifyForTest}
		return req.classify(&classified{Failure: Failure{RetryAfter: retryAfter}})
	}
	var f failure
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		want *= time.Second
		f = f.again(failed(0), now)
		if got := f.until.sub(now); got < want*9/10 || got > want*11/10 {
			t.Errorf("failure %d: %s, want about %s", i+1, got, want)
		}
		now = f.until
	}
	f = f.again(failed(2*time.Minute), now)
	if got := f.until.sub(now); got != 2*time.Minute {
		t.Errorf("Retry-After of 2m: %s", got)
	}
	f = f.again(failed(time.Hour), now)
	if got := f.until.sub(now); got != 5*time.Minute {
		t.Errorf("Retry-After of 1h: %s", got)
	}
	later := f.until.add(forgetAfter)
	if f = f.again(failed(0), later); f.until.sub(later) > 2*time.Second {
		t.Errorf("after a long time: %s", f.until.sub(later))
	}
}

func TestRefreshThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: hourly}
		mustSet(t, c, m.request(1, "a"))
		time.Sleep(48 * time.Minute)
		m.mint = func(context.Context) (Token, error) {
			return nil, fmt.Errorf("wrapped: %w", &classified{Failure: Failure{Permanent: true}})
		}
		mustSet(t, c, m.request(1, "a")) // starts the refresh
		synctest.Wait()
		_, _, err := c.GetOrSet(t.Context(), m.request(1, "a"))
		var held *BackoffError
		if !errors.As(err, &held) || held.RetryAfter() <= 0 || held.RetryAfter() > 2*time.Second {
			t.Errorf("got %v", err)
		}
		if c.Len() != 0 {
			t.Error("the token is still there")
		}
	})
}

func TestDeleteAndPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, remove := range map[string]func(*TokenCache){
			"delete": func(c *TokenCache) { c.Delete(key(1)) },
			"purge":  func(c *TokenCache) { c.Purge() },
		} {
			c, m := newTestCache(t), &minter{mint: hourly}
			mustSet(t, c, m.request(1, "a"))
			remove(c)
			if c.Len() != 0 {
				t.Errorf("%s: the token is still there", name)
			}
			// Waiting callers get the result of an exchange that began before.
			// It is not kept.
			block := make(chan struct{})
			m.mint = func(ctx context.Context) (Token, error) { <-block; return hourly(ctx) }
			var wg sync.WaitGroup
			wg.Go(func() { mustSet(t, c, m.request(1, "a")) })
			synctest.Wait()
			remove(c)
			wg.Go(func() { mustSet(t, c, m.request(1, "a")) })
			synctest.Wait()
			remove(c)
			close(block)
			wg.Wait()
			if n := m.calls.Load(); n != 3 || c.Len() != 0 {
				t.Errorf("%s: %d exchanges, %d tokens kept", name, n, c.Len())
			}
		}
	})
}

func TestExpiredEntriesLeaveByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf(t, 200_000)
		m := &minter{mint: func(context.Context) (Token, error) { return token("t", 10*time.Minute), nil }}
		for i := range 100_000 {
			mustSet(t, c, m.request(i, ""))
		}
		mustSet(t, c, (&minter{mint: hourly}).request(-1, ""))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := c.Len(); n != 1 {
			t.Errorf("%d expired entries are left", n)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{mint: hourly}
		mustSet(t, c, m.request(1, "a"))
		m.mint = func(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, _, err := c.GetOrSet(t.Context(), m.request(2+i, "a")); !errors.Is(err, ErrClosed) {
					t.Errorf("a caller that waited got %v", err)
				}
			})
		}
		synctest.Wait()
		c.Close()
		wg.Wait()
		if _, _, err := c.GetOrSet(t.Context(), m.request(1, "a")); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
		if _, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); ok || c.Len() != 0 {
			t.Error("a token is left")
		}
	})
}

func TestNoCache(t *testing.T) {
	off, err := NewTokenCache(0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*TokenCache{"capacity 0": off, "nil": nil} {
		m := &minter{mint: hourly}
		for range 2 {
			if _, retrieved, err := c.GetOrSet(t.Context(), m.request(1, "")); retrieved || err != nil {
				t.Errorf("%s: retrieved %t, %v", name, retrieved, err)
			}
		}
		if _, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); ok || m.calls.Load() != 2 || c.Len() != 0 ||
			!reflect.DeepEqual(c.Stats(), Stats{}) {
			t.Errorf("%s caches", name)
		}
		m.mint = func(context.Context) (Token, error) { panic("secret") }
		if _, _, err := c.GetOrSet(t.Context(), m.request(1, "")); err == nil {
			t.Errorf("%s: no error of a panic", name)
		}
		c.Delete(key(1))
		c.Purge()
		c.Close()
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, opts := range map[string][]Option{
		"no duration":          {WithMaxDuration(0)},
		"two hours":            {WithMaxDuration(2 * time.Hour)},
		"no rate":              {WithRate(0, 1)},
		"negative rate":        {WithRate(-1, 1)},
		"rate is no number":    {WithRate(rate.Limit(math.NaN()), 1)},
		"no burst":             {WithRate(1, 0)},
		"no flights of tenant": {WithMaxExchangesPerTenant(-1)},
		"nil observer":         {WithObserver(nil)},
	} {
		if _, err := NewTokenCache(1, opts...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewTokenCache(-1); err == nil {
		t.Error("negative capacity: accepted")
	}
}

// Many requests of a thousand tenants run at once with refreshes, deletions and
// evictions. Each tenant gets its own token.
func TestTenantsNeverSeeEachOthersTokens(t *testing.T) {
	const tenants, workers, requests = 1000, 16, 200_000
	// It is too small for all, and stale all the time.
	c := newCacheOf(t, 800, WithMaxDuration(5*time.Millisecond), WithRate(rate.Inf, 0))
	reqs := make([]Request, tenants)
	for i := range reqs {
		tag := fmt.Sprintf("tenant-%d", i)
		reqs[i] = Request{Key: key(i), Tenant: tag, Mint: plain(func(context.Context) (Token, error) {
			return token(tag, time.Hour), nil
		})}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range requests / workers {
				req := reqs[(i*31+w*7919)%tenants]
				got, ok := c.Get(req.Key, req.Object, 0, time.Time{})
				if !ok {
					var err error
					if got, _, err = c.GetOrSet(t.Context(), req); err != nil {
						t.Error(err)
						return
					}
				}
				if tok, _ := got.(*testToken); tok == nil || tok.tag != req.Tenant {
					t.Errorf("%s got %v", req.Tenant, got)
					return
				}
				if i%997 == 0 {
					c.Delete(req.Key)
				}
			}
		})
	}
	wg.Wait()
}
