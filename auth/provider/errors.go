package provider

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/redact"
)

// Reason says what the caller of a failed operation should do next. Each Reason
// is itself an error, for [errors.Is].
type Reason string

const (
	// ErrMisconfigured means that a retry is pointless until an object or a
	// setting is edited.
	ErrMisconfigured Reason = "misconfigured"
	// ErrDenied means that a policy, Kubernetes or the provider refused. A
	// cached credential is dropped at the second refusal, at least half a
	// minute after the first, unless the controller lacks an RBAC rule.
	ErrDenied Reason = "denied"
	// ErrThrottled means that the service asks to slow down, or that a limit of
	// the token cache kept the exchange from starting (a *cache.LimitError). A
	// cached credential is kept while it is valid.
	ErrThrottled Reason = "throttled"
	// ErrUnavailable means that the service could not be reached, gave no
	// usable answer, or takes longer than the patience of the token cache (a
	// *cache.PendingError). A cached credential is kept while it is valid.
	ErrUnavailable Reason = "unavailable"
)

// Cause says what exactly this module found wrong, where a program can act on
// it. Services have a Code instead.
type Cause string

// The Causes.
const (
	// CauseIdentityMissing means that no annotation names the identity or the
	// tenant.
	CauseIdentityMissing Cause = "IdentityMissing"
	// CauseIdentityMalformed means that the role ARN, client ID or e-mail
	// address of an annotation is malformed.
	CauseIdentityMalformed Cause = "IdentityMalformed"
	// CauseTargetMalformed means that the region, tenant or workload identity
	// provider is missing or malformed.
	CauseTargetMalformed Cause = "TargetMalformed"
	// CauseNoOwnIdentity means that no ServiceAccount was named and the process
	// itself has no identity.
	CauseNoOwnIdentity Cause = "NoOwnIdentity"
	// CauseAudienceNotAllowed means that Policy.Audiences lacks an audience
	// that a caller or an annotation chose.
	CauseAudienceNotAllowed Cause = "AudienceNotAllowed"
	// CauseAPIServerAudience means that the receiver could use the Kubernetes
	// token at the API server.
	CauseAPIServerAudience Cause = "APIServerAudience"
	// CauseTokenExpired means that the Kubernetes token has expired.
	CauseTokenExpired Cause = "TokenExpired"
	// CauseTokenFileForbidden means that the process may not read the file of
	// the Kubernetes token.
	CauseTokenFileForbidden Cause = "TokenFileForbidden"
	// CauseTokenRequestForbidden means that the API server does not let the
	// client create tokens of the ServiceAccount.
	CauseTokenRequestForbidden Cause = "TokenRequestForbidden"
	// CauseServiceAccountNotFound means that the ServiceAccount does not exist.
	CauseServiceAccountNotFound Cause = "ServiceAccountNotFound"
	// CauseFeatureGateOff means that the feature gate for ServiceAccounts of
	// objects is off, and an object or a default names one.
	CauseFeatureGateOff Cause = "FeatureGateOff"
	// CauseMetadataServer means that the metadata server of the node gave no
	// usable answer.
	CauseMetadataServer Cause = "MetadataServer"
)

// Error makes a [Reason] usable as the target of [errors.Is].
func (r Reason) Error() string { return string(r) }

// Error reports why a credential cannot be obtained. Its text names the object,
// the problem and the remedy, and never holds a token, a secret or a response
// body.
//
// errors.Is(err, ErrDenied) tests the [Reason], [errors.As] reaches the error
// of the SDK or of the Kubernetes client.
type Error struct {
	// Provider is the name of the provider, such as "aws".
	Provider string
	// Operation names the failed operation in a few words, such as "create
	// ServiceAccount token".
	Operation string
	// ServiceAccount is the identity it was tried for; empty for the
	// controller's own.
	ServiceAccount client.ObjectKey
	// Reason classifies the error. Empty counts as ErrUnavailable.
	Reason Reason
	// Cause says what this module itself found wrong. Empty for all other
	// errors.
	Cause Cause
	// Message names the problem. Values in it are quoted with %q.
	Message string
	// Remedy is one short sentence without a final stop. Optional.
	Remedy string
	// Option is the Go option that the remedy is about, such as
	// "auth.WithAudiences"; several are separated by ", ". Optional. Message
	// and Remedy name no options, so that programs can put their own setting
	// here.
	Option string
	// CallersAnnotations are the annotations that auth.WithAnnotations set, in
	// the order of their names, if the Reason is ErrMisconfigured or ErrDenied:
	// the problem may be the caller's instead of the ServiceAccount's. Package
	// auth sets it, to eight names of at most 100 bytes and the number of
	// others.
	CallersAnnotations []string
	// Code is the error code of the service, such as "InvalidIdentityToken".
	// Optional.
	Code string
	// StatusCode is the HTTP status of the answer, zero if there was none.
	StatusCode int
	// RequestID is the service's own name for the request, for its operators.
	// Optional.
	RequestID string
	// Wait is how long the service asked to wait. Zero if it did not say.
	Wait time.Duration
	// Err is the cause. errors.As reaches it. Its text appears neither in the
	// text of the Error nor in its JSON, because it may hold an address with
	// its query, or a tenant's proxy's answer: status, banner, or why it could
	// not be dialled.
	Err error `json:"-"`
}

// Error returns one line: provider, ServiceAccount, operation, reason, message,
// the caller's annotations, remedy, and the remedy's option in parentheses.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Provider != "" {
		b.WriteString(e.Provider + ": ")
	}
	if e.ServiceAccount.Name != "" {
		fmt.Fprintf(&b, "ServiceAccount %q: ", e.ServiceAccount.String())
	}
	if e.Operation != "" {
		b.WriteString(e.Operation + ": ")
	}
	b.WriteString(string(e.reason()))
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	b.WriteString(e.details())
	if len(e.CallersAnnotations) > 0 {
		fmt.Fprintf(&b, "; the caller, not the ServiceAccount, set %.100q", e.CallersAnnotations)
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
		if e.Option != "" {
			b.WriteString(" (" + e.Option + ")")
		}
	}
	return b.String()
}

// details leaves the request ID out: it differs at every try, and a text that
// changes keeps conditions flapping.
func (e *Error) details() string {
	var parts []string
	if e.StatusCode != 0 {
		parts = append(parts, fmt.Sprintf("HTTP %d", e.StatusCode))
	}
	if e.Code != "" {
		parts = append(parts, redact.Text(e.Code)) // an API server's code may be any text
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// About sets the [Error.Option], and returns e.
func (e *Error) About(options ...string) *Error {
	e.Option = strings.Join(options, ", ")
	return e
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the [Reason] of e.
func (e *Error) Is(target error) bool {
	r, ok := target.(Reason) //nolint:errorlint // Is compares exactly one link of the chain
	return ok && r == e.reason()
}

// maxWait bounds the time that a service asks to wait. An API server of a
// tenant can ask for 68 years.
const maxWait = time.Hour

// RetryAfter returns how long the service asked to wait before the next try, an
// hour at most. If it did not say, that is one second for [ErrThrottled], and
// zero otherwise.
func (e *Error) RetryAfter() time.Duration {
	if e.Wait == 0 && e.reason() == ErrThrottled {
		return time.Second
	}
	return min(e.Wait, maxWait)
}

func (e *Error) reason() Reason {
	if e.Reason == "" {
		return ErrUnavailable
	}
	return e.Reason
}
