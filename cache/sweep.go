package cache

import (
	"slices"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	sweepEvery = 30 * time.Second
	sweepBatch = 256
)

// sweepLater schedules the removal of expired tokens and of failures that no
// longer count. An empty cache has no timer. The timer does not keep its cache
// in memory, so the garbage collector frees a cache that was dropped without
// Close. The caller holds the lock.
func (c *TokenCache) sweepLater() {
	if c.closed || c.sweeper != nil || c.entries.Len()+c.failures.Len()+c.groups.Len() == 0 {
		return
	}
	self := weak.Make(c)
	c.sweeper = time.AfterFunc(sweepEvery, func() {
		if c := self.Value(); c != nil {
			c.sweepOnce()
		}
	})
}

func (c *TokenCache) sweepOnce() {
	if !c.startSweep() {
		return
	}
	defer c.running.Done()
	sweep(c, c.entries, func(e *entry, now instant) bool { return !e.valid(now) })
	sweep(c, c.failures, failure.forgotten)
	sweep(c, c.groups, (*groupFailure).forgotten)
	c.locked(func() {
		c.sweeper = nil
		c.sweepLater()
	})
}

// startSweep makes Close wait for the sweep, unless the cache is closed.
func (c *TokenCache) startSweep() (started bool) {
	c.locked(func() {
		if started = !c.closed; started {
			c.running.Add(1)
		}
	})
	return started
}

// sweep holds the lock for a batch of keys at a time, so that callers need not
// wait for a large cache.
func sweep[V any](c *TokenCache, from *simplelru.LRU[Key, V], expired func(V, instant) bool) {
	c.mu.Lock()
	keys := from.Keys()
	c.mu.Unlock()
	for batch := range slices.Chunk(keys, sweepBatch) {
		now := c.now()
		c.mu.Lock()
		for _, key := range batch {
			if v, ok := from.Peek(key); ok && expired(v, now) {
				from.Remove(key)
			}
		}
		c.mu.Unlock()
	}
}
