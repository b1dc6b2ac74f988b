package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
)

// checkToken is what the soak is for.
func (w *environment) checkToken(ctx context.Context, q *question, token auth.Token) {
	if left := token.GetDuration(); left <= 0 {
		w.violations.add("expired credential", "%s: %v, for %s", q.key, token, -left)
	}
	name, known := q.side.owner(token)
	switch {
	case !known && w.faulty(nil, skewed, q.start, time.Now()): // by the cloud's wrong clock it has expired
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

// clocks is how far the cache's idea of when a credential came may be behind
// the soak's.
const clocks = 500 * time.Millisecond

// checkAge makes sure that what was made before the call had not come to its
// end when it was asked for.
func (w *environment) checkAge(q *question, from minted) {
	age := q.start.Sub(from.at)
	if age > from.life {
		w.violations.add("credential that had expired when it was asked for", "%s: %s old, lived for %s", q.key, age,
			from.life)
	}
	if kept := w.lifeInCache(from.life); age > kept+clocks+w.stalls.within(from.at, q.start) {
		w.violations.add("credential that was kept for too long", "%s: %s old, to be kept for %s", q.key, age, kept)
	}
}

// checkView compares a credential with what the ServiceAccount asks for.
func (w *environment) checkView(q *question, name string, from minted) {
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
func (w *environment) present(ctx context.Context, q *question, token auth.Token) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := q.side.present(ctx, token)
	w.presented.Add(1)
	if err != nil && ctx.Err() == nil && !w.faulty(q.side, "", q.start, time.Now()) {
		w.violations.add("credential that is refused", "%s: %v: %v", q.key, token, err)
	}
}

// mostLate is for a machine that has more to do than it can: a caller that is
// really held stays so until a request ends.
const mostLate = 3 * time.Second

// mostWait leaves time for what a busy machine has to make up for from the
// fault before. It is a quarter of the time that a cloud hangs in five minutes;
// in a short soak, no caller can be held for that long.
const mostWait = 6 * time.Second

// checkWait makes sure that no caller waits for a cloud of other tenants. Such
// a caller would wait until that cloud's requests end, and get its credential
// then. What is made up for after the fault is another matter.
func (w *environment) checkWait(q *question) {
	if q.phase.unmoved == nil || !q.phase.unmoved(q.side) {
		return
	}
	until := q.end
	if next := w.phase(); next != q.phase && next.begun.Before(until) {
		until = next.begun
	}
	took := until.Sub(q.start)
	raise(&w.longest, took)
	if took > mostWait+w.stalls.within(q.start, until) {
		w.violations.add("waited for another cloud", "%s: %s, direct %t, registry %t", q.key, took, q.direct, q.registry)
	}
}

// raise keeps the longest time.
func raise(most *atomic.Int64, d time.Duration) {
	for {
		before := most.Load()
		if int64(d) <= before || most.CompareAndSwap(before, int64(d)) {
			return
		}
	}
}

// checkHaste makes sure that a caller who gives up gets away.
func (w *environment) checkHaste(limited context.Context, q *question) {
	deadline, _ := limited.Deadline()
	late := q.end.Sub(deadline)
	raise(&w.leftLate, late)
	if late > mostLate+w.stalls.within(deadline, q.end) {
		w.violations.add("caller who gave up was held", "%s: for %s, direct %t, registry %t, in %q", q.key,
			late, q.direct, q.registry, q.phase.name)
	}
}

// checkFailure decides whether a failure is in order.
func (w *environment) checkFailure(q *question, err error) {
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

// checkGoodFailure checks a failure of a tenant that was not changed.
func (w *environment) checkGoodFailure(q *question, err *auth.Error) {
	denied := errors.Is(err, auth.ErrDenied) || errors.Is(err, auth.ErrMisconfigured)
	if denied && q.registry && w.faulty(nil, ahead, q.start.Add(-longestBackoff), q.end) {
		return
	}
	p := q.purpose()
	q.mu.Lock()
	r, recent := *q.record(p), false
	for other, r := range q.records {
		if other.uid != p.uid || other.identity != p.identity || q.end.Sub(r.failed) >= longestBackoff {
			continue
		}
		// The credentials of a registry are held back for themselves: their
		// access token may have succeeded since.
		recent = recent || r.failures > 0 || q.registry
	}
	q.mu.Unlock()
	var limit *cache.LimitError
	slow := w.faulty(q.side, "", q.end.Add(-longestBackoff), q.end) ||
		w.faulty(nil, kubernetes, q.end.Add(-longestBackoff), q.end)
	switch {
	case !r.succeeded.IsZero() && q.start.After(r.succeeded.Add(settled)) && q.end.Before(r.hard()):
		w.violations.add("failure although a valid credential is cached", "%s %s, valid for %s, made %s ago, %s: %v",
			q.key, p.kind, r.hard().Sub(q.end), q.end.Sub(r.succeeded), r, err)
	case err.Operation == "create ServiceAccount token" && errors.Is(err, auth.ErrDenied) &&
		w.faulty(nil, kubernetes, q.start.Add(-longestBackoff), q.end):
		// An API server that starts refuses everyone.
	case errors.Is(err, context.DeadlineExceeded) && w.faulty(q.side, "", q.end.Add(-longestBackoff), q.end):
		// A call that waits for another exchange of its cloud makes none of its
		// own.
	case errors.As(err, &limit) && slow:
		// Exchanges that fail slowly use the slots of their namespace.
	case isPending(err) && slow:
		w.early.left(q)
	case denied:
		w.violations.add("good tenant is refused", "%s: %v", q.key, err)
	case !recent && !w.faulty(nil, kubernetes, q.start.Add(-longestBackoff), q.end):
		w.violations.add("failure without a fault", "%s: %v", q.key, err)
	}
}
