package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

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

// startLoad starts callers and changes. end waits for them.
func (w *world) startLoad(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range *soakCallers {
		running.Go(func() {
			c := &caller{world: w, random: rand.New(rand.NewPCG(*soakSeed, uint64(n)+2))} //nolint:gosec // chooses tenants
			c.run(ctx)
		})
	}
	running.Go(func() { w.churn(ctx, 250*time.Millisecond) })
	return func() {
		cancel()
		running.Wait()
	}
}

// caller is one of a controller's workers.
type caller struct {
	world  *world
	random *rand.Rand
}

// pace is the mean time between two calls of a caller.
const pace = 4 * time.Millisecond

func (c *caller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			c.call(ctx)
			timer.Reset(time.Duration(c.random.Int64N(int64(2 * pace))))
		}
	}
}

// question is one call and what was known of the tenant before and after it.
type question struct {
	*tenant
	registry, direct, hasty bool
	phase                   *phase
	before, after           view
	start, end              time.Time
}

// view is what the informer shows of a ServiceAccount, nil if there is none.
type view = *corev1.ServiceAccount

func (c *caller) look(ctx context.Context, t *tenant) view {
	sa := &corev1.ServiceAccount{}
	if err := c.world.informed.Get(ctx, t.key, sa); err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			c.world.violations.add("informer", "%s: %v", t.key, err)
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
	return q.before.ResourceVersion == q.after.ResourceVersion
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

func (c *caller) call(ctx context.Context) {
	w, r := c.world, c.random
	n := r.IntN(len(w.tenants))
	if r.IntN(10) == 0 {
		n %= hot
	}
	q := &question{tenant: w.tenants[n], phase: w.phase(), direct: r.IntN(50) == 0, hasty: r.IntN(50) == 0}
	q.registry = q.usesRegistry() && r.IntN(2) == 0
	limited := ctx
	if q.hasty {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
	}
	q.before = c.look(ctx, q.tenant)
	q.start = time.Now()
	token, err := q.ask(limited, w)
	q.end = time.Now()
	q.after = c.look(ctx, q.tenant)
	if ctx.Err() != nil {
		return // the load has ended
	}
	stats := q.phase.of(q.side)
	stats.calls.Add(1)
	switch {
	case err == nil:
		c.checkToken(ctx, q, token)
	case limited.Err() != nil:
		stats.fail("gave up")
		c.checkHaste(limited, q)
	default:
		stats.fail(reasonOf(err))
		w.checkFailure(q, err)
	}
}

func (q *question) ask(ctx context.Context, w *world) (auth.Token, error) {
	options := q.options
	if q.direct {
		options = q.tenant.direct
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
func (c *caller) checkToken(ctx context.Context, q *question, token auth.Token) {
	w := c.world
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
	}
	if q.stable() && !q.direct {
		c.checkView(q, name, from)
	}
	if q.phase.calm && c.random.IntN(200) == 0 && !w.faulty(q.side, "", q.start, time.Now()) {
		c.present(ctx, q, token)
	}
}

// checkView compares a credential with what the ServiceAccount asks for.
func (c *caller) checkView(q *question, name string, from minted) {
	w := c.world
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
func (c *caller) present(ctx context.Context, q *question, token auth.Token) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := q.side.present(ctx, token)
	c.world.presented.Add(1)
	if err != nil && ctx.Err() == nil && !c.world.faulty(q.side, "", q.start, time.Now()) {
		c.world.violations.add("credential that is refused", "%s: %v: %v", q.key, token, err)
	}
}

// checkHaste makes sure that a caller who gives up gets away.
func (c *caller) checkHaste(limited context.Context, q *question) {
	deadline, _ := limited.Deadline()
	late := int64(q.end.Sub(deadline))
	for {
		most := c.world.leftLate.Load()
		if late <= most || c.world.leftLate.CompareAndSwap(most, late) {
			break
		}
	}
	if late > int64(time.Second) {
		c.world.violations.add("caller who gave up was held", "%s: for %s", q.key, time.Duration(late))
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
		w.violations.add("failure although a valid credential is cached", "%s %s, valid for %s: %v", q.key, p.kind, r.hard().Sub(q.end), err)
	case err.Permanent():
		w.violations.add("good tenant is refused", "%s: %v", q.key, err)
	case !recent && !w.faulty(nil, kubernetes, q.start.Add(-longestBackoff), q.end):
		w.violations.add("failure without a fault", "%s: %v", q.key, err)
	}
}
