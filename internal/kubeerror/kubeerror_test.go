package kubeerror_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"403 of a proxy": {unexpected(http.StatusForbidden), "the server answers 403 without a Kubernetes Status"},
		"502 of a proxy": {fmt.Errorf("get: %w", unexpected(http.StatusBadGateway)),
			"the server answers 502 without a Kubernetes Status"},
		"403 of the API server": {apierrors.NewForbidden(resource, "app", errors.New("no to "+secret)),
			`serviceaccounts "app" is forbidden: no to [redacted]`},
		"error without a status": {errors.New("no route to hunter2-pass1"), "no route to [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kubeerror.Message(tc.err, secret); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A tenant's API server chooses the reason, the wait and the size of its
// refusals. Conditions, logs and the cache keep them.
func TestHostileStatus(t *testing.T) {
	hostile := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReason("\x1b[31mRed\n" + strings.Repeat("x", 3<<20)),
		Message: strings.Repeat("y", 3<<20),
		Details: &metav1.StatusDetails{RetryAfterSeconds: math.MaxInt32,
			Causes: []metav1.StatusCause{{Message: strings.Repeat("z", 3<<20)}}}}}
	if code := kubeerror.Code(hostile); len(code) > 310 || !strings.HasPrefix(code, "[31mRed x") {
		t.Errorf("the code is %.400q", code)
	}
	kept := kubeerror.Bounded(hostile)
	if n := len(fmt.Sprintf("%+v", kept)); n > 2<<10 || !apierrors.IsTooManyRequests(kept) {
		t.Errorf("%d bytes are kept: %v", n, kept)
	}
}

func TestHonestStatus(t *testing.T) {
	honest := apierrors.NewTooManyRequests("slow down", 7)
	if kubeerror.Code(honest) != "TooManyRequests" || !errors.Is(kubeerror.Bounded(honest), honest) {
		t.Errorf("got %q, %v", kubeerror.Code(honest), kubeerror.Bounded(honest))
	}
	other := errors.New("no route")
	if kubeerror.Code(other) != "" || !errors.Is(kubeerror.Bounded(other), other) {
		t.Error("an error without a Status has one")
	}
}
