package cache

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// early is an error that comes from before the exchange.
type early struct{ error }

func (early) Result() string         { return "unavailable" }
func (early) ExchangeResult() string { return "kubernetes_unavailable" }

// A key that fails counts once, however often, and until it succeeds, is deleted, makes room or is forgotten.
func TestFailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewTokenCache(3)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		broken := errors.New("broken")
		m := &minter{mint: func(context.Context) (Token, error) { return nil, broken }}
		ask := func(n int) { _, _, _ = c.GetOrSet(t.Context(), m.request(n, "a")) }
		expect := func(when string, want map[Failing]int) {
			t.Helper()
			if got := c.Stats().Failing; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		failed := Failing{"test", "error"}
		for range 3 {
			ask(1)
			ask(2)
			time.Sleep(time.Minute)
		}
		expect("two keys, three attempts", map[Failing]int{failed: 2})
		broken = early{broken}
		ask(2)
		expect("one fails otherwise", map[Failing]int{failed: 1, {"test", "kubernetes_unavailable"}: 1})
		m.mint = hourly
		ask(1)
		expect("one succeeds", map[Failing]int{{"test", "kubernetes_unavailable"}: 1})
		c.Delete(key(2))
		expect("the other is deleted", nil)
		m.mint = func(context.Context) (Token, error) { return nil, errors.New("broken") }
		for n := range 5 {
			ask(10 + n)
		}
		expect("two made room", map[Failing]int{failed: 3})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expect("nobody has asked for long", nil)
		ask(10)
		c.Purge()
		expect("all are purged", nil)
	})
}

// Exchanges that have a place and exchanges that wait for one.
func TestRunningAndQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithMaxFlightsPerTenant(2), WithMintTimeout(time.Minute)), &minter{}
		m.mint = func(ctx context.Context) (Token, error) { <-ctx.Done(); return nil, ctx.Err() }
		var callers sync.WaitGroup
		for n := range 5 {
			callers.Go(func() { _, _, _ = c.GetOrSet(t.Context(), m.request(n, "a")) })
		}
		callers.Go(func() { _, _, _ = c.GetOrSet(t.Context(), m.request(9, "b")) })
		time.Sleep(30 * time.Second)
		if s := c.Stats(); s.Flights != 6 || s.Running != 3 || s.Queued != 3 {
			t.Errorf("at first: %+v", s)
		}
		time.Sleep(time.Minute) // two got places or gave up waiting for them
		callers.Wait()
		synctest.Wait()
		if s := c.Stats(); s.Flights != 0 || s.Running != 0 || s.Queued != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}
