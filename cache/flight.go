package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// flight is an exchange under way. token and err may be read when done is closed.
type flight struct {
	tenant string // uses one of its slots
	done   chan struct{}
	token  Token
	life   time.Duration // of the token
	err    error

	// blocked ends by block when the exchange, or one that it waits for, has to wait for a slot of its tenant. overdue ends by late when
	// one of them has run for longer than the patience.
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

// callingFlight is the key of the flight in the contexts of its Prepare and Mint.
type callingFlight struct{}

// run makes the exchange. It ends with the cache or with its own deadline, never with the caller that caused it.
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

const (
	// slotWait is the longest time that an exchange waits for a slot of its tenant.
	slotWait = 2 * time.Second
	// maxRunning bounds the memory of the exchanges that run with one provider.
	maxRunning = 4096

	// An exchange takes seconds where each of its steps waits for maxLag for a CPU.
	maxLag = 50 * time.Millisecond
	// lagMemory is how long a lag counts, because some probes of a busy machine are quick.
	lagMemory = time.Second
	// While the machine lags, maxRecent exchanges that run for less than recently keep it busy. Older ones do not count.
	maxRecent = 128
	recently  = time.Second
)

// tenantAt is a tenant at one provider.
type tenantAt struct{ tenant, provider string }

// slots are those of one tenant at one provider.
type slots struct {
	taken chan struct{} // one value for each slot that is taken; waiting exchanges are served in the order of their arrival
	users int           // exchanges that hold a slot or wait for one
	last  atomic.Int64  // when a slot was last taken, in Unix nanoseconds; zero if none was
}

// hang reports whether all slots are held for longer than the patience, given that all are taken.
func (s *slots) hang(patience time.Duration) bool {
	last := s.last.Load()
	return last != 0 && time.Since(time.Unix(0, last)) > patience
}

// limits keep tenants apart. An exchange waits briefly for one of the few slots of its tenant at the provider, then for its turn
// of a rate at which exchanges of all tenants start. An exchange that hangs holds its slot, but cannot hold a rate.
//
// At a rate that the machine cannot serve, exchanges starve each other until all outlive the patience. While the
// machine lags, they start as others end. A service or tenant that is slow makes no lag.
type limits struct {
	starts, paced                *rate.Limiter // equal; starts refuses at arrival, paced spaces what a lag held up
	perTenant, perProvider       int
	patience                     time.Duration
	queuedForSlot, queuedForRate atomic.Int64

	turn   chan struct{} // full while an exchange has its turn; the others are served in the order of their arrival
	yield  func()        // lets other goroutines run first
	lagged time.Time     // the last lag; only the exchange that has the turn uses it
	recent atomic.Int64  // exchanges that have run for less than recently

	mu      sync.Mutex // never held while waiting
	slots   map[tenantAt]*slots
	running map[string]int // by provider
}

func newLimits() *limits {
	return &limits{starts: rate.NewLimiter(defaultRate, defaultBurst), paced: rate.NewLimiter(defaultRate, defaultBurst),
		perTenant: defaultMaxExchangesPerTenant, perProvider: maxRunning, patience: defaultPatience,
		turn: make(chan struct{}, 1), yield: runtime.Gosched, slots: map[tenantAt]*slots{}, running: map[string]int{}}
}

// enter waits until an exchange may start, at most turnWait for the rate. It calls block before it waits for a slot. The caller
// calls leave when the exchange has ended. The error is a *LimitError, or that of ctx.
func (l *limits) enter(ctx context.Context, t tenantAt, turnWait time.Duration, block func()) (leave func(), err error) {
	// Without this first check, a provider that hangs would use up the rate with exchanges that cannot run.
	if err := l.run(t.provider, 0); err != nil {
		return nil, err
	}
	own := l.use(t, 1)
	defer func() {
		if err != nil {
			l.use(t, -1)
		}
	}()
	if err := l.takeSlot(ctx, t, own, block); err != nil {
		return nil, err
	}
	if err = l.awaitTurn(ctx, turnWait); err == nil {
		err = l.run(t.provider, 1)
	}
	if err != nil {
		<-own.taken
		return nil, err
	}
	l.recent.Add(1)
	aging := time.AfterFunc(recently, func() { l.recent.Add(-1) })
	return func() {
		if aging.Stop() {
			l.recent.Add(-1)
		}
		_ = l.run(t.provider, -1) // no limit refuses that
		<-own.taken
		l.use(t, -1)
	}, nil
}

// run adds n exchanges to those that run with the provider. It refuses one more than the provider's limit.
func (l *limits) run(provider string, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n >= 0 && l.running[provider] >= l.perProvider {
		return &LimitError{message: fmt.Sprintf("%d exchanges with provider %q are running, which is the limit; "+
			"try again, and check whether its service hangs", l.perProvider, provider)}
	}
	if l.running[provider] += n; l.running[provider] == 0 {
		delete(l.running, provider)
	}
	return nil
}

// use adds n exchanges to those that hold or want a slot of the tenant.
func (l *limits) use(t tenantAt, n int) *slots {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.slots[t]
	if own == nil {
		own = &slots{taken: make(chan struct{}, l.perTenant)}
		l.slots[t] = own
	}
	if own.users += n; own.users == 0 {
		delete(l.slots, t)
	}
	return own
}

func (l *limits) takeSlot(ctx context.Context, t tenantAt, own *slots, block func()) (err error) {
	select {
	case own.taken <- struct{}{}:
	default:
		err = l.awaitSlot(ctx, t, own, block)
	}
	if err == nil {
		own.last.Store(time.Now().UnixNano())
	}
	return err
}

func (l *limits) awaitSlot(ctx context.Context, t tenantAt, own *slots, block func()) error {
	lacking := &LimitError{noSlot: true, message: fmt.Sprintf("all %d slots of tenant %q for exchanges with provider %q are in use; "+
		"try again, and check what is slow", l.perTenant, t.tenant, t.provider)}
	if own.hang(l.patience) {
		return lacking // a wait would hold up the caller for nothing
	}
	block()
	l.queuedForSlot.Add(1)
	defer l.queuedForSlot.Add(-1)
	select {
	case own.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slotWait):
		return lacking
	}
}

