// Package refusal holds the error that reconcilers show to people.
package refusal

import (
	"fmt"
	"time"
)

// Error refuses a cluster, an item or a request until an object is changed. It
// becomes a condition or an Event instead of a retry with back-off.
type Error struct {
	Reason, Message string
	// Retry is the time until another check, if nothing watches the cause.
	// Zero waits for a change.
	Retry time.Duration
}

// New returns a refusal that waits for a change.
func New(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// After returns the refusal with another check after d.
func (e *Error) After(d time.Duration) *Error {
	e.Retry = d
	return e
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }
