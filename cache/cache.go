package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Token is a credential that ends.
type Token interface {
	// GetDuration returns how long the token is still valid, approximately from now.
	GetDuration() time.Duration
}

// Key identifies a credential by everything that shapes it, hashed.
type Key [sha256.Size]byte

// String returns the key in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// InvolvedObject is the object on whose behalf a credential is needed, and what for. It labels metrics.
type InvolvedObject struct {
	Kind      string
	Name      string
	Namespace string
	Operation string
}

// Request is a question for a credential.
type Request struct {
	// Key identifies the credential.
	Key Key
	// Object labels the metrics.
	Object InvolvedObject
	// Fresh has the caller wait for a new token as soon as the old one is due for renewal, unless the renewal fails for now:
	// for tokens that another credential is made of, which would otherwise be old when it is new.
	Fresh bool
	// MinimumLifetime is how long the token should still be valid. If less is left, the caller waits for a new token. If the
	// renewal fails for now, the caller gets the old one. Three quarters of a token's lifetime are the most that it can ask
	// for, so that a short-lived token does not cause an exchange for every request. Optional.
	MinimumLifetime time.Duration
	// InvalidBefore is when a service refused a credential: a token that was minted no later is invalid for this request, which
	// waits for the next token, or fails. A token that is younger than ten seconds stays valid: a service that refuses
	// everything must not cause an exchange for every request. Other requests keep the token until there is a new one, so that
	// one hostile service takes no token from them. Optional.
	InvalidBefore time.Time
	// Group names the keys whose exchanges fail for the same cause. The zero Key is no group.
	//
	// Failures of two keys hold back every key of the group that has no valid token. Repeated failures of a single key hold back
	// only that key, because the cause may be its own. A key that is held back answers with a *BackoffError around the last
	// failure. When the back-off has passed, one key at a time tries again; keys that have not failed themselves come first.
	// Keys that have a valid token keep it and renew it as without a group. A success of any key ends the failure.
	//
	// Only errors of Mint count, and only those with a method SharedFailure() bool that returns true. A group must not span
	// two tenants, nor anything that one caller can get wrong while another has it right.
	Group Key
	// Tenant is the tenant whose slots the exchange takes. Empty is a tenant too.
	Tenant string
	// Provider is the service that the exchange is with: one that hangs holds up nobody at another. It labels the metrics of
	// exchanges.
	Provider string
	// Prepare obtains what Mint needs from the same cache, such as a token that Mint turns into another credential. It
	// runs before the flight takes a slot, in the same goroutine as Mint, since a flight that waits for another one must
	// not hold what that one needs. Optional.
	Prepare func(ctx context.Context) error
	// Mint obtains the credential. It runs in a goroutine of the cache, with the values but not the end of the
	// context of the caller that caused it, and a deadline of its own.
	Mint func(ctx context.Context) (Token, error)
}

// ErrClosed is the error of requests to a cache that was closed.
var ErrClosed = errors.New("the token cache is closed")

// TokenCache caches tokens. It is safe for concurrent use. A nil *TokenCache caches nothing: every request mints.
type TokenCache struct {
	maxDuration time.Duration
	mintTimeout time.Duration
	observer    Observer
	capacity    int

	base time.Time // where the monotonic clock starts
	now  func() instant

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the flights and the janitor
	limits  *limits

	mu       sync.Mutex // never held over I/O, a mint or an observer's call
	closed   bool
	entries  *simplelru.LRU[Key, entry]
	failures *simplelru.LRU[Key, failure]
	groups   *simplelru.LRU[Key, *groupFailure]
	failing  map[Failing]int // how many of failures there are of each kind
	flights  map[Key]*flight // those whose result is still wanted
	inFlight int             // all of them
	waiting  int
}

