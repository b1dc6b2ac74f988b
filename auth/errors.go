package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// RetryAfter returns how long to wait before a retry: the time that the service
// asked for or, if the token cache backs off after repeated failures, the rest
// of that. It is never zero for [ErrThrottled]. Otherwise zero means unknown:
// use a back-off of your own.
func RetryAfter(err error) time.Duration {
	var longest time.Duration
	if hint, ok := err.(interface{ RetryAfter() time.Duration }); ok { //nolint:errorlint // looks at each node of the tree
		longest = hint.RetryAfter()
	}
	switch e := err.(type) { //nolint:errorlint // as errors.As
	case interface{ Unwrap() error }:
		longest = max(longest, RetryAfter(e.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			longest = max(longest, RetryAfter(one))
		}
	}
	return longest
}

func reasonOf(e *Error) provider.Reason { return cmp.Or(e.Reason, ErrUnavailable) }

func isRefusal(e *Error) bool { return e.Reason == ErrDenied || e.Reason == ErrMisconfigured }

// classify implements cache.Request.Classify. A TokenRequest fails for this
// call alone if the bound object is gone.
func classify(err error) cache.Failure {
	f := cache.Failure{RetryAfter: RetryAfter(err)}
	var e *Error
	if !errors.As(err, &e) {
		return f
	}
	reason, requesting := reasonOf(e), e.Operation == opCreateToken
	void := provider.Permanent(e)
	f.Refused, f.Permanent, f.Shared = void && reason == ErrDenied, void && reason != ErrDenied, !requesting
	switch {
	case requesting && (reason == ErrUnavailable || reason == ErrThrottled):
		f.Result = cache.ResultKubernetesUnavailable
	case !errors.Is(err, context.DeadlineExceeded):
		f.Result = string(reason)
	}
	return f
}

func misconfigured(remedy, format string, args ...any) *Error {
	return &Error{Reason: ErrMisconfigured, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func denied(remedy, format string, args ...any) *Error {
	return &Error{Reason: ErrDenied, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func unavailable(remedy, format string, args ...any) *Error {
	return &Error{Reason: ErrUnavailable, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// kubernetesError classifies an answer of the API server. The message names
// users, objects and rules, never tokens.
func kubernetesError(err error, operation string) *Error {
	e := &Error{Operation: operation, Reason: ErrUnavailable, Message: foreignMessage(err), Code: kubeerror.Code(err),
		Err: kubeerror.Bounded(err)}
	if status, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // clients return Status errors bare
		e.StatusCode = int(status.Status().Code)
	}
	switch {
	case apierrors.IsForbidden(err):
		e.Reason = ErrDenied
	case apierrors.IsUnauthorized(err):
		// The API server refused the client's own credential; it did not check
		// the ServiceAccount.
		e.Remedy = "log in to the cluster again, or check the kubeconfig or ServiceAccount token of the Kubernetes client"
	case apierrors.IsNotFound(err):
		e.Reason, e.Remedy = ErrMisconfigured, "create it, or correct the name"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		e.Reason = ErrMisconfigured
	case apierrors.IsTooManyRequests(err):
		e.Reason = ErrThrottled
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.Wait = time.Duration(seconds) * time.Second
	}
	return e
}

// requestError is kubernetesError for a request that needs a right, such as
// "get on configmaps".
func requestError(err error, operation, right, namespace string) *Error {
	e := kubernetesError(err, operation)
	if apierrors.IsForbidden(err) {
		e.Remedy = fmt.Sprintf("grant the client's user the verb %s in namespace %q", right, namespace)
	}
	return e
}

// describe turns any error into an *Error that names provider, ServiceAccount
// and operation. It keeps the fields that the error already has. It copies an
// error that callers share, and never writes to it.
func describe(err error, provider, operation string, serviceAccount client.ObjectKey) error {
	if err == nil {
		return nil
	}
	var known *Error
	if !errors.As(err, &known) {
		e := &Error{Provider: provider, Operation: operation, ServiceAccount: serviceAccount,
			Reason: ErrUnavailable, Message: foreignMessage(err), Wait: RetryAfter(err), Err: err}
		var limit *cache.LimitError
		if errors.As(err, &limit) {
			e.Reason = ErrThrottled
		}
		return e
	}
	if known.Provider != "" && (known.ServiceAccount.Name != "" || serviceAccount.Name == "") {
		return err // complete, and perhaps wrapped by the cache's back-off
	}
	whole := *known
	whole.Provider = cmp.Or(whole.Provider, provider)
	whole.Operation = cmp.Or(whole.Operation, operation)
	if whole.ServiceAccount.Name == "" {
		whole.ServiceAccount = serviceAccount
	}
	return &whole
}

// foreignMessage returns the text of a foreign error without the given secrets.
func foreignMessage(err error, secrets ...string) string {
	switch text := err.Error(); text {
	case context.DeadlineExceeded.Error():
		return "timed out"
	case context.Canceled.Error():
		return "cancelled"
	default:
		return kubeerror.Message(err, secrets...)
	}
}

// panicked is the error for a value that a deferred function has recovered.
func panicked(value any) error {
	return &cache.PanicError{Type: fmt.Sprintf("%T", value), Stack: string(debug.Stack())}
}

// hideProxy replaces the description of a request that got no answer through
// the proxy of the call. A tenant may have chosen the proxy. Details such as
// the failed operation would show the tenant which hosts and listeners the
// controller's network has.
func (o *Options) hideProxy(err *Error) *Error {
	if o.ProxyURL == nil || !transport.Unanswered(err.Err) {
		return err
	}
	hidden := unavailable("check the proxy's address, and that it connects to the provider's hosts",
		"no answer through the proxy %.300q", o.ProxyURL.Host)
	hidden.Err = err.Err
	return hidden
}

// clean removes the subject token from an error's text, in case a provider or a
// server quoted it.
func clean(err error, jwt string) *Error {
	var known *Error
	if !errors.As(err, &known) {
		return &Error{Reason: ErrUnavailable, Message: foreignMessage(err, jwt), Err: err}
	}
	cleaned := *known
	cleaned.Message = redact.Line(known.Message, jwt)
	cleaned.Remedy = redact.Line(known.Remedy, jwt)
	cleaned.Option = redact.Text(known.Option, jwt)
	cleaned.Code = redact.Text(known.Code, jwt)
	cleaned.RequestID = redact.Text(known.RequestID, jwt)
	return &cleaned
}
