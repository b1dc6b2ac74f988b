package cache

import (
	"context"
	"errors"
	"reflect"
	"time"
)

// flight is an exchange under way. token and err may be read when done is closed.
type flight struct {
	tenant string // whose slots it takes
	done   chan struct{}
	token  Token
	life   time.Duration // of the token
	err    error
	held   bool // by the key's group, so that nothing was tried

	blocked bool // its tenant uses all of its slots; guarded by the lock of the cache
}

// errExited is what remains if Mint ends its goroutine.
var errExited = errors.New("the provider ended the goroutine of the exchange; this is a bug in the provider")

// startFlight is called with the lock held.
func (c *TokenCache) startFlight(caller context.Context, req Request, refresh bool) *flight {
	f := &flight{tenant: req.Tenant, done: make(chan struct{}), err: errExited}
	c.flights[req.Key] = f
	c.inFlight++
	c.running.Go(func() { c.fly(caller, f, req, refresh) })
	return f
}

// fly runs the exchange. It ends with the cache or with its own deadline, never with the caller that caused it.
func (c *TokenCache) fly(caller context.Context, f *flight, req Request, refresh bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(caller))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	start := time.Now()
	v := verdict{err: errExited, result: resultOf(errExited)}
	leave := func() {}
	defer func() {
		f.err = v.err
		c.land(f, req, v)
		leave() // after land, so that the next exchange of the group sees this failure
		close(f.done)
		c.observer.Mint(req.Provider, v.result, time.Since(start))
		if refresh {
			c.observer.Refresh(v.result)
		}
	}()
	defer func() { v = judge(f.err) }() // the error may end the goroutine too

	if err := c.prepare(ctx, req); err != nil {
		f.err = err
		return
	}
	entered, err := c.enter(ctx, f, req)
	if err != nil {
		f.err = err
		return
	}
	leave = entered
	if !refresh {
		if err := c.probe(req); err != nil {
			f.err, f.held = err, true
			return
		}
	}
	start = time.Now()
	ctx, stop := context.WithTimeout(ctx, c.mintTimeout)
	defer stop()
	f.token, f.life, f.err = mint(ctx, req)
	if c.ctx.Err() != nil && f.err != nil {
		f.err = ErrClosed
	}
}

// prepare has the time of an exchange, as what it waits for has.
func (c *TokenCache) prepare(ctx context.Context, req Request) error {
	ctx, stop := context.WithTimeout(ctx, c.mintTimeout)
	defer stop()
	err := prepare(ctx, req)
	if c.ctx.Err() != nil && err != nil {
		return ErrClosed
	}
	return err
}

func prepare(ctx context.Context, req Request) (err error) {
	if req.Prepare == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = NewPanicError(p)
		}
	}()
	return req.Prepare(ctx)
}

// enter waits until the limits let the exchange start.
func (c *TokenCache) enter(ctx context.Context, f *flight, req Request) (leave func(), err error) {
	blocked := func(b bool) {
		c.mu.Lock()
		f.blocked = b
		c.mu.Unlock()
	}
	leave, err = c.limits.enter(ctx, tenantAt{req.Tenant, req.Provider}, c.mintTimeout, blocked)
	if err != nil && c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return leave, err
}

// land keeps the result of a flight, unless the key was deleted meanwhile.
func (c *TokenCache) land(f *flight, req Request, v verdict) {
	now := c.now()
	c.mu.Lock()
	c.inFlight--
	c.landInGroup(req, v, c.flights[req.Key] == f, now)
	if c.flights[req.Key] != f {
		c.mu.Unlock()
		return
	}
	delete(c.flights, req.Key)
	var evicted bool
	switch {
	case c.closed:
	case f.err == nil:
		evicted = c.entries.Add(req.Key, newEntry(f.token, f.life, c.maxDuration, now))
		c.failures.Remove(req.Key)
	case f.held || v.limited: // nothing was tried
	default:
		c.recordFailure(req, v, now)
	}
	c.mu.Unlock()
	if evicted {
		c.observer.Evicted()
	}
}

// recordFailure is called with the lock held.
func (c *TokenCache) recordFailure(req Request, v verdict, now instant) {
	if v.permanent {
		c.entries.Remove(req.Key)
	}
	before, again := c.failures.Peek(req.Key)
	if again {
		c.uncount(req.Key, before)
	}
	failed := before.again(v, now)
	failed.of = Failing{Provider: req.Provider, Result: v.result}
	c.failing[failed.of]++
	c.failures.Add(req.Key, failed)
}

// mint calls Mint and makes sure that what comes back is an error, or a token that is valid for a while.
func mint(ctx context.Context, req Request) (token Token, life time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			token, err = nil, NewPanicError(p)
		}
	}()
	token, err = req.Mint(ctx)
	switch {
	case err != nil:
		return nil, 0, err
	case isNil(token):
		return nil, 0, errors.New("the exchange gave neither a token nor an error; this is a bug in the provider")
	}
	if life = token.GetDuration(); life <= 0 {
		return nil, 0, errors.New("the exchange gave a token that has expired already; check that the clocks agree")
	}
	return token, life, nil
}

// isNil also finds a nil pointer in the interface.
func isNil(t Token) bool {
	v := reflect.ValueOf(t)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