func (l *limits) awaitTurn(ctx context.Context, longest time.Duration) error {
	l.queuedForRate.Add(1)
	defer l.queuedForRate.Add(-1)
	limited, stop := context.WithTimeout(ctx, longest)
	defer stop()
	err := l.starts.Wait(limited)
	if err == nil {
		err = l.takeTurn(limited)
	}
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &LimitError{message: fmt.Sprintf("more exchanges wait to start than %v a second or the CPU of this process "+
		"let start within %s; try again, or raise the rate of the cache or the CPU", float64(l.starts.Limit()), longest)}
}

// takeTurn returns when the exchange may start, or with an error when ctx has ended first.
func (l *limits) takeTurn(ctx context.Context) error {
	held := false
	select {
	case l.turn <- struct{}{}: // also when ctx ends at the moment that the rate has given
	default:
		held = true
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-l.turn }()
	for l.recent.Load() >= maxRecent && l.lags() {
		held = true
		select {
		case <-time.After(maxLag):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !held {
		l.paced.Allow() // counts it
		return nil
	}
	return l.paced.Wait(ctx)
}

// lags reports whether goroutines wait long for a CPU, now or a moment ago. The caller has the turn.
func (l *limits) lags() bool {
	start := time.Now()
	if start.Sub(l.lagged) > lagMemory {
		if l.yield(); time.Since(start) > maxLag {
			l.lagged = start
		}
	}
	return start.Sub(l.lagged) <= lagMemory
}

// instant is one moment on both clocks, in nanoseconds.
type instant struct {
	wall int64 // since 1970; jumps when the clock is set
	mono int64 // since the cache was made; stands still while the machine is suspended
}

func instantAt(t, base time.Time) instant {
	return instant{wall: t.UnixNano(), mono: int64(t.Sub(base))}
}

func (i instant) add(d time.Duration) instant {
	return instant{wall: i.wall + int64(d), mono: i.mono + int64(d)}
}

// sub returns the shorter time since other.
func (i instant) sub(other instant) time.Duration {
	return time.Duration(min(i.wall-other.wall, i.mono-other.mono))
}

// before reports whether i lies before other on both clocks.
func (i instant) before(other instant) bool {
	return i.wall < other.wall && i.mono < other.mono
}

const (
	// maxMargin is how long before its expiry a token is no longer handed out, so that it does not expire in the hands of
	// the receiver. The margin is at most a tenth of the token's lifetime.
	maxMargin = 30 * time.Second
	// softShare and softJitter set, in percent of the remaining lifetime, when a token is renewed ahead of time.
	softShare  = 80
	softJitter = 5
	// replaceAfter is the age from which a token can be invalid.
	replaceAfter = 10 * time.Second
	// maxLife is the longest lifetime that matters: of a longer one, a quarter lasts as long as the token is kept.
	maxLife = 4 * MaxDuration

	sweepEvery = 30 * time.Second
	sweepBatch = 256
)

// entry is immutable. From the time at which its token was minted, it is fresh until soft, valid until hard, and really expires after
// life.
type entry struct {
	token            Token
	minted           instant
	soft, hard, life time.Duration
}

// newEntry returns the entry of a token with the given remaining lifetime, which must be positive.
func newEntry(token Token, life, maxDuration time.Duration, now instant) *entry {
	hard := min(life-min(maxMargin, life/10), maxDuration)
	share := softShare - softJitter*rand.Float64() //nolint:gosec // spreads load, keeps no secret
	return &entry{token: token, minted: now, soft: time.Duration(float64(hard) * share / 100), hard: hard, life: min(life, maxLife)}
}

// fresh entries are served without any I/O.
func (e *entry) fresh(now instant) bool { return now.before(e.minted.add(e.soft)) }

// valid entries may be served.
func (e *entry) valid(now instant) bool { return now.before(e.minted.add(e.hard)) }

// lasts implements Request.MinimumLifetime.
func (e *entry) lasts(d time.Duration, now instant) bool {
	return d <= 0 || now.before(e.minted.add(e.life-min(d, e.life/4*3)))
}

func (e *entry) isReplaceable(now instant) bool { return now.mono-e.minted.mono >= int64(replaceAfter) }

// sweepUntilClosed removes what has expired and is no longer requested.
func (c *TokenCache) sweepUntilClosed() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			sweep(c, c.entries, func(e *entry, now instant) bool { return !e.valid(now) })
			sweep(c, c.failures, failure.forgotten)
			sweep(c, c.groups, (*groupFailure).forgotten)
		}
	}
}

// sweep holds the lock for a batch of keys at a time, so that callers need not wait for a large cache.
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
