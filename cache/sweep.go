package cache

import "time"

const (
	sweepEvery = 30 * time.Second
	// sweepBatch is how many keys are looked at in one go, so that callers need not wait for a large cache.
	sweepBatch = 256
)

// sweepUntilClosed removes what has expired although nobody asks for it any more.
func (c *TokenCache) sweepUntilClosed() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			c.sweep()
		}
	}
}

func (c *TokenCache) sweep() {
	c.mu.Lock()
	entries, failures, groups := c.entries.Keys(), c.failures.Keys(), c.groups.Keys()
	c.mu.Unlock()
	c.inBatches(entries, func(key Key, now instant) {
		if e, ok := c.entries.Peek(key); ok && !e.valid(now) {
			c.entries.Remove(key)
		}
	})
	c.inBatches(failures, func(key Key, now instant) {
		if f, ok := c.failures.Peek(key); ok && f.forgotten(now) {
			c.failures.Remove(key)
		}
	})
	c.inBatches(groups, func(group Key, now instant) {
		if g, ok := c.groups.Peek(group); ok && g.forgotten(now) {
			c.groups.Remove(group)
		}
	})
}

// inBatches calls visit with the lock held.
func (c *TokenCache) inBatches(keys []Key, visit func(Key, instant)) {
	for len(keys) > 0 {
		n := min(sweepBatch, len(keys))
		now := c.now()
		c.mu.Lock()
		for _, key := range keys[:n] {
			visit(key, now)
		}
		c.mu.Unlock()
		keys = keys[n:]
	}
}
