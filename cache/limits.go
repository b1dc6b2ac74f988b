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
}

// limits keep tenants apart. An exchange waits briefly for one of the few slots of its tenant at the provider, then for its turn
// of a rate at which exchanges of all tenants start. An exchange that hangs holds its slot, but cannot hold a rate.
type limits struct {
	starts                       *rate.Limiter
	perTenant, perProvider       int
	queuedForSlot, queuedForRate atomic.Int64

	mu      sync.Mutex // never held while waiting
	slots   map[tenantAt]slots
	running map[string]int // by provider
}

func newLimits() *limits {
	return &limits{starts: rate.NewLimiter(defaultRate, defaultBurst), perTenant: defaultMaxFlightsPerTenant,
		perProvider: maxRunning, slots: map[tenantAt]slots{}, running: map[string]int{}}
}

// enter waits until an exchange may start, at most turnWait for the rate. blocked is true while it waits for a slot. The caller
// calls leave when the exchange has ended. The error is a *LimitError, or that of ctx.
func (l *limits) enter(ctx context.Context, t tenantAt, turnWait time.Duration, blocked *atomic.Bool) (leave func(), err error) {
	// Without this first check, a provider that hangs would use up the rate with exchanges that cannot run.
	if err := l.run(t.provider, 0); err != nil {
		return nil, err
	}
	taken := l.use(t, 1)
	defer func() {
		if err != nil {
			l.use(t, -1)
		}
	}()
	if err := l.takeSlot(ctx, t, taken, blocked); err != nil {
		return nil, err
	}
	if err = l.awaitTurn(ctx, turnWait); err == nil {
		err = l.run(t.provider, 1)
	}
	if err != nil {
		<-taken
		return nil, err
	}
	return func() {
		_ = l.run(t.provider, -1) // no limit refuses that
		<-taken
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
func (l *limits) use(t tenantAt, n int) (taken chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.slots[t]
	if own.taken == nil {
		own.taken = make(chan struct{}, l.perTenant)
	}
	own.users += n
	if l.slots[t] = own; own.users == 0 {
		delete(l.slots, t)
	}
	return own.taken
}

func (l *limits) takeSlot(ctx context.Context, t tenantAt, taken chan<- struct{}, blocked *atomic.Bool) error {
	select {
	case taken <- struct{}{}:
		return nil
	default:
	}
	blocked.Store(true)
	defer blocked.Store(false)
	l.queuedForSlot.Add(1)
	defer l.queuedForSlot.Add(-1)
	select {
	case taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slotWait):
		return &LimitError{noSlot: true, message: fmt.Sprintf("all %d slots of tenant %q for exchanges with provider %q were in use for %s; "+
			"try again, and check what is slow", l.perTenant, t.tenant, t.provider, slotWait)}
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
		"try again, or raise the rate with cache.WithRate", float64(l.starts.Limit()), longest)}
}
