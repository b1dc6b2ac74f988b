// Package kubeerror describes errors of Kubernetes clients.
package kubeerror

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/redact"
)

// Message describes an error of a Kubernetes client, without the secrets. The client quotes the body of an answer that is not
// a Status, such as the page of a proxy. Message leaves that body out.
func Message(err error, secrets ...string) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Sprintf("the server answers %d without a Kubernetes Status", status.Status().Code)
	}
	return redact.Text(err.Error(), secrets...)
}
