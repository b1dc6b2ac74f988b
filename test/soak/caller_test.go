package soak

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
)

const (
	// longestBackoff is that of the cache, with its jitter and a second for the
	// machine.
	longestBackoff = 34 * time.Second
	// settling is how long after a change of a tenant its failures are its own
	// affair: the change has to reach the informer, which has to reconnect if
	// the API server was down, and failures of the time between are remembered.
	settling = 10*time.Second + longestBackoff
	// settled is how long after an exchange an earlier caller may still get the
	// earlier failure.
	settled = time.Second
)

// startLoad has tenants ask at a steady rate, however long the answers take,
// and changes them. end waits for all.
func (w *environment) startLoad(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, s := range w.allSides {
		var own []*tenant
		for _, t := range w.tenants {
			if t.side == s {
				own = append(own, t)
			}
		}
		running.Go(func() { w.dispatch(ctx, own, &running) })
	}
	running.Go(func() { w.stalls.watch(ctx) })
	running.Go(func() { w.churn(ctx, 250*time.Millisecond) })
	return func() {
		cancel()
		running.Wait()
	}
}

const (
	// beat is how often callers are sent out.
	beat = 5 * time.Millisecond
	// maxWaiting is how many callers of a cloud's tenants there may be at once:
	// more than ask in the time that an exchange takes until it has failed.
	maxWaiting = 5000
)

// dispatch sends out callers of some tenants, unless too many wait for an
// exchange.
func (w *environment) dispatch(ctx context.Context, tenants []*tenant, running *sync.WaitGroup) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	slots := make(chan struct{}, maxWaiting)
	start, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// What a late beat has left out is made up for.
		due := int(time.Since(start).Seconds()*float64(*soakRate)) / len(w.allSides)
		for ; sent < due; sent++ {
			select {
			case slots <- struct{}{}:
			default:
				w.heldBack.Add(1)
				continue
			}
			running.Go(func() {
				defer func() { <-slots }()
				w.call(ctx, tenants)
			})
		}
	}
}

// warm asks for everything once, so that no fault meets an empty cache.
func (w *environment) warm(t *testing.T) {
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	for _, one := range w.tenants {
		group.Go(func() error {
			w.answer(ctx, ctx, &question{tenant: one, phase: w.phase()})
			if one.usesRegistry() {
				w.answer(ctx, ctx, &question{tenant: one, phase: w.phase(), registry: true})
			}
			return nil
		})
	}
	_ = group.Wait() // what is wrong is among the violations
}

// question is one call and what was known of the tenant before and after it.
type question struct {
	*tenant
	registry, direct bool
	stored           bool // reads with the informer that strips
	phase            *phase
	before, after    view
	start, end       time.Time
}

// view is what the reader of the call shows of a ServiceAccount, nil if there
// is none.
type view = *corev1.ServiceAccount

func (w *environment) look(ctx context.Context, q *question) view {
	sa, reader := &corev1.ServiceAccount{}, w.informed
	if q.stored {
		reader = w.stored
	}
	if err := reader.Get(ctx, q.key, sa); err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.violations.add("reader in memory failed", "%s: %v", q.key, err)
		}
		return nil
	}
	return sa
}

// stable means that the call has seen the ServiceAccount as it was before and
// after.
func (q *question) stable() bool {
	if q.before == nil || q.after == nil {
		return q.before == q.after
	}
	return q.before.UID == q.after.UID && maps.Equal(q.before.Annotations, q.after.Annotations)
}

// purpose is what the cache keeps for this call.
func (q *question) purpose() purpose {
	p := purpose{uid: q.before.UID, identity: q.side.identity(q.before.Annotations), kind: accessKind(nil)}
	if q.registry {
		p.kind = registryKind
	}
	return p
}

// hot is how many tenants get a tenth of all calls.
const hot = 20

func (w *environment) call(ctx context.Context, tenants []*tenant) {
	n := rand.IntN(len(tenants))
	if rand.IntN(10) == 0 {
		n %= hot
	}
	q := &question{tenant: tenants[n], phase: w.phase(), direct: rand.IntN(50) == 0}
	q.registry = q.usesRegistry() && rand.IntN(2) == 0
	q.stored = !q.direct && rand.IntN(2) == 0
	limited := ctx
	if rand.IntN(50) == 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
	}
	w.answer(ctx, limited, q)
}

// answer asks and checks the answer. limited is the context of a caller who may
// give up.
func (w *environment) answer(ctx, limited context.Context, q *question) {
	q.before = w.look(ctx, q)
	q.start = time.Now()
	token, err := q.ask(limited)
	q.end = time.Now()
	q.after = w.look(ctx, q)
	if ctx.Err() != nil {
		return // the load has ended
	}
	stats := q.phase.of(q.side)
	stats.calls.Add(1)
	w.checkWait(q)
	switch {
	case err == nil:
		w.early.got(q)
		w.checkToken(ctx, q, token)
	case limited.Err() != nil:
		stats.failures.add("gave up")
		w.checkHaste(limited, q)
	default:
		stats.failures.add(reasonOf(err))
		w.checkFailure(q, err)
	}
}

func (q *question) ask(ctx context.Context) (auth.Token, error) {
	options := q.options
	switch {
	case q.direct:
		options = q.tenant.direct
	case q.stored:
		options = q.tenant.stored
	}
	if !q.registry {
		return auth.GetAccessToken(ctx, q.side.provider, options...)
	}
	credentials, err := auth.GetArtifactRegistryCredentials(ctx, q.side.provider, q.side.repository, options...)
	if err != nil {
		return nil, err
	}
	return credentials, nil
}
