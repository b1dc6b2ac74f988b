package cache

import "maps"

// Stats are the gauges of a cache.
type Stats struct {
	// Items is the number of tokens in the cache.
	Items int
	// Flights is the number of exchanges that somebody has asked for and that have not ended: those that are Running, those
	// that are Queued, and those that wait for the credential that they are made of.
	Flights int
	// Running is the number of exchanges that have a place.
	Running int
	// Queued is the number of exchanges that wait for a place, because all are taken or all that their tenant may have.
	Queued int
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
	running, queued := c.places.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Items: c.entries.Len(), Flights: c.inFlight, Running: running, Queued: queued, Waiting: c.waiting}
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
