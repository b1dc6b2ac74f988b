package cache

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"
)

// counter is an Observer that outlives its caches, as metrics do.
type counter struct {
	noObserver
	stats  []func() Stats
	failed int
}

func (c *counter) Attach(stats func() Stats) { c.stats = append(c.stats, stats) }

func (c *counter) Request(_ InvolvedObject, _, ok bool) {
	if !ok {
		c.failed++
	}
}

// A cache that was closed and is no longer used leaves the memory, though its
// observer stays: a controller of many clusters has a cache for each of them,
// and clusters come and go.
func TestObserverKeepsNoCache(t *testing.T) {
	o := &counter{}
	used := func() weak.Pointer[TokenCache] {
		c := newUnboundCache(t, o)
		mustSet(t, c, Request{Key: key(1), Mint: plain(hourly)})
		if s := o.stats[0](); s.Items != 1 {
			t.Errorf("stats %+v", s)
		}
		c.Close()
		return weak.Make(c)
	}()
	for deadline := time.Now().Add(time.Minute); used.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the closed cache is kept")
		}
	}
	if s := o.stats[0](); s.Items != 0 || s.Failing != nil {
		t.Errorf("stats %+v of a cache that is gone", s)
	}
}

// newUnboundCache has no clean-up that would keep the cache.
func newUnboundCache(t *testing.T, o Observer) *TokenCache {
	t.Helper()
	c, err := NewTokenCache(1000, WithObserver(o))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The request of a caller that has already left counts too.
func TestEveryRequestIsObserved(t *testing.T) {
	o := &counter{}
	c := newTestCache(t, WithObserver(o))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.GetOrSet(gone, Request{Key: key(1), Mint: plain(hourly)}); err == nil || o.failed != 1 ||
		c.Len() != 0 {
		t.Errorf("got %v, %d failures counted, %d tokens", err, o.failed, c.Len())
	}
}

// scraper asks for the gauges while it is attached, as a scrape of metrics that
// other caches have too may do.
type scraper struct {
	noObserver
	seen []Stats
}

func (s *scraper) Attach(stats func() Stats) { s.seen = append(s.seen, stats()) }

// Gauges may be asked for from the first moment on: a scrape may come while a
// second cache with the same metrics is made.
func TestStatsWhileAttaching(t *testing.T) {
	for _, capacity := range []int{0, 10} {
		o := &scraper{}
		newCacheOf(t, capacity, WithObserver(o))
		if len(o.seen) != 1 || o.seen[0].Items != 0 || o.seen[0].Exchanges != 0 {
			t.Errorf("capacity %d: %+v", capacity, o.seen)
		}
	}
}
