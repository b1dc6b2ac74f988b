package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// slotWait is the longest time that an exchange waits for a slot of its tenant.
	slotWait = 2 * time.Second
	// maxRunning bounds the memory of the exchanges that run with one provider.
	maxRunning = 4096
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
type limits struct {
	starts                       *rate.Limiter
	perTenant, perProvider       int
	patience                     time.Duration
	queuedForSlot, queuedForRate atomic.Int64

	mu      sync.Mutex // never held while waiting
	slots   map[tenantAt]*slots
	running map[string]int // by provider
}

func newLimits() *limits {
	return &limits{starts: rate.NewLimiter(defaultRate, defaultBurst), perTenant: defaultMaxExchangesPerTenant,
		perProvider: maxRunning, patience: defaultPatience, slots: map[tenantAt]*slots{}, running: map[string]int{}}
}

// enter waits until an exchange may start, at most turnWait for the rate. blocked is true while it waits for a slot. The caller
// calls leave when the exchange has ended. The error is a *LimitError, or that of ctx.
func (l *limits) enter(ctx context.Context, t tenantAt, turnWait time.Duration, blocked *atomic.Bool) (leave func(), err error) {
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
	if err := l.takeSlot(ctx, t, own, blocked); err != nil {
		return nil, err
	}
	if err = l.awaitTurn(ctx, turnWait); err == nil {
		err = l.run(t.provider, 1)
	}
	if err != nil {
		<-own.taken
		return nil, err
	}
	return func() {
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

func (l *limits) takeSlot(ctx context.Context, t tenantAt, own *slots, blocked *atomic.Bool) (err error) {
	select {
	case own.taken <- struct{}{}:
	default:
		err = l.awaitSlot(ctx, t, own, blocked)
	}
	if err == nil {
		own.last.Store(time.Now().UnixNano())
	}
	return err
}

func (l *limits) awaitSlot(ctx context.Context, t tenantAt, own *slots, blocked *atomic.Bool) error {
	lacking := &LimitError{noSlot: true, message: fmt.Sprintf("all %d slots of tenant %q for exchanges with provider %q are in use; "+
		"try again, and check what is slow", l.perTenant, t.tenant, t.provider)}
	if own.hang(l.patience) {
		return lacking // a wait would hold up the caller for nothing
	}
	blocked.Store(true)
	defer blocked.Store(false)
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
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &LimitError{message: fmt.Sprintf("more exchanges wait to start than %v a second let start within %s; "+
		"try again, or raise the rate of the cache", float64(l.starts.Limit()), longest)}
}
