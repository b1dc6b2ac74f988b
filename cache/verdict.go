package cache

import (
	"context"
	"errors"
	"slices"
	"time"
)

// verdict is what an error says of itself.
type verdict struct {
	err    error
	result string // one of Results
	// permanent says that the token that was to be renewed is worth nothing any more.
	permanent  bool
	retryAfter time.Duration
	// shared says that the other keys of the group would fail too.
	shared bool
	// limited says that a limit of the cache did not let the exchange start, or that of what the credential is made of.
	limited bool
	held    *BackoffError // that of what the credential is made of, or nil
}

// judge asks an error. Its methods are a provider's, and may panic as Mint may: it is called without the lock.
func judge(err error) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = verdict{err: NewPanicError(p), result: "panic"}
		}
	}()
	v.err = err
	if errors.As(err, &v.held) {
		err = v.held.Err
	}
	v.result = resultOf(err)
	var limit *LimitError
	v.limited = errors.As(err, &limit)
	var permanent interface{ Permanent() bool }
	v.permanent = errors.As(err, &permanent) && permanent.Permanent()
	var shared interface{ SharedFailure() bool }
	v.shared = v.held == nil && errors.As(err, &shared) && shared.SharedFailure()
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) {
		v.retryAfter = hint.RetryAfter()
	}
	return v
}

// resultOf keeps the label to a known set, whatever an error says of itself.
func resultOf(err error) string {
	var panicked *PanicError
	var limited *LimitError
	var classified interface{ Result() string }
	var placed interface{ ExchangeResult() string }
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &panicked):
		return "panic"
	case errors.As(err, &limited):
		return "limited"
	case errors.As(err, &placed) && slices.Contains(Results(), placed.ExchangeResult()):
		return placed.ExchangeResult()
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &classified) && slices.Contains(Results(), classified.Result()):
		return classified.Result()
	}
	return "error"
}
