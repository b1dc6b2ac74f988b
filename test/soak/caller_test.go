package soak

import (
	"context"
	"errors"
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
	// longestBackoff is that of the cache, with its jitter and a second for the machine.
	longestBackoff = 34 * time.Second
	// settling is how long after a change of a tenant its failures are its own affair: the change has to reach the informer,
	// which has to reconnect if the API server was down, and failures of the time between are remembered.
	settling = 10*time.Second + longestBackoff
	// landing is how long after an exchange somebody who asked before may still get the failure of before.
	landing = time.Second
)

// startLoad has tenants ask at a steady rate, however long the answers take, and changes them. end waits for all.
func (w *world) startLoad(t *testing.T) (end func()) {
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
	// maxWaiting is how many callers of a cloud's tenants there may be at once: more than ask in the time that an exchange
	// takes until it has failed.
	maxWaiting = 5000
)

// dispatch sends out callers of some tenants, unless too many wait for an exchange.
func (w *world) dispatch(ctx context.Context, tenants []*tenant, running *sync.WaitGroup) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	places := make(chan struct{}, maxWaiting)
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
			case places <- struct{}{}:
			default:
				w.heldBack.Add(1)
				continue
			}
			running.Go(func() {
				defer func() { <-places }()
				w.call(ctx, tenants)
			})
		}
	}
}

// warm asks for everything once, so that no fault meets an empty cache.
func (w *world) warm(t *testing.T) {
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
	stored           bool // reads with the serviceaccounts.Reader
	phase            *phase
	before, after    view
	start, end       time.Time
}

// view is what the reader of the call shows of a ServiceAccount, nil if there is none.
type view = *corev1.ServiceAccount

