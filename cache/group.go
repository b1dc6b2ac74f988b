package cache

// groupFailure is the last failure of a group and the time of its next try.
type groupFailure struct {
	failure         // until holds back the keys that have failed themselves
	only    Key     // the first key that failed; zero after a second key has failed
	others  instant // holds back the other keys; halfway to until
	prober  Key     // the key that tries for the group
	probing instant // holds back the rest while the prober tries
}

// heldByGroup returns the error for a key whose group holds it back, or nil. It is called with the lock held.
//
// A single failing key holds back no other key, since the cause may be its own, such as a session tag that is too long.
//
// Keys that have not failed themselves try first. Otherwise a few keys that always fail could take every try, and a key
// that would succeed, and end the group's failure, might never get one.
func (c *TokenCache) heldByGroup(req Request, now instant) *BackoffError {
	g, ok := c.groups.Get(req.Group)
	if !ok || g.only != (Key{}) || g.forgotten(now) {
		return nil
	}
	until := g.others
	if own, failed := c.failures.Get(req.Key); failed && !own.forgotten(now) {
		own.until = now // so that the failure is remembered while the key is in use
		c.failures.Add(req.Key, own)
		until = g.until
	}
	switch {
	case now.before(until):
		return &BackoffError{Err: g.err, wait: failure{until: until}.remaining(now)}
	case now.before(g.probing):
		return &BackoffError{Err: g.err, wait: minBackoff}
	}
	return nil
}

// probe lets the key try for its group, unless the group holds it back by now.
func (c *TokenCache) probe(req Request) error {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if held := c.heldByGroup(req, now); held != nil {
		return held
	}
	if g, ok := c.groups.Peek(req.Group); ok {
		g.prober, g.probing = req.Key, now.add(c.mintTimeout)
	}
	return nil
}

// landInGroup records the result of a flight for its group, unless the key was deleted meanwhile. It is called with the lock
// held.
func (c *TokenCache) landInGroup(req Request, v verdict, wanted bool, now instant) {
	if req.Group == (Key{}) {
		return
	}
	g, known := c.groups.Peek(req.Group)
	probed := known && g.prober == req.Key
	if probed {
		g.prober, g.probing = Key{}, instant{}
	}
	switch {
	case !wanted:
	case v.err == nil:
		c.groups.Remove(req.Group)
	case !v.shared:
	case !known || g.only == req.Key:
		c.groups.Add(req.Group, &groupFailure{failure: failure{until: now}, only: req.Key})
	case probed || !now.before(g.others): // exchanges that failed at the same time count once
		c.groups.Add(req.Group, g.again(v, now))
	}
}

// again returns the failure that follows g.
func (g *groupFailure) again(v verdict, now instant) *groupFailure {
	next := g.failure.again(v, now)
	half := max(next.remaining(now)/2, min(v.retryAfter, maxRetryAfter))
	return &groupFailure{failure: next, others: now.add(half)}
}
