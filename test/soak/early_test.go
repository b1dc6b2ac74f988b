package soak

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// leftEarly is the label of a call that left its exchange running
// (cache.PendingError).
const leftEarly = "left early"

// isPending reports whether the caller left its exchange running.
func isPending(err error) bool {
	var pending *cache.PendingError
	return errors.As(err, &pending)
}

// early keeps the credentials of good tenants whose callers left early, until
// another call gets them.
type early struct {
	mu               sync.Mutex
	waiting          map[awaited]bool
	served, unwanted int
}

type awaited struct {
	*tenant
	purpose
	registry bool
}

func (q *question) awaited() awaited { return awaited{q.tenant, q.purpose(), q.registry} }

func (e *early) left(q *question) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[awaited]bool{}
	}
	e.waiting[q.awaited()] = true
}

// got is called with every call that succeeds.
func (e *early) got(q *question) {
	if q.before == nil || !q.stable() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := q.awaited(); e.waiting[a] {
		delete(e.waiting, a)
		e.served++
	}
}

// unwants forgets a credential that its ServiceAccount no longer asks for.
func (e *early) unwants(a awaited) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, a)
	e.unwanted++
}

func (e *early) all() (all []awaited) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for a := range e.waiting {
		all = append(all, a)
	}
	return all
}

// serveEarly requests what callers left and no later call got, after the last
// fault: each credential has to come when its back-off is over.
func (w *environment) serveEarly(t *testing.T) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for over := time.Now().Add(settling); ; <-tick.C {
		left := w.early.all()
		for _, a := range left {
			q := &question{tenant: a.tenant, registry: a.registry, phase: w.phase()}
			w.answer(t.Context(), t.Context(), q)
			if q.before == nil || q.after == nil || q.awaited() != a {
				w.early.unwants(a)
			}
		}
		switch {
		case len(left) == 0:
			return
		case time.Now().After(over):
			for _, a := range left {
				w.violations.add("credential that never came after a caller had left early", "%s %s", a.key, a.kind)
			}
			return
		}
	}
}

// leftEarly returns how many calls left early.
func (w *environment) leftEarly() (calls int64) {
	for _, p := range w.phases {
		for _, s := range w.allSides {
			calls += p.of(s).failures.of(leftEarly)
		}
	}
	return calls
}
