package doctor_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	reason "github.com/workloadid/workloadid/doctor"
)

// A grant is the alternative of a finding, shown on request only, and never a part of a condition.
func TestGrantsAreTheAlternative(t *testing.T) {
	const grant = "open the door"
	for _, e := range []auth.Error{
		{Provider: "aws", StatusCode: 403, Code: "AccessDenied"}, {Provider: "aws", StatusCode: 403, Message: "x: ecr:GetAuthorizationToken"},
		{Provider: "aws", StatusCode: 403, Message: "x: eks:DescribeCluster"}, {Provider: "azure", StatusCode: 400, Code: "AADSTS501051"},
		{Provider: "azure", StatusCode: 401, Message: "aka.ms/acr/authorization"}, {Provider: "azure", StatusCode: 403, Code: "AuthorizationFailed"},
		{Provider: "gcp", StatusCode: 403, Message: "iam.serviceAccounts.getAccessToken"}, {Provider: "gcp", StatusCode: 403, Message: "artifactregistry.x"},
		{Provider: "gcp", StatusCode: 403, Message: "container.clusters.get"},
	} {
		e.Reason, e.Remedy = auth.ErrDenied, grant
		f := doctor.Refusal("it", &e)
		t.Run(f.Class, func(t *testing.T) {
			if f.Result != doctor.Fail || f.Remedy.Or == nil || f.Remedy.Text == "" {
				t.Fatalf("%+v", f)
			}
			c := reason.ConditionOf(&e, "Ready", 1)
			if text := run(t, fixed("exchange", f)).String() + c.Message; strings.Contains(text, grant) || strings.Contains(text, f.Remedy.Or.Commands[0]) {
				t.Errorf("%s", text)
			}
		})
	}
}

// Report, JSON and conditions name a cause with the same word.
func TestReasonIsTheSameEverywhere(t *testing.T) {
	err := &auth.Error{Reason: auth.ErrDenied, Provider: "azure", StatusCode: 401, Code: "AADSTS7002138"}
	r := run(t, fixed("exchange", doctor.Refusal("it", err)))
	encoded, encoding := json.Marshal(r)
	if encoding != nil || !strings.Contains(r.String(), "[exchange, SubjectCaseDiffers]") || !strings.Contains(string(encoded), `"class":"SubjectCaseDiffers"`) {
		t.Errorf("%s%s", r, encoded)
	}
	if c := reason.ConditionOf(err, "Ready", 1); c.Reason != "SubjectCaseDiffers" {
		t.Errorf("%+v", c)
	}
}

// A caller whose patience has ended has got no answer at all.
func TestLateAnswerIsNotUnusable(t *testing.T) {
	for name, err := range map[string]error{
		"patience":          &cache.PendingError{},
		"wrapped patience":  &auth.Error{Reason: auth.ErrUnavailable, Message: "still running", Err: &cache.PendingError{}},
		"deadline":          context.DeadlineExceeded,
		"wrapped deadline":  &auth.Error{Reason: auth.ErrUnavailable, Message: "STS: timeout", Err: context.DeadlineExceeded},
		"deadline of a URL": &url.Error{Op: "Post", URL: "https://sts.example", Err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			if f := doctor.Refusal("AWS STS", err); f.Class != "ServiceUnreachable" || f.Result != doctor.Unknown || f.Message != "AWS STS has not answered in time." {
				t.Errorf("%+v", f)
			}
		})
	}
}
