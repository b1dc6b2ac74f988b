package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"
)

// ErrClosed is the error of requests to a cache that was closed.
var ErrClosed = errors.New("the token cache is closed")

// errExited is the result of a Mint that ends its goroutine.
var errExited = errors.New("the provider ended the goroutine of the exchange; this is a bug in the provider")

// BackoffError is the error of a key that is held back after it failed. It has
// the text of the failure, which does not change from one request to the next.
type BackoffError struct {
	// Err is the failure.
	Err  error
	wait time.Duration
}

func (e *BackoffError) Error() string { return e.Err.Error() }

func (e *BackoffError) Unwrap() error { return e.Err }

// RetryAfter returns how long the key is still held back.
func (e *BackoffError) RetryAfter() time.Duration { return e.wait }

// LimitError is the error of an exchange that a limit of the cache did not let
// start. It says nothing about the key or the provider, so the key does not
// back off and keeps its token.
type LimitError struct {
	message string
	noSlot  bool // the tenant uses all of its slots
}

func (e *LimitError) Error() string { return e.message }

// RetryAfter returns one second.
func (e *LimitError) RetryAfter() time.Duration { return time.Second }

// errBlocked makes a caller leave the exchange of another tenant and start its
// own.
var errBlocked = &LimitError{noSlot: true, message: "another tenant's exchange waits for a slot"}

func lacksSlot(err error) bool {
	limit := find[*LimitError](err)
	return limit != nil && limit.noSlot
}

// PendingError is the error of a caller that has waited for as long as
// [WithPatience] allows. The exchange goes on and its result is cached, so the
// key does not back off.
type PendingError struct{ patience time.Duration }

func (e *PendingError) Error() string {
	return fmt.Sprintf(
		"the exchange has been running for more than %s and goes on; try again, and check whether its service hangs",
		e.patience)
}

// RetryAfter returns the patience: the exchange may well take as long again.
func (e *PendingError) RetryAfter() time.Duration { return e.patience }

// PanicError is the error of a Mint that panicked. Its text names only the type
// of the panic's value, which could be a secret.
type PanicError struct {
	// Type is the type of the panic's value.
	Type string
	// Stack is where it happened, as runtime/debug.Stack prints it. It is not
	// part of the text.
	Stack string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic of type %s during the exchange; this is a bug in the provider", e.Type)
}

func panicked(value any) *PanicError {
	return &PanicError{Type: fmt.Sprintf("%T", value), Stack: string(debug.Stack())}
}

// recovered is deferred by functions that call a provider.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
	}
}

// verdict is the result of an exchange.
type verdict struct {
	Failure
	err error
	// a limit refused this exchange or a need's, or a need is pending
	untried bool
	held    *BackoffError // of a part of the credential, or nil
}

// classify calls Request.Classify, which may panic as Mint may. The caller does
// not hold the lock.
func (req *Request) classify(err error) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = verdict{err: panicked(p), Failure: Failure{Result: ResultPanic}}
		}
	}()
	v.err = err
	if err == nil {
		v.Result = ResultSuccess
		return v
	}
	if v.held = find[*BackoffError](err); v.held != nil {
		err = v.held.Err
	}
	v.untried = find[*LimitError](err) != nil || find[*PendingError](err) != nil
	if req.Classify != nil {
		v.Failure = req.Classify(err)
	}
	v.Shared = v.Shared && v.held == nil
	v.RetryAfter = min(v.RetryAfter, maxRetryAfter)
	v.Result = resultOf(err, v.Result)
	return v
}

// resultOf limits the label to Results.
func resultOf(err error, classified string) string {
	switch {
	case find[*PanicError](err) != nil:
		return ResultPanic
	case find[*LimitError](err) != nil:
		return ResultLimited
	case slices.Contains(Results(), classified):
		return classified
	case errors.Is(err, context.DeadlineExceeded):
		return ResultTimeout
	}
	return ResultError
}

// find returns the first error of the chain that is a T, or nil.
func find[T any](err error) (found T) {
	_ = errors.As(err, &found)
	return found
}

const (
	minBackoff    = time.Second
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 5 * time.Minute
	backoffJitter = 0.1
	// forgetAfter is how long after its back-off a failure still counts.
	forgetAfter = 5 * time.Minute
)

// failure is the last failure of a key.
type failure struct {
	err   error
	of    Failing
	count int
	until instant // holds back the key

	refused bool // the token that was to be renewed; the next refusal drops it
}