// NewTokenCache returns a cache for as many tokens as capacity says. Capacity 0 means no cache: every request mints.
// Close it when it is no longer needed.
func NewTokenCache(capacity int, opts ...Option) (*TokenCache, error) {
	c := &TokenCache{
		maxDuration: MaxDuration,
		mintTimeout: defaultMintTimeout,
		observer:    noObserver{},
		capacity:    capacity,
		base:        time.Now(),
		limits:      newLimits(),
		flights:     map[Key]*flight{},
		failing:     map[Failing]int{},
	}
	c.now = func() instant { return instantAt(time.Now(), c.base) }
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, err
		}
	}
	if capacity < 0 {
		return nil, fmt.Errorf("the capacity of the token cache cannot be negative, but is %d", capacity)
	}
	if capacity == 0 {
		c.attach()
		return c, nil
	}
	var err error
	if c.entries, err = simplelru.NewLRU[Key, entry](capacity, nil); err != nil {
		return nil, err
	}
	if c.failures, err = simplelru.NewLRU(capacity, c.uncount); err != nil {
		return nil, err
	}
	if c.groups, err = simplelru.NewLRU[Key, *groupFailure](capacity, nil); err != nil {
		return nil, err
	}
	c.attach()
	c.running.Go(c.sweepUntilClosed)
	return c, nil
}

// attach is the last step, since the observer may ask for the gauges at once, and weak, since it may outlive the cache.
func (c *TokenCache) attach() {
	self := weak.Make(c)
	c.observer.Attach(func() Stats { return self.Value().Stats() })
}

// Enabled reports whether the cache keeps anything: it is not nil and its capacity is not 0.
func (c *TokenCache) Enabled() bool { return !c.disabled() }

func (c *TokenCache) disabled() bool { return c == nil || c.capacity == 0 }

// Get returns the token of the key if it is fresh and meets MinimumLifetime and InvalidBefore of a Request. It does no I/O and
// allocates nothing. False counts as nothing in the metrics: the caller goes on to GetOrSet, which does.
func (c *TokenCache) Get(key Key, object InvolvedObject, minimumLifetime time.Duration, invalidBefore time.Time) (Token, bool) {
	if c.disabled() {
		return nil, false
	}
	now := c.now()
	c.mu.Lock()
	e, ok := c.entries.Get(key)
	if !ok || !e.fresh(now) || !e.lasts(minimumLifetime, now) || c.isInvalid(&e, invalidBefore, now) || c.closed {
		c.mu.Unlock()
		return nil, false
	}
	token := e.token
	c.mu.Unlock()
	c.observer.Request(object, true, true)
	return token, true
}

// GetOrSet returns the token of the key, minting it if there is none that is valid. retrieved tells that the token was
// in the cache; tokens of a flight that the caller waited for count as minted.
//
// The error is that of Mint, or the context's, or ErrClosed. While a key is held back after failures, it is a
// *BackoffError around the error of Mint. An exchange that a limit does not let start is a *LimitError.
func (c *TokenCache) GetOrSet(ctx context.Context, req Request) (token Token, retrieved bool, err error) {
	if c.disabled() {
		return c.mintUncached(ctx, req)
	}
	// A caller that has gone already starts nothing.
	if err := ctx.Err(); err != nil {
		c.observer.Request(req.Object, false, false)
		return nil, false, err
	}
	token, f, err := c.lookUp(ctx, req)
	retrieved = token != nil
	for f != nil {
		if token, err = c.wait(ctx, f); f.tenant == req.Tenant || !lacksSlot(err) {
			break
		}
		// The flight belonged to another tenant, which has no free slot. That must not fail this caller.
		token, f, err = c.lookUp(ctx, req)
		retrieved = token != nil
	}
	if err != nil && ctx.Err() == nil {
		if token = c.valid(req); token != nil {
			retrieved, err = true, nil
		}
	}
	c.observer.Request(req.Object, retrieved, err == nil)
	return token, retrieved, err
}

