package kubeerror_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/kubeerror"
)

func TestMessage(t *testing.T) {
	const page, secret = "<html>you sent hunter2-pass1</html>", "hunter2-pass1"
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	unexpected := func(code int) error {
		return apierrors.NewGenericServerResponse(code, http.MethodGet, resource, "app", page, 0, true)
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"403 of a proxy":         {unexpected(http.StatusForbidden), "the server answers 403 without a Kubernetes Status"},
		"502 of a proxy":         {fmt.Errorf("get: %w", unexpected(http.StatusBadGateway)), "the server answers 502 without a Kubernetes Status"},
		"403 of the API server":  {apierrors.NewForbidden(resource, "app", errors.New("no to "+secret)), `serviceaccounts "app" is forbidden: no to [redacted]`},
		"error without a status": {errors.New("no route to hunter2-pass1"), "no route to [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kubeerror.Message(tc.err, secret); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
