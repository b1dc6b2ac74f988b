package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// BackoffError is the error of a key that is held back after it failed. Its text is that of the failure and does not
// change from one request to the next.
type BackoffError struct {
	// Err is the failure.
	Err  error
	wait time.Duration
}

// Error returns the text of the failure.
func (e *BackoffError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *BackoffError) Unwrap() error { return e.Err }

// RetryAfter returns how long the key is still held back.
func (e *BackoffError) RetryAfter() time.Duration { return e.wait }

// PanicError is the error of a Mint that panicked. The value of the panic could hold a secret, so only its type is
// told.
type PanicError struct {
	// Type is the type of the panic's value.
	Type string
	// Stack is where it happened, as runtime/debug.Stack prints it. It is not part of the text.
	Stack string
}

// NewPanicError is for deferred functions that have recovered value.
func NewPanicError(value any) *PanicError {
	return &PanicError{Type: fmt.Sprintf("%T", value), Stack: string(debug.Stack())}
}

// Error names the type.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic of type %s during the exchange; this is a bug in the provider", e.Type)
}

const (
	minBackoff    = time.Second
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 5 * time.Minute
	backoffJitter = 0.1
	// forgetAfter is how long after its back-off a failure no longer counts.
	forgetAfter = 5 * time.Minute
)

// failure is what is remembered of a key that failed.
type failure struct {
	err   error
	of    Failing
	count int
	until instant
}

// holdsBack as long as neither clock has got there.
func (f failure) holdsBack(now instant) bool { return f.err != nil && now.before(f.until) }

func (f failure) remaining(now instant) time.Duration {
	return time.Duration(min(f.until.wall-now.wall, f.until.mono-now.mono))
}

func (f failure) forgotten(now instant) bool { return !now.before(f.until.add(forgetAfter)) }

// again returns the failure that follows f.
func (f failure) again(v verdict, now instant) failure {
	if f.forgotten(now) {
		f.count = 0
	}
	if v.held != nil {
		// Nothing was tried, because what the credential is made of is held back. Once that is over, so is this.
		return failure{err: v.held.Err, count: f.count, until: now.add(v.held.wait)}
	}
	// Beyond a few doublings the maximum applies.
	wait := min(maxBackoff, minBackoff<<min(f.count, 10))
	wait += time.Duration(float64(wait) * backoffJitter * (2*rand.Float64() - 1)) //nolint:gosec // spreads load, keeps no secret
	wait = max(wait, min(v.retryAfter, maxRetryAfter))
	return failure{err: v.err, count: f.count + 1, until: now.add(wait)}
}
