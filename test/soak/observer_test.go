package soak

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// observer counts what only the cache can tell.
type observer struct {
	hits, misses, refused, evicted atomic.Int64
	refreshes, mints               tally
}

func (*observer) Attach(func() cache.Stats) {}

func (o *observer) Request(_ cache.InvolvedObject, hit, ok bool) {
	switch {
	case hit:
		o.hits.Add(1)
	case ok:
		o.misses.Add(1)
	default:
		o.refused.Add(1)
	}
}

func (o *observer) Mint(provider, result string, _ time.Duration) {
	o.mints.add(provider + " " + result)
}

func (o *observer) Refresh(result string) { o.refreshes.add(result) }

func (o *observer) Evicted() { o.evicted.Add(1) }

func (o *observer) String() string {
	return fmt.Sprintf("the cache counted %d hits, %d served by exchanges, %d failed, %d evicted; renewals: %s",
		o.hits.Load(), o.misses.Load(), o.refused.Load(), o.evicted.Load(), &o.refreshes)
}

// tally counts by name.
type tally struct {
	mu     sync.Mutex
	counts map[string]int64
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int64{}
	}
	t.counts[name]++
}

func (t *tally) of(name string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

func (t *tally) total() (sum int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.counts {
		sum += n
	}
	return sum
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for name, n := range t.counts {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
