package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// ErrClosed is the error of requests to a cache that was closed.
var ErrClosed = errors.New("the token cache is closed")

// errExited is the result of a Mint that ends its goroutine.
var errExited = errors.New("the provider ended the goroutine of the exchange; this is a bug in the provider")

// BackoffError is the error of a key that is held back after it failed. Its text is that of the failure and does not
// change from one request to the next.
type BackoffError struct {
	// Err is the failure.
	Err  error
	wait time.Duration
}

func (e *BackoffError) Error() string { return e.Err.Error() }

func (e *BackoffError) Unwrap() error { return e.Err }

// RetryAfter returns how long the key is still held back.
func (e *BackoffError) RetryAfter() time.Duration { return e.wait }

// LimitError is the error of an exchange that a limit of the cache did not let start. It says nothing about the key or the
// provider, so the key does not back off and keeps its token.
type LimitError struct {
	message string
	noSlot  bool // the tenant uses all of its slots
}

func (e *LimitError) Error() string { return e.message }

// RetryAfter returns one second.
func (e *LimitError) RetryAfter() time.Duration { return time.Second }

func lacksSlot(err error) bool {
	limit := find[*LimitError](err)
	return limit != nil && limit.noSlot
}

// PendingError is the error of a caller that has waited for as long as WithPatience allows. The exchange goes on and its result is cached,
// so the key does not back off.
type PendingError struct{ patience time.Duration }

func (e *PendingError) Error() string {
	return fmt.Sprintf("the exchange has been running for more than %s and goes on; try again, and check whether its service hangs", e.patience)
}

// RetryAfter returns the patience: the exchange may well take as long again.
func (e *PendingError) RetryAfter() time.Duration { return e.patience }

// PanicError is the error of a Mint that panicked. Its text names only the type of the panic's value, which could be a secret.
type PanicError struct {
	// Type is the type of the panic's value.
	Type string
	// Stack is where it happened, as runtime/debug.Stack prints it. It is not part of the text.
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
	err     error
	untried bool          // a limit refused the exchange or that for a part of the credential, or that part is still to come
	held    *BackoffError // of a part of the credential, or nil
}

// classify calls Request.Classify, which may panic as Mint may. The caller does not hold the lock.
func (req *Request) classify(err error) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = verdict{err: panicked(p), Failure: Failure{Result: "panic"}}
		}
	}()
	v.err = err
	if err == nil {
		v.Result = "success"
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
		return "panic"
	case find[*LimitError](err) != nil:
		return "limited"
	case slices.Contains(Results(), classified):
		return classified
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}

// find returns the first error of the chain that is a T, or nil.
func find[T any](err error) (found T) {
	_ = errors.As(err, &found)
	return found
}
