// Package provider has what the providers of this module share: errors that name the provider, the choice of an HTTP client,
// and the annotation for the lifetime of ServiceAccount tokens.
package provider

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

// Name is the name of a provider, which its errors carry. With an empty one, auth fills in the provider of the call.
type Name string

// Misconfigured returns an error that stays until someone edits something.
func (n Name) Misconfigured(remedy, format string, args ...any) *auth.Error {
	return n.fail(auth.ErrMisconfigured, "", remedy, format, args...)
}

// Malformed is Misconfigured with a cause that programs can act on.
func (n Name) Malformed(cause auth.Cause, remedy, format string, args ...any) *auth.Error {
	e := n.Misconfigured(remedy, format, args...)
	e.Cause = cause
	return e
}

// Denied returns the error of a refusal.
func (n Name) Denied(remedy, format string, args ...any) *auth.Error {
	return n.fail(auth.ErrDenied, "", remedy, format, args...)
}

// Unavailable returns the error of an operation that may succeed later.
func (n Name) Unavailable(operation, remedy, format string, args ...any) *auth.Error {
	return n.fail(auth.ErrUnavailable, operation, remedy, format, args...)
}

func (n Name) fail(reason auth.Reason, operation, remedy, format string, args ...any) *auth.Error {
	return &auth.Error{Provider: string(n), Operation: operation, Reason: reason, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// HTTPClient returns the client of the options, or the one that the pool shares for their proxy. Either follows no redirect
// and reads bounded answers.
func (n Name) HTTPClient(pool *transport.Pool, opts *auth.Options) (*http.Client, error) {
	client, err := pool.For(opts.HTTPClient, opts.ProxyURL)
	if err != nil {
		e := n.Misconfigured("", "%v", err)
		e.Err = err
		return nil, e
	}
	return client, nil
}

// TokenLifetime returns the lifetime of ServiceAccount tokens that an annotation asks for in seconds, zero if it is missing.
func (n Name) TokenLifetime(annotation string, sa *corev1.ServiceAccount, opts *auth.Options) (time.Duration, error) {
	text, ok := sa.Annotations[annotation]
	if !ok {
		return 0, nil
	}
	const minimum, maximum = 600, 1 << 32
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < minimum || seconds > maximum {
		return 0, n.Misconfigured("set it to 3600 or remove it", "the annotation %q%s is not a number of seconds from %d to %d: %.100q",
			annotation, opts.CallersIdentity(annotation), minimum, int64(maximum), text)
	}
	return time.Duration(seconds) * time.Second, nil
}
