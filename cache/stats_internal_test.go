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

// A key that fails counts once, however often, and until it succeeds, is
// deleted, makes room or is forgotten.
func TestFailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheOf(t, 3)
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
		broken = &classified{"broken", Failure{Result: "kubernetes_unavailable"}}
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
		expect("no longer requested", nil)
		ask(10)
		c.Purge()
		expect("all are purged", nil)
	})
}

// Exchanges that run and exchanges that wait are counted apart.
func TestRunningAndQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, WithMaxExchangesPerTenant(2), WithRate(2, 3)), &minter{mint: hang}
		var callers sync.WaitGroup
		for n := range 5 {
			callers.Go(func() { _, _, _ = c.GetOrSet(t.Context(), m.request(n, "a")) })
		}
		synctest.Wait()
		for n := range 2 {
			callers.Go(func() { _, _, _ = c.GetOrSet(t.Context(), m.request(10+n, "b")) })
		}
		synctest.Wait()
		if s := c.Stats(); s.Exchanges != 7 || s.Running != 3 || s.QueuedForSlot != 3 || s.QueuedForRate != 1 ||
			s.Waiting != 7 {
			t.Errorf("at first: %+v", s)
		}
		time.Sleep(3 * time.Second)
		if s := c.Stats(); s.Exchanges != 4 || s.Running != 4 || s.QueuedForSlot != 0 || s.QueuedForRate != 0 ||
			s.Waiting != 4 {
			t.Errorf("after three seconds: %+v", s)
		}
		callers.Wait()
		time.Sleep(mintTimeout) // the exchanges outlive the patience of their callers
		synctest.Wait()
		if s := c.Stats(); s.Exchanges != 0 || s.Running != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}