// valid returns what the cache has for the request now, be it due for renewal, or nil.
func (c *TokenCache) valid(req Request) Token {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries.Get(req.Key); ok && e.valid(now) && !c.isInvalid(&e, req.InvalidBefore, now) && !c.closed {
		return e.token
	}
	return nil
}

// lookUp returns a token that may be served, or the flight to wait for, or the error of a key that is held back.
func (c *TokenCache) lookUp(ctx context.Context, req Request) (Token, *flight, error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	var token Token // that can be served
	e, kept := c.entries.Get(req.Key)
	if kept = kept && e.valid(now); kept && !c.isInvalid(&e, req.InvalidBefore, now) {
		token = e.token
		if e.fresh(now) && e.lasts(req.MinimumLifetime, now) {
			return token, nil, nil
		}
	}
	f, flying := c.flights[req.Key]
	if !flying || f.blocked && f.tenant != req.Tenant { // no caller waits for a slot of another tenant
		if failed, ok := c.failures.Get(req.Key); ok && failed.holdsBack(now) {
			if token != nil {
				return token, nil, nil
			}
			return nil, nil, &BackoffError{Err: failed.err, wait: failed.remaining(now)}
		}
		if token == nil {
			if held := c.heldByGroup(req, now); held != nil {
				return nil, nil, held
			}
		}
		f = c.startFlight(ctx, req, kept)
	}
	if token != nil && !req.Fresh && e.lasts(req.MinimumLifetime, now) {
		return token, nil, nil // the flight is a refresh in the background
	}
	c.waiting++
	return nil, f, nil
}

// wait ends with the flight or with the caller, whichever is first.
func (c *TokenCache) wait(ctx context.Context, f *flight) (Token, error) {
	defer c.leave()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *TokenCache) leave() {
	c.mu.Lock()
	c.waiting--
	c.mu.Unlock()
}

func (c *TokenCache) mintUncached(ctx context.Context, req Request) (Token, bool, error) {
	var observer Observer = noObserver{}
	if c != nil {
		observer = c.observer
	}
	var token Token
	start := time.Now()
	err := prepare(ctx, req)
	if err == nil {
		start = time.Now()
		token, _, err = mint(ctx, req)
	}
	v := judge(err)
	observer.Mint(req.Provider, v.result, time.Since(start))
	observer.Request(req.Object, false, v.err == nil)
	return token, false, v.err
}

// Invalidate removes the token of the key, because a service has refused it although it should still be valid. A token that is
// younger than ten seconds stays.
func (c *TokenCache) Invalidate(key Key) {
	if c.disabled() {
		return
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries.Peek(key); ok && e.isReplaceable(now) {
		c.entries.Remove(key)
	}
}

// isInvalid implements Request.InvalidBefore.
func (c *TokenCache) isInvalid(e *entry, before time.Time, now instant) bool {
	return !before.IsZero() && e.isReplaceable(now) && e.minted.mono <= int64(before.Sub(c.base))
}

// Delete removes the token of the key and forgets its failures, but not that of its group. The result of a flight that is
// under way is not kept.
func (c *TokenCache) Delete(key Key) {
	if c.disabled() {
		return
	}
	c.mu.Lock()
	c.entries.Remove(key)
	c.failures.Remove(key)
	delete(c.flights, key)
	c.mu.Unlock()
}

// Purge removes everything, as Delete does for one key.
func (c *TokenCache) Purge() {
	if c.disabled() {
		return
	}
	c.mu.Lock()
	c.entries.Purge()
	c.failures.Purge()
	c.groups.Purge()
	clear(c.flights)
	c.mu.Unlock()
}

// Len returns the number of tokens in the cache. Some may have expired within the last half minute.
func (c *TokenCache) Len() int {
	if c.disabled() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}

// Close ends all flights, drops all tokens, and returns when no goroutine of the cache runs any more. Requests under way
// and later ones fail. Close may be called more than once.
func (c *TokenCache) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	c.Purge()
}
