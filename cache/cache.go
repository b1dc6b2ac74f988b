package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Token is a credential that expires.
type Token interface {
	// GetDuration returns how long the token is still valid, approximately from
	// now.
	GetDuration() time.Duration
}

// Key identifies a credential by a hash of everything that shapes it.
type Key [sha256.Size]byte

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// InvolvedObject is the object that needs a credential, and the operation that
// uses it. It labels metrics.
type InvolvedObject struct{ Kind, Name, Namespace, Operation string }

// OperationReconcile is the Operation of a reconciler, as in controllers of
// Flux.
const OperationReconcile = "reconcile"

// Request describes the credential to return or mint. Only Key and Mint are
// required.
type Request struct {
	// Key identifies the credential.
	Key Key
	// Object labels the metrics.
	Object InvolvedObject
	// fresh makes the caller wait for the renewal of a token that is due for
	// it. If the renewal fails for now, the caller gets the old token. Set it
	// for a token from which another credential is made: that credential would
	// expire early.
	fresh bool
	// MinimumLifetime is how long the token should still be valid. If less is
	// left, the caller waits for a new token. If the renewal fails for now, the
	// caller gets the old one. At most three quarters of a token's lifetime
	// count, so that a short-lived token does not cause an exchange for every
	// request.
	MinimumLifetime time.Duration
	// InvalidBefore is when a service refused the credential. A token that was
	// minted no later is invalid for this request, which waits for the next
	// token, or fails. Other requests keep the token until there is a new one:
	// one hostile service takes no token from them. A token younger than ten
	// seconds stays valid, so that a service that refuses everything does not
	// cause an exchange for every request.
	InvalidBefore time.Time
	// Group names the keys whose exchanges fail for the same cause. It must not
	// span two tenants, nor inputs that one caller can get wrong while another
	// has them right. The zero Key means no group.
	//
	// Failures of two keys hold back every key of the group that has no valid
	// token. Failures of a single key hold back only that key, because the
	// cause may be its own. Only a Failure that is Shared counts. After the
	// back-off, one key at a time tries again; keys that have not failed
	// themselves come first. Keys with a valid token keep it and renew it as
	// without a group. A success of any key ends the failure.
	Group Key
	// Patient makes the caller wait until its context ends, without the bound
	// of WithPatience. Set it for callers that do not come back, such as
	// clients of SDKs.
	Patient bool
	// Insistent makes the caller try again at once after a failure, without the
	// back-off, unless there is a token to serve. Set it for a caller whose
	// exchanges something else limits.
	Insistent bool
	// Tenant is the tenant whose slots the exchange takes. Empty is a tenant
	// too.
	Tenant string
	// Provider is the service that the exchange is with. One that hangs delays
	// no other. It labels the metrics of exchanges.
	Provider string
	// Needs returns the requests for the credentials of which Mint makes this
	// one. It is called on a miss only and does no I/O. The cache obtains them
	// as fresh, before the exchange takes a slot, because theirs may need that
	// slot. Nil means none.
	Needs func() ([]Request, error)
	// Mint obtains the credential in a goroutine of the cache. needs are the
	// tokens of Needs, in their order. The context has the values of the
	// caller's context, but a deadline of its own.
	Mint func(ctx context.Context, needs []Token) (Minted, error)
	// Classify says what an error of Needs or Mint, or of one of the needs,
	// means for the cache. It runs in the same goroutine, after them, and has
	// to be quick. Nil makes every error a temporary failure of this key.
	Classify func(err error) Failure
}

// Minted is the result of an exchange.
type Minted struct {
	Token Token
	// Until is when the token leaves the cache at the latest. A token that is
	// made of this one leaves no later either. Zero means when the token
	// expires.
	Until time.Time
}

// Failure is the meaning of an error for the cache. The zero value is a
// temporary failure of one key.
type Failure struct {
	// Permanent drops the token that was to be renewed. Without it, the token
	// stays while it is valid.
	Permanent bool
	// Refused drops that token at the second such failure in a row, 30 seconds
	// after the first at the earliest: services that are eventually consistent
	// refuse a good request now and then.
	Refused bool
	// Shared says that the other keys of Request.Group would fail too. It
	// counts for errors of Mint only.
	Shared bool
	// RefusesNeeds drops the tokens of Request.Needs, as Invalidate does,
	// because the service did not accept them. It counts for errors of Mint
	// only.
	RefusesNeeds bool
	// RetryAfter is the shortest back-off, at most five minutes.
	RetryAfter time.Duration
	// Result labels the metrics with one of Results. Another value counts as
	// ResultError, or as ResultTimeout if that is the error.
	Result string
}

