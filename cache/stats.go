package cache

import "maps"

// Stats are the gauges of a cache.
type Stats struct {
	// Items is the number of tokens in the cache.
	Items int
	// Flights is the number of exchanges that were requested and have not ended. They are Running, QueuedForSlot or
	// QueuedForRate, or wait for the credential that they are made of.
	Flights int
	// Running is the number of exchanges that have started.
	Running int
	// QueuedForSlot is the number of exchanges that wait because their tenant uses all of its slots.
	QueuedForSlot int
	// QueuedForRate is the number of exchanges that wait because of the start rate.
	QueuedForRate int
	// Waiting is the number of callers that wait for a flight.
	Waiting int
	// Failing is the number of keys whose last exchange failed, by what failed. It does not grow with the attempts. A key
	// is forgotten when it succeeds, or about five minutes after its back-off if nobody asks for it any more. Nil if none.
	Failing map[Failing]int
}

// Failing is what an exchange failed at.
type Failing struct {
	// Provider is that of the request.
	Provider string
	// Result is one of Results.
	Result string
}

// Stats returns the gauges as they are now.
func (c *TokenCache) Stats() Stats {
	if c.disabled() {
		return Stats{}
	}
	s := c.limits.stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Items, s.Flights, s.Waiting = c.entries.Len(), c.inFlight, c.waiting
	if len(c.failing) > 0 {
		s.Failing = maps.Clone(c.failing)
	}
	return s
}

// uncount is called with the lock held, for each failure that is no longer remembered.
func (c *TokenCache) uncount(_ Key, f failure) {
	if c.failing[f.of]--; c.failing[f.of] == 0 {
		delete(c.failing, f.of)
	}
}