func (w *world) look(ctx context.Context, q *question) view {
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

// stable means that the call has seen the ServiceAccount as it was before and after.
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

func (w *world) call(ctx context.Context, tenants []*tenant) {
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

// answer asks and judges the answer. limited is the context of a caller who may give up.
func (w *world) answer(ctx, limited context.Context, q *question) {
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
	switch {
	case err == nil:
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

// checkToken is what the soak is for.
func (w *world) checkToken(ctx context.Context, q *question, token auth.Token) {
	if left := token.GetDuration(); left <= 0 {
		w.violations.add("expired credential", "%s: %v, for %s", q.key, token, -left)
	}
	name, known := q.side.owner(token)
	switch {
	case !known:
		w.violations.add("credential that the cloud does not know", "%s: %v", q.key, token)
	case w.byName[name] != q.tenant:
		w.violations.add("credential of another tenant", "%s got that of %q", q.key, name)
	}
	from, remembered := q.origin(token)
	if !remembered {
		w.violations.add("credential of long ago", "%s: %v", q.key, token)
	} else if from.at.Before(q.start) {
		q.phase.of(q.side).hit(q.end.Sub(q.start))
		w.checkAge(q, from)
	}
	if q.stable() && !q.direct {
		w.checkView(q, name, from)
	}
	if q.phase.fault == nil && rand.IntN(200) == 0 && !w.faulty(q.side, "", q.start, time.Now()) {
		w.present(ctx, q, token)
	}
}

// clocks is how far the cache's idea of when a credential came may be behind the soak's.
const clocks = 500 * time.Millisecond

// checkAge makes sure that what was made before the call had not come to its end when it was asked for.
func (w *world) checkAge(q *question, from minted) {
	age := q.start.Sub(from.at)
	if age > from.life {
		w.violations.add("credential that had expired when it was asked for", "%s: %s old, lived for %s", q.key, age, from.life)
	}
	if kept := w.lifeInCache(from.life); age > kept+clocks+w.stalls.within(from.at, q.start) {
		w.violations.add("credential that was kept for too long", "%s: %s old, to be kept for %s", q.key, age, kept)
	}
}

// checkView compares a credential with what the ServiceAccount asks for.
func (w *world) checkView(q *question, name string, from minted) {
	if q.before == nil {
		w.violations.add("credential of a deleted ServiceAccount", "%s", q.key)
		return
	}
	variant := q.variantOf(q.before.Annotations)
	switch {
	case variant < 0:
		w.violations.add("credential for annotations that deserve none", "%s: %v", q.key, q.before.Annotations)
	case q.names[variant] != name:
		w.violations.add("credential of the identity before", "%s got %q instead of %q", q.key, name, q.names[variant])
	case from.uid != q.before.UID:
		w.violations.add("credential of an earlier life", "%s", q.key)
	}
}

// present uses a credential, in a minute in which nothing is wrong.
func (w *world) present(ctx context.Context, q *question, token auth.Token) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := q.side.present(ctx, token)
	w.presented.Add(1)
	if err != nil && ctx.Err() == nil && !w.faulty(q.side, "", q.start, time.Now()) {
		w.violations.add("credential that is refused", "%s: %v: %v", q.key, token, err)
	}
}

// checkHaste makes sure that a caller who gives up gets away.
func (w *world) checkHaste(limited context.Context, q *question) {
	deadline, _ := limited.Deadline()
	late := int64(q.end.Sub(deadline))
	for {
		most := w.leftLate.Load()
		if late <= most || w.leftLate.CompareAndSwap(most, late) {
			break
		}
	}
	if stalled := w.stalls.within(deadline, q.end); late > int64(time.Second+stalled) {
		w.violations.add("caller who gave up was held", "%s: for %s, direct %t, registry %t, in %q", q.key,
			time.Duration(late), q.direct, q.registry, q.phase.name)
	}
}

// checkFailure decides whether a failure is in order.
func (w *world) checkFailure(q *question, err error) {
	var known *auth.Error
	if !errors.As(err, &known) {
		w.violations.add("failure without a reason", "%s: %v", q.key, err)
		return
	}
	if q.direct && known.Operation == "read ServiceAccount" && !apierrors.IsNotFound(known.Err) {
		if !w.faulty(nil, kubernetes, q.start, q.end) {
			w.violations.add("API server failed without a fault", "%s: %v", q.key, err)
		}
		return
	}
	if !q.stable() || q.direct || q.before == nil || q.variantOf(q.before.Annotations) < 0 {
		return // there is nothing to be had, or what there is to be had has just changed
	}
	if q.touchedSince(q.start.Add(-settling)) {
		return
	}
	w.checkGoodFailure(q, known)
}

// checkGoodFailure is for tenants of which nobody has changed anything.
func (w *world) checkGoodFailure(q *question, err *auth.Error) {
	denied := errors.Is(err, auth.ErrDenied) || errors.Is(err, auth.ErrMisconfigured)
	if denied && q.registry && w.faulty(nil, ahead, q.start.Add(-longestBackoff), q.end) {
		return
	}
	p := q.purpose()
	q.mu.Lock()
	r, recent := *q.record(p), false
	for other, r := range q.records {
		if other.uid == p.uid && other.identity == p.identity && r.failures > 0 && q.end.Sub(r.failed) < longestBackoff {
			recent = true
		}
	}
	q.mu.Unlock()
	switch {
	case !r.succeeded.IsZero() && q.start.After(r.succeeded.Add(landing)) && q.end.Before(r.hard()):
		w.violations.add("failure although a valid credential is cached", "%s %s, valid for %s, made %s ago, %s: %v",
			q.key, p.kind, r.hard().Sub(q.end), q.end.Sub(r.succeeded), r, err)
	case err.Operation == "create ServiceAccount token" && errors.Is(err, auth.ErrDenied) &&
		w.faulty(nil, kubernetes, q.start.Add(-longestBackoff), q.end):
		// An API server that starts refuses everyone.
	case denied:
		w.violations.add("good tenant is refused", "%s: %v", q.key, err)
	case !recent && !w.faulty(nil, kubernetes, q.start.Add(-longestBackoff), q.end):
		w.violations.add("failure without a fault", "%s: %v", q.key, err)
	}
}
