package serviceaccounts

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

const operation = "list and watch ServiceAccounts"

// problem returns the reason why the Reader serves nothing, or otherwise if it knows none.
func (r *Reader) problem(now situation, otherwise error) *auth.Error {
	e := &auth.Error{Operation: operation, Reason: auth.ErrUnavailable, Err: otherwise}
	switch {
	case now.ended:
		e.Message = "the reader has ended"
		e.Remedy = "let the reader live as long as what reads with it"
	case !now.started:
		e.Message = "the reader has not been started"
		e.Remedy = "add it to the manager"
	case now.failure != nil:
		return r.failed(now.failure)
	case now.stale:
		e.Message = fmt.Sprintf("the API server has not been heard of for %s", r.options.MaxAge)
	default:
		e.Message = kubeerror.Message(otherwise)
	}
	return e
}

// failed classifies an error of the API server or of the connection.
func (r *Reader) failed(err error) *auth.Error {
	e := &auth.Error{Operation: operation, Reason: auth.ErrUnavailable, Message: kubeerror.Message(err), Err: err}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		e.StatusCode, e.Code = int(status.Status().Code), string(status.Status().Reason)
	}
	switch {
	case apierrors.IsForbidden(err):
		e.Reason = auth.ErrDenied
		e.Remedy = "grant the client's user the verbs list and watch on serviceaccounts " + r.where()
	case apierrors.IsUnauthorized(err):
		// It is the controller's own credential that was refused; the ServiceAccount has not been judged.
		e.Remedy = "log in to the cluster again, or check the kubeconfig or ServiceAccount token of the Kubernetes client"
	case apierrors.IsBadRequest(err):
		e.Reason = auth.ErrMisconfigured
		e.Remedy = "correct the options of the reader, with which it may list and watch serviceaccounts " + r.where()
	case apierrors.IsTooManyRequests(err):
		e.Reason = auth.ErrThrottled
	}
	return e
}

func (r *Reader) where() string {
	if r.options.Namespace == "" {
		return "in all namespaces, with a ClusterRole"
	}
	return fmt.Sprintf("in namespace %q", r.options.Namespace)
}
