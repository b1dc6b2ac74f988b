package cause_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
)

func TestConditionOf(t *testing.T) {
	app := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	for name, tc := range map[string]struct {
		err     error
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"no error": {nil, metav1.ConditionTrue, "CredentialsObtained", "credentials were obtained"},
		"refused": {&auth.Error{Provider: "aws", ServiceAccount: app, Operation: "assume role", Reason: auth.ErrDenied,
			StatusCode: 403, Code: "AccessDenied",
			Message: `role "arn:aws:iam::1:role/app": Not authorized to perform sts:AssumeRoleWithWebIdentity`,
			Remedy:  "let the role trust it"}, metav1.ConditionFalse, string(cause.TrustPolicyRefusesSubject),
			`aws: ServiceAccount "tenant-a/app": assume role: denied: role "arn:aws:iam::1:role/app": Not authorized to perform sts:AssumeRoleWithWebIdentity (HTTP 403, AccessDenied); ` +
				`correct the role that the ServiceAccount names`},
		"no annotation": {&auth.Error{Provider: "aws", ServiceAccount: app, Reason: auth.ErrMisconfigured,
			Cause: provider.CauseIdentityMissing, Message: "the annotation is missing", Remedy: "set it"},
			metav1.ConditionFalse, string(cause.IdentityNotConfigured),
			`aws: ServiceAccount "tenant-a/app": misconfigured: the annotation is missing; set it`},
		"unknown refusal": {&auth.Error{Provider: "oauth", ServiceAccount: app, Reason: auth.ErrDenied, Message: "no"},
			metav1.ConditionFalse, "Denied", `oauth: ServiceAccount "tenant-a/app": denied: no`},
		"outage": {&auth.Error{Provider: "aws", Message: "timed out"}, metav1.ConditionUnknown, "Unavailable",
			"aws: unavailable: timed out"},
		"another error": {errors.New("bad\nluck"), metav1.ConditionUnknown, "Failed", "bad luck"},
		"the API server": {&auth.Error{Reason: auth.ErrDenied, Cause: provider.CauseTokenRequestForbidden,
			Message: "forbidden"}, metav1.ConditionUnknown, string(cause.RightMissing), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.err != nil {
				tc.err = fmt.Errorf("%w", tc.err)
			}
			c := cause.ConditionOf(tc.err, "IdentityReady", 7)
			if c.Type != "IdentityReady" || c.ObservedGeneration != 7 || c.Status != tc.status || c.Reason != tc.reason ||
				tc.message != "" && c.Message != tc.message {
				t.Errorf("got %+v, want %s, %s and %q", c, tc.status, tc.reason, tc.message)
			}
		})
	}
}

// A changing part would reconcile a controller that writes the condition for
// ever.
func TestConditionIsTheSameAtTheNextTry(t *testing.T) {
	try := func(request string) metav1.Condition {
		return cause.ConditionOf(&auth.Error{Provider: "aws", Reason: auth.ErrDenied, StatusCode: 403, Code: "AccessDenied",
			Message: "no", RequestID: request}, "Ready", 1)
	}
	if a, b := try("request-1"), try("request-2"); a != b || strings.Contains(a.Message, "request-1") {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// A condition names no identity but the one that was asked for.
func TestConditionsNameNoOtherIdentity(t *testing.T) {
	for _, p := range []string{"aws", "azure", "gcp"} {
		c := cause.ConditionOf(&auth.Error{Provider: p, Reason: auth.ErrMisconfigured, Cause: provider.CauseIdentityMissing,
			Message: "the annotation is missing"}, "Ready", 1)
		class := cause.ClassFor(p, cause.IdentityNotConfigured)
		if text := c.Message + class.Summary; strings.Contains(text, "is used") || strings.Contains(text, "node") {
			t.Errorf("the condition of %s names another identity: %s", p, text)
		}
	}
}

// The API server refuses an Event with a longer note.
func TestMessageOfAConditionFitsAnEvent(t *testing.T) {
	for name, err := range map[string]error{
		"of this module": &auth.Error{Reason: auth.ErrDenied, Message: strings.Repeat("é", 2000), Remedy: "wait"},
		"of another":     errors.New(strings.Repeat("no ", 2000)),
	} {
		t.Run(name, func(t *testing.T) {
			if c := cause.ConditionOf(err, "IdentityReady", 1); len(c.Message) > 1024 || !strings.HasSuffix(c.Message, "…") {
				t.Errorf("%d bytes: %q", len(c.Message), c.Message)
			}
		})
	}
}
