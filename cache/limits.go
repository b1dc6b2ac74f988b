package cache

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/workloadid/workloadid/internal/quota"
)

const (
	// slotWait is the longest time that an exchange waits for a slot of its
	// tenant.
	slotWait = 2 * time.Second
	// maxRunning bounds the memory of the exchanges that run with one provider.
	maxRunning = 4096

	// An exchange takes seconds where each of its steps waits for maxLag for a
	// CPU.
	maxLag = 50 * time.Millisecond
	// lagMemory is how long a lag counts, because some probes of a busy machine
	// are quick.
	lagMemory = time.Second
	// While the machine lags, maxRecent exchanges that run for less than
	// recently keep it busy. Older ones do not count.
	maxRecent = 128
	recently  = time.Second
)

// tenantAt is a tenant at one provider.
type tenantAt struct{ tenant, provider string }

// slots are the slots of one tenant at one provider.
type slots struct {
	taken quota.Slots
	last  atomic.Int64 // when a slot was last taken, in Unix nanoseconds; zero if none was
}

// hang reports whether all slots are held for longer than the patience, given
// that all are taken.
func (s *slots) hang(patience time.Duration) bool {
	last := s.last.Load()
	return last != 0 && time.Since(time.Unix(0, last)) > patience
}

// limits keep tenants apart. An exchange waits briefly for one of the few slots
// of its tenant at the provider. Then it waits for the rate at which exchanges
// of all tenants start. An exchange that hangs holds its slot, but cannot hold
// the rate.
//
// At a rate that the machine cannot serve, exchanges starve each other until
// all outlive the patience. While the machine lags, they start as others end. A
// service or tenant that is slow makes no lag.
type limits struct {
	starts, paced                *rate.Limiter // equal; starts refuses at arrival, paced spaces what a lag held up
	perTenant, perProvider       int
	patience                     time.Duration
	queuedForSlot, queuedForRate atomic.Int64

	turn   chan struct{} // full while an exchange has its turn; the others are served in the order of their arrival
	yield  func()        // lets other goroutines run first
	lagged time.Time     // the last lag; only the exchange that has the turn uses it
	recent atomic.Int64  // exchanges that have run for less than recently

	slots quota.Map[tenantAt, *slots] // used by the exchanges that hold a slot or wait for one

	mu      sync.Mutex     // never held while waiting
	running map[string]int // by provider
}

func newLimits() *limits {
	l := &limits{starts: rate.NewLimiter(defaultRate, defaultBurst), paced: rate.NewLimiter(defaultRate, defaultBurst),
		perTenant: defaultMaxExchangesPerTenant, perProvider: maxRunning, patience: defaultPatience,
		turn: make(chan struct{}, 1), yield: runtime.Gosched, running: map[string]int{}}
	l.slots.New = func() *slots { return &slots{taken: make(quota.Slots, l.perTenant)} }
	return l
}

// enter waits until an exchange may start, at most turnWait for the rate. It
// calls block before it waits for a slot. The caller calls leave when the
// exchange has ended. err is a *LimitError or the error of ctx.
func (l *limits) enter(ctx context.Context, t tenantAt, turnWait time.Duration,
	block func()) (leave func(), err error) {
	// Without this first check, a provider that hangs would use up the rate
	// with exchanges that cannot run.
	if err := l.run(t.provider, 0); err != nil {
		return nil, err
	}
	own, unuse := l.slots.Use(t)
	defer func() {
		if err != nil {
			unuse()
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
		unuse()
	}, nil
}

// run adds n exchanges to those that run with the provider. It refuses one more
// than the provider's limit.
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
	lacking := &LimitError{noSlot: true,
		message: fmt.Sprintf("all %d slots of tenant %q for exchanges with provider %q are in use; "+
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

// takeTurn returns when the exchange may start, or with an error when ctx has
// ended first.
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

// lags reports whether goroutines wait long for a CPU, now or a moment ago. The
// caller has the turn.
func (l *limits) lags() bool {
	start := time.Now()
	if start.Sub(l.lagged) > lagMemory {
		if l.yield(); time.Since(start) > maxLag {
			l.lagged = start
		}
	}
	return start.Sub(l.lagged) <= lagMemory
}
