package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// cloudProvider is what all providers of clouds are.
type cloudProvider interface {
	provider.ArtifactRegistryCredentialsProvider
	provider.OptionsValidator
	provider.CacheKeyContributor
}

// metered watches the exchanges of a provider.
type metered struct {
	cloudProvider
	environment *environment
	side        *side
}

func (w *environment) metered(s *side, p cloudProvider) *side {
	s.provider = &metered{cloudProvider: p, environment: w, side: s}
	return s
}

func (m *metered) NewTokenForServiceAccount(ctx context.Context, jwt string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	t := m.environment.byKey[client.ObjectKeyFromObject(sa)]
	p := purpose{uid: sa.UID, identity: m.side.identity(sa.Annotations), kind: accessKind(opts.Scopes)}
	excused := func(time.Time) bool { return t.variantOf(sa.Annotations) < 0 }
	return t.exchange(ctx, m.environment, p, excused, func(ctx context.Context) (auth.Token, error) {
		return m.cloudProvider.NewTokenForServiceAccount(ctx, jwt, sa, opts)
	})
}

func (m *metered) NewArtifactRegistryCredentials(ctx context.Context, input string, access auth.Token,
	opts *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	t := m.environment.byKey[opts.Subject]
	from, _ := t.origin(access)
	p := purpose{uid: from.uid, identity: from.identity, kind: registryKind}
	token, err := t.exchange(ctx, m.environment, p, from.wasShort, func(ctx context.Context) (auth.Token, error) {
		return m.cloudProvider.NewArtifactRegistryCredentials(ctx, input, access, opts)
	})
	credentials, _ := token.(*auth.ArtifactRegistryCredentials)
	return credentials, err
}

func accessKind(scopes []string) string { return "access " + strings.Join(scopes, " ") }

// minted is a credential that an exchange gave.
type minted struct {
	purpose
	token auth.Token
	at    time.Time
	life  time.Duration // from then on
}

// wasShort means that what the clouds' clock had left only seconds of had come
// to its end by then, on its way to the registry: exchanges may wait for their
// turn for longer than it lasted.
func (m minted) wasShort(by time.Time) bool {
	return m.life > 0 && m.life <= shortLife() && by.After(m.at.Add(m.life))
}

// keepMinted is how many credentials are remembered of a tenant. The cache can
// hold fewer.
const keepMinted = 24

// origin returns which exchange a credential comes from.
func (t *tenant) origin(token auth.Token) (minted, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.minted {
		if m.token == token {
			return m, true
		}
	}
	return minted{}, false
}

// record is what is known of a purpose's exchanges.
type record struct {
	flying    bool
	succeeded time.Time     // the last time
	life      time.Duration // in the cache, of what that gave
	failed    time.Time     // the last time
	failures  int           // in a row, none after a success
}

// due is when the cache may exchange again, by its documented rules: at 75 % of
// the life at the earliest, after a failure when the back-off, one second
// doubling to thirty with 10 % of jitter, is over.
func (r *record) due() time.Time {
	if r.failures > 0 {
		backoff := min(30*time.Second, time.Second<<min(r.failures-1, 10))
		return r.failed.Add(backoff * 9 / 10)
	}
	return r.succeeded.Add(r.life * 3 / 4)
}

func (r record) String() string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Format(clockTime)
	}
	return fmt.Sprintf("succeeded %s for %s, failed %s, %d times in a row", at(r.succeeded), r.life, at(r.failed),
		r.failures)
}

// isShort means that the clouds' clock was so far back that the credential
// lasted no longer than that left it.
func (r *record) isShort() bool { return !r.succeeded.IsZero() && r.life > 0 && r.life <= shortLife() }

func (r *record) known() bool { return !r.succeeded.IsZero() || r.failures > 0 }

// hard is until when the cache has to serve what the last success gave.
func (r *record) hard() time.Time { return r.succeeded.Add(r.life) }

func (t *tenant) record(p purpose) *record {
	r := t.records[p]
	if r == nil {
		r = &record{}
		t.records[p] = r
	}
	return r
}

// exchange makes one and checks that it was time for it. Excused says of one
// that has failed by a time that it had to.
func (t *tenant) exchange(ctx context.Context, w *environment, p purpose, excused func(by time.Time) bool,
	mint func(ctx context.Context) (auth.Token, error)) (auth.Token, error) {
	start := time.Now()
	stats := w.phase().of(t.side)
	stats.exchanges.Add(1)
	if p.kind != registryKind {
		stats.accessExchanges.Add(1)
	}
	t.mu.Lock()
	r := t.record(p)
	before, due := *r, r.due()
	r.flying = true
	t.mu.Unlock()
	switch {
	case before.flying:
		w.violations.add("two exchanges at once", "%s %+v", t.key, p)
	case before.known() && start.Before(due):
		w.violations.add("exchange before it is due", "%s %+v: %s early after %d failures, life %s", t.key, p,
			due.Sub(start), before.failures, before.life)
	}
	if before.isShort() && before.failures == 0 {
		stats.shortRenewals.Add(1)
	}
	ctx, requests := t.side.countRequests(ctx)
	token, err := mint(ctx)
	end := time.Now()
	if err == nil {
		w.checkRequests(t, p, start, end, requests.sent.Load())
	}

	t.mu.Lock()
	r.flying = false
	if err == nil {
		life := token.GetDuration()
		*r = record{succeeded: end, life: w.lifeInCache(life), failed: r.failed}
		t.minted = append(t.minted, minted{p, token, end, life})
		t.minted = t.minted[max(0, len(t.minted)-keepMinted):]
	} else {
		r.failed, r.failures = end, r.failures+1
		if permanent(err) {
			r.succeeded = time.Time{} // the cache has dropped it
		}
	}
	t.mu.Unlock()
	if err != nil {
		stats.failedExchanges.add(reasonOf(err))
		if !excused(end) && !t.touchedSince(start.Add(-settling)) {
			w.checkExchange(t, p, start, end, err)
		}
	}
	return token, err
}

// checkRequests is for an exchange that succeeded.
func (w *environment) checkRequests(t *tenant, p purpose, start, end time.Time, sent int64) {
	// Connections that are cut at the end of a fault are noticed a little
	// later.
	before := start.Add(-time.Second)
	if want := t.side.requestsFor(p); sent != want && !w.faulty(t.side, p.kind, before, end) &&
		!w.faulty(nil, skewed, before, end) {
		w.violations.add("exchange that took more or fewer requests", "%s %+v: %d instead of %d", t.key, p, sent, want)
	}
}

// checkExchange checks an exchange that failed although the tenant was not
// changed.
func (w *environment) checkExchange(t *tenant, p purpose, start, end time.Time, err error) {
	switch {
	case !w.faulty(t.side, p.kind, start, end):
		w.violations.add("exchange failed without a fault", "%s %+v: %v", t.key, p, err)
	case permanent(err) && (p.kind != registryKind || !w.faulty(nil, ahead, start, end)):
		w.violations.add("good tenant is refused because of a fault", "%s %+v: %v", t.key, p, err)
	}
}

func permanent(err error) bool {
	return provider.Permanent(err)
}

// lifeInCache is how long the cache keeps a credential, by its documented
// rules.
func (w *environment) lifeInCache(life time.Duration) time.Duration {
	return min(life-min(30*time.Second, life/10), w.maxDuration)
}

// reasonOf is the label of a failure in the table.
func reasonOf(err error) string {
	var known *auth.Error
	switch {
	case isPending(err):
		return leftEarly
	case errors.As(err, &known):
		return string(cmp.Or(known.Reason, auth.ErrUnavailable))
	}
	return "other"
}
