// Package kubeerror describes errors of Kubernetes clients.
package kubeerror

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/redact"
)

// Message describes an error of a Kubernetes client, without the secrets. The
// client quotes the body of an answer that is not a Status, such as the page of
// a proxy. Message leaves that body out.
func Message(err error, secrets ...string) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Sprintf("the server answers %d without a Kubernetes Status", status.Status().Code)
	}
	return redact.Text(err.Error(), secrets...)
}

// Code returns the reason of an API server's Status, "" without one. It is
// cleaned and bounded as a message is.
func Code(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return redact.Text(string(status.Status().Reason))
}

// maxStatus bounds the texts of a Status that is kept, in bytes.
const maxStatus = 8 << 10

// Bounded returns an error that may be kept. A Status with larger texts is
// replaced by one with the same code, the cleaned reason and message, and of
// the details the time to wait.
func Bounded(err error) error {
	full, ok := err.(*apierrors.StatusError) //nolint:errorlint // clients return Status errors bare
	if !ok || size(&full.ErrStatus) <= maxStatus {
		return err
	}
	small := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: full.ErrStatus.Code,
		Reason: metav1.StatusReason(Code(err)), Message: Message(err)}}
	if d := full.ErrStatus.Details; d != nil {
		small.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: d.RetryAfterSeconds}
	}
	return small
}

func size(s *metav1.Status) int {
	n := len(s.Status) + len(s.Message) + len(s.Reason) + len(s.Kind) + len(s.APIVersion) + len(s.ListMeta.String())
	if d := s.Details; d != nil {
		n += len(d.Name) + len(d.Group) + len(d.Kind) + len(d.UID)
		for _, c := range d.Causes {
			n += len(c.Type) + len(c.Message) + len(c.Field)
		}
	}
	return n
}