func (f failure) forgotten(now instant) bool { return !now.before(f.until.add(forgetAfter)) }

// again returns the failure that follows f.
func (f failure) again(v verdict, now instant) failure {
	if f.forgotten(now) {
		f.count = 0
	}
	if v.held != nil { // A part of the credential is held back. Nothing was tried, so the key is held back for as long.
		return failure{err: v.held.Err, count: f.count, until: now.add(v.held.wait)}
	}
	wait := min(maxBackoff, minBackoff<<min(f.count, 10))
	wait += time.Duration(
		float64(wait) * backoffJitter * (2*rand.Float64() - 1)) //nolint:gosec // spreads load, keeps no secret
	return failure{err: v.err, count: f.count + 1, until: now.add(max(wait, v.RetryAfter))}
}

// holdBack returns the error of a request before until, or nil.
func holdBack(err error, until, now instant) *BackoffError {
	if !now.before(until) {
		return nil
	}
	return &BackoffError{Err: err, wait: until.sub(now)}
}

// heldBack returns the error of a key that its own failure holds back. Without
// a token, the failure of its group holds it back too. The caller holds the
// lock, here and below.
func (c *TokenCache) heldBack(req Request, hasToken bool, now instant) *BackoffError {
	own, _ := c.failures.Get(req.Key)
	if held := holdBack(own.err, own.until, now); held != nil || hasToken {
		return held
	}
	return c.heldByGroup(req, now)
}

// confirmAfter is the time for which a refusal to renew a token holds back the
// key. An eventually consistent service may answer differently after it.
const confirmAfter = 30 * time.Second

// recordFailure keeps the failure of a key.
func (c *TokenCache) recordFailure(req Request, v verdict, now instant) {
	last, _ := c.failures.Peek(req.Key)
	again := last.refused && !last.forgotten(now)
	if e, ok := c.entries.Peek(req.Key); ok && e.valid(now) && v.Refused && !again {
		v.RetryAfter = max(v.RetryAfter, confirmAfter)
		again = true
	} else if v.Permanent || v.Refused {
		c.entries.Remove(req.Key)
	}
	failed := last.again(v, now)
	failed.refused = again
	failed.of = Failing{Provider: req.Provider, Result: v.Result}
	c.failures.Remove(req.Key) // counts it down
	c.failures.Add(req.Key, failed)
	c.count(failed.of, 1)
}

func (c *TokenCache) count(of Failing, n int) {
	if c.failing[of] += n; c.failing[of] == 0 {
		delete(c.failing, of)
	}
}

// groupFailure is the last failure of a group and the time of its next try.
type groupFailure struct {
	failure         // until holds back the keys that have failed themselves
	only    Key     // the first key that failed; zero after a second key has failed
	others  instant // holds back the other keys; halfway to until
	prober  *flight // tries for the group and holds back the rest
}

// heldByGroup returns the error for a key that its group holds back, or nil.
// Keys that have not failed themselves try first. Otherwise a few keys that
// always fail could take every try from a key that would succeed.
func (c *TokenCache) heldByGroup(req Request, now instant) *BackoffError {
	g, ok := c.groups.Get(req.Group)
	if !ok || g.only != (Key{}) || g.forgotten(now) {
		return nil
	}
	until := g.others
	if own, failed := c.failures.Get(req.Key); failed && !own.forgotten(now) {
		own.until = now // so that the failure is remembered while the key is in use
		c.failures.Add(req.Key, own)
		until = g.until
	}
	held := holdBack(g.err, until, now)
	if held == nil && g.prober != nil {
		held = &BackoffError{Err: g.err, wait: minBackoff}
	}
	return held
}

// finishInGroup records the result of a flight for its group, unless the key
// was deleted meanwhile.
func (c *TokenCache) finishInGroup(f *flight, req Request, v verdict, wanted bool, now instant) {
	g, known := c.groups.Peek(req.Group)
	probed := known && g.prober == f
	if probed {
		g.prober = nil
	}
	switch {
	case !wanted || req.Group == Key{}:
	case v.err == nil:
		c.groups.Remove(req.Group)
	case !v.Shared:
	case !known || g.only == req.Key:
		c.groups.Add(req.Group, &groupFailure{failure: failure{until: now}, only: req.Key})
	case probed || !now.before(g.others): // exchanges that failed at the same time count once
		next := g.again(v, now)
		half := max(next.until.sub(now)/2, v.RetryAfter)
		c.groups.Add(req.Group, &groupFailure{failure: next, others: now.add(half)})
	}
}
