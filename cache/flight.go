package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// flight is an exchange under way. token and err may be read when done is closed.
type flight struct {
	tenant  string      // uses one of its slots
	blocked atomic.Bool // its tenant uses all of its slots
	done    chan struct{}
	token   Token
	life    time.Duration // of the token
	err     error

	// overdue is closed by late when the exchange, or one that it waits for, has run for longer than the patience.
	overdue chan struct{}
	late    func()

	start time.Time
	leave func() // ends what limits.enter began
	held  bool   // by the key's group, so that nothing was tried
}

// startFlight is called with the lock held.
func (c *TokenCache) startFlight(caller context.Context, req Request, refresh bool) *flight {
	overdue := make(chan struct{})
	f := &flight{tenant: req.Tenant, done: make(chan struct{}), overdue: overdue, late: sync.OnceFunc(func() { close(overdue) }),
		err: errExited, start: time.Now(), leave: func() {}}
	c.flights[req.Key] = f
	c.inFlight++
	c.running.Go(func() { c.run(caller, f, req, refresh) })
	return f
}

// callingFlight is the key of the flight in the contexts of its Prepare and Mint.
type callingFlight struct{}

// run makes the exchange. It ends with the cache or with its own deadline, never with the caller that caused it.
func (c *TokenCache) run(caller context.Context, f *flight, req Request, refresh bool) {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(caller), callingFlight{}, f))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	v := verdict{err: errExited, Failure: Failure{Result: "error"}}
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
	defer func() { v = req.classify(f.err) }() // the error may end the goroutine too
	err := c.exchange(ctx, f, req, refresh)
	if f.err = err; err != nil && c.ctx.Err() != nil {
		f.err = ErrClosed
	}
}

// exchange gives Prepare and Mint the same time each, because what Prepare waits for is an exchange too.
func (c *TokenCache) exchange(ctx context.Context, f *flight, req Request, refresh bool) error {
	preparing, stop := context.WithTimeout(ctx, c.mintTimeout)
	defer stop()
	if err := prepare(preparing, req); err != nil {
		return err
	}
	leave, err := c.limits.enter(ctx, tenantAt{req.Tenant, req.Provider}, c.mintTimeout, &f.blocked)
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
	f.token, f.life, err = mint(minting, req)
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
			evicted = c.entries.Add(req.Key, newEntry(f.token, f.life, c.maxDuration, now))
			c.failures.Remove(req.Key)
		default:
			c.recordFailure(req, v, now)
		}
	})
	if evicted {
		c.observer.Evicted()
	}
}

func (c *TokenCache) mintUncached(ctx context.Context, req Request) (Token, bool, error) {
	var token Token
	start := time.Now()
	err := prepare(ctx, req)
	if err == nil {
		start = time.Now()
		token, _, err = mint(ctx, req)
	}
	v := req.classify(err)
	if c != nil {
		c.observer.Mint(req.Provider, v.Result, time.Since(start))
		c.observer.Request(req.Object, false, v.err == nil)
	}
	return token, false, v.err
}

func prepare(ctx context.Context, req Request) (err error) {
	defer recovered(&err)
	if req.Prepare != nil {
		err = req.Prepare(ctx)
	}
	return err
}

// mint calls Mint and makes sure that the result is an error, or a token that is valid for a while.
func mint(ctx context.Context, req Request) (token Token, life time.Duration, err error) {
	defer recovered(&err)
	minted, err := req.Mint(ctx)
	switch {
	case err != nil:
		return nil, 0, err
	case minted == nil:
		return nil, 0, errors.New("the exchange gave neither a token nor an error; this is a bug in the provider")
	}
	if life = minted.GetDuration(); life <= 0 {
		return nil, 0, errors.New("the exchange gave a token that has expired already; check that the clocks agree")
	}
	return minted, life, nil
}
