package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/workloadid/workloadid/auth"
)

// Exit codes. docs/wid.md explains them.
const (
	ExitOther         = 1
	ExitUsage         = 2
	ExitMisconfigured = 10
	ExitDenied        = 11
	ExitThrottled     = 12
	ExitUnavailable   = 13
	ExitInterrupted   = 130
)

// UsageError reports wrong usage.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usagef returns the error of wrong usage.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ExitCode returns the code for the kind of error.
func ExitCode(ctx context.Context, err error) int {
	var usage *UsageError
	var status ExitStatus
	var plain *PlainError
	switch {
	case ctx.Err() != nil:
		return ExitInterrupted
	case errors.As(err, &plain):
		return ExitOther
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, auth.ErrMisconfigured):
		return ExitMisconfigured
	case errors.Is(err, auth.ErrDenied):
		return ExitDenied
	case errors.Is(err, auth.ErrThrottled):
		return ExitThrottled
	case errors.Is(err, auth.ErrUnavailable):
		return ExitUnavailable
	}
	return ExitOther
}

// ExitStatus ends the program with a code after its answer has been written.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// PlainError ends the program with exit code 1, whatever its cause is, as docker's own helpers do.
type PlainError struct{ Err error }

func (e *PlainError) Error() string { return e.Err.Error() }
func (e *PlainError) Unwrap() error { return e.Err }
