package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func hang(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }

// asks has tenants ask again and again for what is never answered, until the end. Their keys begin with first.
func asks(t *testing.T, c *TokenCache, tenants int, provider string, first int) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range tenants {
		req := Request{Key: key(first + n), Tenant: fmt.Sprintf("hangs-%d", n), Provider: provider, Mint: hang}
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

// A service that answers none of its many tenants is nothing to those of another one.
func TestServiceThatHangsForMany(t *testing.T) {
	for _, tenants := range []int{500, 600, 1000, 5000} {
		t.Run(fmt.Sprint(tenants), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				end := asks(t, c, tenants, "hanging", 1_000_000)
				defer end()
				if worst := worstOf(t, c); worst > 3*time.Second {
					t.Errorf("a tenant of a service that works waited %s", worst)
				}
				if n := c.Stats().Running; n < min(tenants, defaultMaxFlights*slowFactor)*9/10 {
					t.Errorf("only %d exchanges are under way", n)
				}
				c.Close()
				if p := c.places; p.free != defaultMaxFlights || len(p.services) != 0 || p.turns.Len() != 0 {
					t.Errorf("places are lost: %d are free", p.free)
				}
			})
		})
	}
}

// worstOf has many tenants ask a service that works, and returns how long it took at worst.
func worstOf(t *testing.T, c *TokenCache) (worst time.Duration) {
	t.Helper()
	for n := range 900 {
		start := time.Now()
		_, _, err := c.GetOrSet(t.Context(), Request{Key: key(n), Tenant: fmt.Sprint(n), Provider: "good",
			Mint: func(context.Context) (Token, error) {
				time.Sleep(100 * time.Millisecond)
				return token("t", time.Hour), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(start))
		time.Sleep(100 * time.Millisecond)
	}
	return worst
}

// Several services that answer nobody leave places to one that works.
func TestServicesThatHangForMany(t *testing.T) {
	for _, services := range []int{2, 4} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t, WithMaxFlights(32))
				for n := range services {
					defer asks(t, c, 300, fmt.Sprint("hanging-", n), (n+1)*1_000_000)()
				}
				if worst := worstOf(t, c); worst > 3*time.Second {
					t.Errorf("a tenant of a service that works waited %s", worst)
				}
				c.Close()
			})
		})
	}
}

// A tenant whose one cloud hangs still gets what it needs of another: a namespace may hold all of a cluster's objects, and
// the controller's own identity is one tenant for all clouds.
func TestTenantOfTwoServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		for n := range 100 {
			go c.GetOrSet(t.Context(), Request{Key: key(1000 + n), Tenant: "a", Provider: "hanging", Mint: hang}) //nolint:errcheck // fails
		}
		synctest.Wait()
		start := time.Now()
		mustSet(t, c, Request{Key: key(1), Tenant: "a", Provider: "good", Mint: hourly})
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it waited %s", waited)
		}
		if n := c.Stats().Running; n != defaultMaxFlightsPerTenant {
			t.Errorf("%d exchanges of the tenant are under way where all hang", n)
		}
		c.Close()
	})
}

// Whoever has waited in vain hears whose exchanges it was for.
func TestWhomATenantWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, WithMaxFlights(1), WithMaxFlightsPerTenant(2), WithMintTimeout(10*time.Second))
		asked := make(chan error, 3)
		ask := func(n int, tenant string, told chan<- error) {
			time.Sleep(1500 * time.Millisecond)
			hang := func(context.Context) (Token, error) {
				select { // longer than others wait, whatever the context says
				case <-time.After(time.Minute):
				case <-c.ctx.Done():
				}
				return nil, errors.New("hung")
			}
			go func() {
				_, _, err := c.GetOrSet(t.Context(), Request{Key: key(n), Tenant: tenant, Mint: hang})
				told <- err
			}()
		}
		nobody := make(chan error, 20)
		ask(0, "a", nobody)
		ask(1, "a", nobody)
		ask(2, "a", asked)
		if err := <-asked; err == nil || !strings.Contains(err.Error(), `waited 10s for other exchanges of tenant "a" to end`) {
			t.Errorf("behind its own: %v", err)
		}
		for n := range slowFactor {
			ask(10+n, fmt.Sprint(n), nobody)
		}
		ask(20, "b", asked)
		err := <-asked
		if err == nil || !strings.Contains(err.Error(), "waited 10s for exchanges of other tenants to end") ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind others': %v", err)
		}
		c.Close()
	})
}

