package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/transport"
)

// Name is the name of a provider. Its methods make the errors of the provider:
//
//	const self = provider.Name("vault")
//
//	return self.Denied("bind the role to the ServiceAccount", "role %q: %s", role, message)
//
// A remedy is an order that the reader can follow. A text holds no secret. With
// an empty Name, package auth fills in the provider of the call.
type Name string

// Misconfigured returns an error that stays until someone edits something.
func (n Name) Misconfigured(remedy, format string, args ...any) *Error {
	return n.fail(ErrMisconfigured, "", remedy, format, args...)
}

// MisconfiguredAs is Misconfigured with a cause that programs can act on.
func (n Name) MisconfiguredAs(cause Cause, remedy, format string, args ...any) *Error {
	e := n.Misconfigured(remedy, format, args...)
	e.Cause = cause
	return e
}

// Denied returns the error of a refusal.
func (n Name) Denied(remedy, format string, args ...any) *Error {
	return n.fail(ErrDenied, "", remedy, format, args...)
}

// Unavailable returns the error of an operation that may succeed later. The
// operation is a verb and its object, such as "log in".
func (n Name) Unavailable(operation, remedy, format string, args ...any) *Error {
	return n.fail(ErrUnavailable, operation, remedy, format, args...)
}

// Unanswered returns the error of a request without an answer, from the error
// of an [http.Client]. The text holds none of the secrets.
func (n Name) Unanswered(operation string, err error, secrets ...string) *Error {
	e := n.Unavailable(operation, "", "%s", transport.Message(err, secrets...))
	e.Err = err
	return e
}

// Refused returns the error for an unsuccessful answer, for the caller to
// complete. It is [ErrUnavailable], with the status and the Retry-After header.
func (n Name) Refused(operation string, status int, header http.Header) *Error {
	return &Error{Provider: string(n), Operation: operation, Reason: ErrUnavailable, StatusCode: status,
		Wait: transport.RetryAfter(header, time.Now())}
}

// Bounded returns err if its text has at most 4 KiB, nil otherwise. It is for
// [Error.Err]: the cache keeps errors for minutes, one for each failing key,
// and a service chooses what the error of an SDK holds.
func Bounded(err error) error {
	const most = 4 << 10
	if err != nil && len(err.Error()) > most {
		return nil
	}
	return err
}

// Unusable returns the error of an answer that lacks what was asked for.
func (n Name) Unusable(operation, service, format string, args ...any) *Error {
	return n.Unavailable(operation, "check that no proxy answers for "+service+", and that the clocks agree",
		"the answer of "+service+" cannot be used: "+format, args...)
}

func (n Name) fail(reason Reason, operation, remedy, format string, args ...any) *Error {
	return &Error{Provider: string(n), Operation: operation, Reason: reason, Message: fmt.Sprintf(format, args...),
		Remedy: remedy}
}

// TokenLifetime returns the lifetime of ServiceAccount tokens that an
// annotation asks for in seconds, zero if it is missing.
func (n Name) TokenLifetime(annotation string, sa *corev1.ServiceAccount) (time.Duration, error) {
	text, ok := sa.Annotations[annotation]
	if !ok {
		return 0, nil
	}
	const minimum, maximum = 600, 1 << 32
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < minimum || seconds > maximum {
		return 0, n.Misconfigured("set it to 3600 or remove it",
			"the annotation %q is not a number of seconds from %d to %d: %.100q", annotation, minimum, int64(maximum), text)
	}
	return time.Duration(seconds) * time.Second, nil
}

// Permanent reports whether an error makes a cached credential void. An API
// server that is starting refuses every TokenRequest until it has read the RBAC
// objects, so a missing right is not permanent.
func Permanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Cause != CauseTokenRequestForbidden &&
		(e.Reason == ErrDenied || e.Reason == ErrMisconfigured)
}

// As returns a token of auth.GetAccessToken as the provider's own type.
func As[T any](n Name, token Token) (*T, error) {
	own, ok := any(token).(*T)
	if !ok || own == nil {
		return nil, n.Misconfigured("get it from auth.GetAccessToken with this provider", "the token is a %T, not a %T",
			token, own)
	}
	return own, nil
}

// CheckExpiry refuses what has expired, and what lives longer than any token of
// the service can.
func CheckExpiry(expiresAt, now time.Time, longest time.Duration) error {
	switch at := expiresAt.UTC().Format(time.RFC3339); {
	case expiresAt.IsZero():
		return errors.New("its expiry is missing")
	case !expiresAt.After(now):
		return fmt.Errorf("it expired at %s", at)
	case expiresAt.Sub(now) > longest:
		return fmt.Errorf("it expires at %s, later than any token does", at)
	}
	return nil
}
