package cache

import (
	"context"
	"errors"
	"time"
)

// flight is an exchange under way. result and err may be read once done is
// closed.
type flight struct {
	tenant string // uses one of its slots
	done   chan struct{}
	result Minted
	life   time.Duration // of the result
	err    error

	needs  needs
	minted bool // Mint was called

	// block ends blocked when the exchange, or one that it waits for, has to
	// wait for a slot of its tenant. late ends overdue when one of them has run
	// for longer than the patience.
	blocked, overdue context.Context
	block, late      context.CancelFunc

	start time.Time
	leave func() // ends what limits.enter began
	held  bool   // by the key's group, so that nothing was tried
}

// startFlight is called with the lock held.
func (c *TokenCache) startFlight(caller context.Context, req Request, refresh bool) *flight {
	f := &flight{tenant: req.Tenant, done: make(chan struct{}), err: errExited, start: time.Now(), leave: func() {}}
	f.blocked, f.block = context.WithCancel(context.Background())
	f.overdue, f.late = context.WithCancel(context.Background())
	c.flights[req.Key] = f
	c.inFlight++
	c.running.Go(func() { c.run(caller, f, req, refresh) })
	return f
}

// callingFlight is the key of the flight in the contexts of its needs and of
// Mint.
type callingFlight struct{}

// run makes the exchange. It ends with the cache or with its own deadline,
// never with the caller that caused it.
func (c *TokenCache) run(caller context.Context, f *flight, req Request, refresh bool) {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(caller), callingFlight{}, f))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	v := verdict{err: errExited, Failure: Failure{Result: ResultError}}
	defer func() {
		f.err = v.err
		c.finish(f, req, v)
		f.leave() // after finish, so that the next exchange of the group sees this failure
		close(f.done)
		c.observer.Mint(req.Provider, v.Result, time.Since(f.start))
		if refresh {
			c.observer.Refresh(v.Result)
		}
	}()
	defer func() { v = f.verdict(req) }() // the error may end the goroutine too
	err := c.exchange(ctx, f, req, refresh)
	if f.err = err; err != nil && c.ctx.Err() != nil {
		f.err = ErrClosed
	}
}

// verdict classifies the flight's error. Only an error of Mint says anything
// about the group or the needs.
func (f *flight) verdict(req Request) verdict {
	v := req.classify(f.err)
	v.Shared, v.RefusesNeeds = v.Shared && f.minted, v.RefusesNeeds && f.minted
	return v
}

// exchange gives the needs and Mint the same time each, because the needs are
// exchanges too.
func (c *TokenCache) exchange(ctx context.Context, f *flight, req Request, refresh bool) (err error) {
	preparing, stop := context.WithTimeout(ctx, c.mintTimeout)
	defer stop()
	if f.needs, err = c.obtainNeeds(preparing, req); err != nil {
		return err
	}
	leave, err := c.limits.enter(ctx, tenantAt{req.Tenant, req.Provider}, c.mintTimeout, f.block)
	if err != nil {
		return err
	}
	f.leave = leave
	if !refresh {
		if held := c.probe(f, req); held != nil {
			f.held = true
			return held
		}
	}
	f.start = time.Now()
	defer time.AfterFunc(c.limits.patience, f.late).Stop()
	minting, stop := context.WithTimeout(ctx, c.mintTimeout)
	defer stop()
	f.minted = true
	f.result, f.life, err = mint(minting, req, f.needs)
	return err
}

// probe lets the key try for its group, unless the group holds it back by now.
func (c *TokenCache) probe(f *flight, req Request) (held *BackoffError) {
	c.locked(func() {
		held = c.heldByGroup(req, c.now())
		if g, ok := c.groups.Peek(req.Group); ok && held == nil {
			g.prober = f
		}
	})
	return held
}

// finish keeps the result of a flight, unless the key was deleted meanwhile.
func (c *TokenCache) finish(f *flight, req Request, v verdict) {
	evicted := false
	c.locked(func() {
		now, wanted := c.now(), c.flights[req.Key] == f
		c.inFlight--
		c.finishInGroup(f, req, v, wanted, now)
		if wanted {
			delete(c.flights, req.Key)
		}
		switch {
		case !wanted || c.closed || f.held || v.untried:
		case v.err == nil:
			evicted = c.entries.Add(req.Key, newEntry(f.result, f.life, c.maxDuration, now))
			c.failures.Remove(req.Key)
		default:
			c.recordFailure(req, v, now)
		}
		if v.RefusesNeeds {
			for _, key := range f.needs.keys {
				c.drop(key, now)
			}
		}
		c.sweepLater()
	})
	if evicted {
		c.observer.Evicted()
	}
}

func (c *TokenCache) mintUncached(ctx context.Context, req Request) (got Minted, err error) {
	start := time.Now()
	of, err := c.obtainNeeds(ctx, req)
	if err == nil {
		start = time.Now()
		got, _, err = mint(ctx, req, of)
	}
	v := req.classify(err)
	if c != nil {
		c.observer.Mint(req.Provider, v.Result, time.Since(start))
		c.observer.Request(req.Object, false, v.err == nil)
	}
	return got, v.err
}

// needs are the credentials of Request.Needs once they have been obtained.
type needs struct {
	tokens []Token
	keys   []Key
	until  time.Time // the earliest of their bounds, which holds for what is made of them
}

func (c *TokenCache) obtainNeeds(ctx context.Context, req Request) (n needs, err error) {
	defer recovered(&err)
	if req.Needs == nil {
		return n, nil
	}
	requests, err := req.Needs()
	if err != nil {
		return n, err
	}
	for _, need := range requests {
		need.fresh = true
		got, _, err := c.obtain(ctx, need)
		if err != nil {
			return n, err
		}
		n.tokens, n.keys = append(n.tokens, got.Token), append(n.keys, need.Key)
		n.until = earliest(n.until, got.Until)
	}
	return n, nil
}

// earliest takes a zero time for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// mint calls Mint. It returns an error, or a token that is valid for a while.
func mint(ctx context.Context, req Request, of needs) (got Minted, life time.Duration, err error) {
	defer recovered(&err)
	made, err := req.Mint(ctx, of.tokens)
	switch {
	case err != nil:
		return got, 0, err
	case made.Token == nil:
		return got, 0, errors.New("the exchange gave neither a token nor an error; this is a bug in the provider")
	}
	life = made.Token.GetDuration()
	if made.Until = earliest(made.Until, of.until); !made.Until.IsZero() {
		life = min(life, time.Until(made.Until))
	}
	if life <= 0 {
		return got, 0, errors.New("the exchange gave a token that has expired already; check that the clocks agree")
	}
	return made, life, nil
}