// One tenant with a hundred keys at an address that hangs waits for itself; nobody else does.
func TestTenantThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		good, hanging := &minter{mint: hourly}, &minter{}
		hanging.mint = func(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }
		mustSet(t, c, good.request(0, "good"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { _, _, _ = c.GetOrSet(ctx, hanging.request(1000+i, "bad")) })
		}
		synctest.Wait()
		if n := hanging.calls.Load(); n != 8 {
			t.Errorf("%d exchanges of the tenant under way, want 8", n)
		}
		start := time.Now()
		for i := range 200 {
			wg.Go(func() {
				if _, ok := c.Get(key(0), InvolvedObject{}); !ok {
					t.Error("a hit of another tenant failed")
				}
				mustSet(t, c, good.request(1+i, fmt.Sprintf("good-%d", i)))
			})
		}
		synctest.Wait()
		if n := good.calls.Load(); n != 201 {
			t.Errorf("%d of 201 exchanges of others were made at once", n)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("they waited %s", d)
		}
		cancel()
		wg.Wait()
	})
}

// Many tenants that hang at once give their places back after a second.
func TestManyTenantsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, WithMaxFlights(4))
		hanging := &minter{mint: func(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { _, _, _ = c.GetOrSet(t.Context(), hanging.request(i, fmt.Sprintf("bad-%d", i))) })
		}
		synctest.Wait()
		if n := hanging.calls.Load(); n != 4 {
			t.Errorf("%d exchanges, want 4", n)
		}
		start := time.Now()
		good := &minter{mint: hourly}
		mustSet(t, c, good.request(100, "good"))
		if d := time.Since(start); d > 6*time.Second {
			t.Errorf("a good tenant waited %s", d)
		}
		wg.Wait()
		if s := c.Stats(); s.Flights != 0 {
			t.Errorf("stats %+v", s)
		}
		if c.places.free != 4 || c.places.freeSlow != 32 || len(c.places.lines) != 0 || c.places.turns.Len() != 0 {
			t.Errorf("places are lost: %d free, %d slow, %d lines", c.places.free, c.places.freeSlow, len(c.places.lines))
		}
	})
}

// An exchange that is slow when there is no slow place left gets one later, so that the fast places are not used up for good.
func TestSlowExchangeLeavesItsFastPlaceLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, WithMaxFlights(1))
		hang := func(n int, until chan struct{}) {
			go c.GetOrSet(t.Context(), Request{Key: key(n), Tenant: fmt.Sprint(n), Mint: func(ctx context.Context) (Token, error) { //nolint:errcheck // fails
				select {
				case <-until:
				case <-ctx.Done():
				}
				return nil, errors.New("hung")
			}})
			time.Sleep(2 * time.Second)
		}
		slow, last := make(chan struct{}), make(chan struct{})
		for n := range slowFactor {
			hang(n, slow)
		}
		hang(100, last)
		close(slow)
		time.Sleep(2 * time.Second)
		if _, _, err := c.GetOrSet(t.Context(), Request{Key: key(101), Tenant: "victim", Mint: hourly}); err != nil {
			t.Error(err)
		}
		select {
		case <-last:
		default:
			close(last)
		}
		c.Close()
	})
}

// Nothing stays of providers whose exchanges have ended, however many names there are.
func TestProvidersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, WithMintTimeout(time.Second), WithMaxFlightsPerTenant(1))
		var all sync.WaitGroup
		for n := range 100 {
			for tenant, mint := range map[string]func(context.Context) (Token, error){"a": hourly, "b": hang, "c": hang} {
				req := Request{Key: Key{byte(n), tenant[0]}, Tenant: tenant[:0], Provider: fmt.Sprint(n), Mint: mint}
				all.Go(func() { _, _, _ = c.GetOrSet(t.Context(), req) }) // those that hang fail
			}
		}
		all.Wait()
		if p := c.places; len(p.services) != 0 || len(p.lines) != 0 || p.free != defaultMaxFlights {
			t.Errorf("%d providers and %d lines are kept, %d places are free", len(p.services), len(p.lines), p.free)
		}
		c.Close()
	})
}