// TokenCache caches tokens. It is safe for concurrent use. A nil *TokenCache
// caches nothing: every request mints.
type TokenCache struct {
	maxDuration time.Duration
	unbounded   bool          // WithoutMaxDuration
	mintTimeout time.Duration // shorter in tests
	observer    Observer
	capacity    int

	base time.Time // where the monotonic clock starts
	now  func() instant

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the flights and the sweep
	sweeper *time.Timer    // nil while there is nothing to sweep
	limits  *limits
	waiting atomic.Int64

	mu       sync.Mutex // never held over I/O, a mint or an observer's call
	closed   bool
	entries  *simplelru.LRU[Key, *entry]
	failures *simplelru.LRU[Key, failure]
	failing  map[Failing]int // the failures, by kind
	groups   *simplelru.LRU[Key, *groupFailure]
	flights  map[Key]*flight // those whose result is still wanted
	inFlight int             // all of them
}

// NewTokenCache returns a cache that holds up to capacity tokens. Capacity 0
// means no cache: every request mints. Close ends its exchanges and waits for
// them.
func NewTokenCache(capacity int, opts ...Option) (*TokenCache, error) {
	c := &TokenCache{maxDuration: MaxDuration, mintTimeout: mintTimeout, observer: noObserver{}, capacity: capacity,
		base: time.Now(), limits: newLimits(), flights: map[Key]*flight{}, failing: map[Failing]int{}}
	for _, opt := range opts {
		opt(c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var errs [3]error
	size := max(capacity, 1) // of a cache that is off, too
	c.entries, errs[0] = simplelru.NewLRU[Key, *entry](size, nil)
	c.failures, errs[1] = simplelru.NewLRU(size, func(_ Key, f failure) { c.count(f.of, -1) })
	c.groups, errs[2] = simplelru.NewLRU[Key, *groupFailure](size, nil)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	c.now = func() instant { return instantAt(time.Now(), c.base) }
	c.ctx, c.cancel = context.WithCancel(context.Background())
	// Last, because the observer may read the gauges at once. Weak, because the
	// observer may outlive the cache.
	self := weak.Make(c)
	c.observer.Attach(func() Stats { return self.Value().Stats() })
	return c, nil
}

// Enabled reports whether the cache keeps anything: it is not nil and its
// capacity is not 0.
func (c *TokenCache) Enabled() bool { return c != nil && c.capacity > 0 }

// Get returns the token of the key if it is fresh and meets MinimumLifetime and
// InvalidBefore of a [Request]. It does no I/O and allocates nothing. It counts
// no miss: [TokenCache.GetOrSet] does.
func (c *TokenCache) Get(key Key, object InvolvedObject, minimumLifetime time.Duration,
	invalidBefore time.Time) (Token, bool) {
	if !c.Enabled() {
		return nil, false
	}
	now := c.now()
	c.mu.Lock()
	e, usable := c.find(key, invalidBefore, now)
	c.mu.Unlock()
	if !usable || !e.fresh(now) || !e.lasts(minimumLifetime, now) {
		return nil, false
	}
	c.observer.Request(object, true, true)
	return e.token, true
}

// find returns the entry of the key if it is valid, or nil, and whether it is
// valid for the request too. The caller holds the lock.
func (c *TokenCache) find(key Key, invalidBefore time.Time, now instant) (e *entry, usable bool) {
	e, ok := c.entries.Get(key)
	if !ok || c.closed || !e.valid(now) {
		return nil, false
	}
	return e, invalidBefore.IsZero() || !e.isReplaceable(now) || e.minted.mono > int64(invalidBefore.Sub(c.base))
}

// GetOrSet returns the token of the key and mints it if there is no valid one.
// retrieved reports whether the token was in the cache. A token for which the
// caller waited counts as minted.
//
// It returns the error of Needs, Mint or the context, or [ErrClosed]. While a
// key is held back after failures, it returns a [*BackoffError] around the
// error of the last exchange. If a limit does not let the exchange start, it
// returns a [*LimitError]. If the exchange takes longer than [WithPatience]
// allows, it returns a [*PendingError].
func (c *TokenCache) GetOrSet(ctx context.Context, req Request) (token Token, retrieved bool, err error) {
	got, retrieved, err := c.obtain(ctx, req)
	return got.Token, retrieved, err
}

// obtain is GetOrSet that also returns the bound of the token.
func (c *TokenCache) obtain(ctx context.Context, req Request) (got Minted, retrieved bool, err error) {
	if !c.Enabled() {
		got, err = c.mintUncached(ctx, req)
		return got, false, err
	}
	got, retrieved, err = c.getOrSet(ctx, req)
	c.observer.Request(req.Object, retrieved, err == nil)
	return got, retrieved, err
}

func (c *TokenCache) getOrSet(ctx context.Context, req Request) (got Minted, retrieved bool, err error) {
	for ctx.Err() == nil {
		got, f, err := c.lookUp(ctx, req)
		if f == nil {
			return got, got.Token != nil, err
		}
		got, err = c.wait(ctx, f, req)
		if err == nil {
			return got, false, nil
		}
		if f.tenant != req.Tenant && lacksSlot(err) {
			continue // the other tenant's lack of slots must not fail this caller
		}
		if ctx.Err() == nil {
			got = c.current(req)
		}
		if got.Token != nil {
			return got, true, nil
		}
		return Minted{}, false, err
	}
	return Minted{}, false, ctx.Err()
}

// lookUp returns a token to serve, or the flight to wait for, or the error of a
// key that is held back.
func (c *TokenCache) lookUp(ctx context.Context, req Request) (Minted, *flight, error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Minted{}, nil, ErrClosed
	}
	e, usable := c.find(req.Key, req.InvalidBefore, now)
	lasts := usable && e.lasts(req.MinimumLifetime, now)
	if lasts && e.fresh(now) {
		return e.result(), nil, nil
	}
	f := c.flights[req.Key]
	if f == nil || f.tenant != req.Tenant && f.blocked.Err() != nil { // no caller waits for a slot of another tenant
		held := c.heldBack(req, usable, now)
		switch {
		case held != nil && usable:
			return e.result(), nil, nil
		case held != nil && !req.Insistent:
			return Minted{}, nil, held
		}
		f = c.startFlight(ctx, req, e != nil)
	}
	if lasts && !req.fresh {
		return e.result(), nil, nil // the flight renews it in the background
	}
	return Minted{}, f, nil
}

// wait returns when the first of these happens: the flight ends, the caller's
// context or patience ends, or the flight has to wait for another tenant's
// slot. A caller that is a flight itself keeps waiting, but its own callers do
// not.
func (c *TokenCache) wait(ctx context.Context, f *flight, req Request) (Minted, error) {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	blocked, overdue := f.blocked.Done(), f.overdue.Done()
	calling, isFlight := ctx.Value(callingFlight{}).(*flight)
	for {
		select {
		case <-f.done:
			return f.result, f.err
		case <-ctx.Done():
			return Minted{}, ctx.Err()
		case <-blocked:
			if f.tenant != req.Tenant {
				return Minted{}, errBlocked
			}
			if isFlight {
				calling.block()
			}
			blocked = nil
		case <-overdue:
			if isFlight {
				calling.late()
			} else if !req.Patient {
				return Minted{}, &PendingError{c.limits.patience}
			}
			overdue = nil
		}
	}
}

// current returns the token that may be served although its renewal failed, if
// there is one.
func (c *TokenCache) current(req Request) (got Minted) {
	c.locked(func() {
		if e, usable := c.find(req.Key, req.InvalidBefore, c.now()); usable {
			got = e.result()
		}
	})
	return got
}

// drop removes the token of the key, because a service has refused it although
// it should still be valid. A token that is younger than ten seconds stays. The
// caller holds the lock.
func (c *TokenCache) drop(key Key, now instant) {
	if e, ok := c.entries.Peek(key); ok && e.isReplaceable(now) {
		c.entries.Remove(key)
	}
}

// Delete removes the token of the key and forgets its failures, but not its
// group's. The result of an exchange in flight is not kept.
func (c *TokenCache) Delete(key Key) {
	c.locked(func() {
		c.entries.Remove(key)
		c.failures.Remove(key)
		delete(c.flights, key)
	})
}

// Purge removes everything, as Delete does for one key.
func (c *TokenCache) Purge() {
	c.locked(func() {
		c.entries.Purge()
		c.failures.Purge()
		c.groups.Purge()
		clear(c.flights)
	})
}

// locked calls f with the lock held, unless the cache is off.
func (c *TokenCache) locked(f func()) {
	if c.Enabled() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	}
}

// Len returns the number of tokens in the cache. Some may have expired within
// the last half minute.
func (c *TokenCache) Len() int { return c.Stats().Items }

// Close ends all exchanges, drops all tokens, and returns when no goroutine of
// the cache runs any more. Requests under way and later ones fail. Close may be
// called more than once.
func (c *TokenCache) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	if c.sweeper != nil {
		c.sweeper.Stop()
	}
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	c.Purge()
}
