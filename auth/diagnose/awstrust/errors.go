package awstrust

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/diagnose"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// request is what was asked, for messages.
type request struct {
	service, action, resource string
	// who is the caller.
	who string
	// show is the command that shows the same.
	show string
	// missing words that what was asked for does not exist, create says what to do then. Empty: it is no finding.
	missing, create string
}

// explain words an error of the SDK: who was asked, which right is missing, and the command that shows it.
func explain(err error, r request) error {
	e := &auth.Error{Provider: "aws", Reason: auth.ErrUnavailable, Err: err, Remedy: "try again, or see: " + r.show}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		e.StatusCode, e.RequestID = response.HTTPStatusCode(), redact.Text(response.ServiceRequestID())
	}
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() == "UnknownError" {
		e.Message = r.service + " gives no usable answer to " + r.action + unanswered(err, e.StatusCode)
		return e
	}
	e.Code = redact.Text(api.ErrorCode())
	switch {
	case isThrottle(e.Code):
		e.Reason, e.Message = auth.ErrThrottled, r.service+" asks to slow down"
	case (e.Code == "NoSuchEntity" || e.Code == "NoSuchEntityException") && r.missing != "":
		e.Reason, e.Message, e.Remedy, e.Err = auth.ErrMisconfigured, r.missing, r.create, diagnose.ErrMissing
	case isDenial(e.Code):
		e.Reason = auth.ErrDenied
		e.Message = fmt.Sprintf("%s refuses %s to %.300q: %s", r.service, r.action, r.who, redact.Text(api.ErrorMessage()))
		e.Remedy = fmt.Sprintf("allow %s on %s, and see: %s", r.action, r.resource, r.show)
	case e.Code == "ExpiredToken" || e.Code == "ExpiredTokenException" || e.Code == "InvalidClientTokenId" ||
		e.Code == "UnrecognizedClientException":
		e.Reason, e.Message, e.Remedy = auth.ErrDenied, r.service+" does not accept your login: "+redact.Text(api.ErrorMessage()), "log in again: aws sso login, or renew the access key"
	default:
		e.Message = fmt.Sprintf("%s answers %s to %s: %s", r.service, e.Code, r.action, redact.Text(api.ErrorMessage()))
	}
	return e
}

// quoted makes a word of a shell of what a token or an annotation says.
func quoted(s string) string {
	return shell.Word(redact.Text(s), "NAME")
}

func isThrottle(code string) bool {
	_, known := retry.DefaultThrottleErrorCodes[code]
	return known
}

func isDenial(code string) bool {
	switch code {
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		return true
	}
	return false
}

// unanswered keeps the texts of decoders out: they may quote the answer.
func unanswered(err error, status int) string {
	var decoding *smithy.DeserializationError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, &tooLarge):
		return ": " + transport.Message(err)
	case status/100 == 3:
		return ": it answers with a redirect, which is not followed"
	case errors.As(err, &decoding) || status != 0:
		return fmt.Sprintf(": HTTP %d with something that is no answer of it", status)
	}
	return ": " + transport.Message(err)
}

// strange is for answers that lack what was asked for.
func strange(r request) error {
	return &auth.Error{Provider: "aws", Reason: auth.ErrUnavailable, Remedy: "see: " + r.show,
		Message: r.service + " gives no usable answer to " + r.action + ": it lacks what was asked for"}
}

// noLogin is for callers without credentials. The SDK's text names what it has tried.
func noLogin(err error) error {
	message := "there is no login for AWS on this machine: "
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		message = "the login for AWS was not found in time: "
	}
	text := err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		text = api.ErrorCode() + ": " + api.ErrorMessage() // the rest differs at every try
	}
	return &auth.Error{Provider: "aws", Reason: auth.ErrMisconfigured, Err: err, Message: message + redact.Text(text),
		Remedy: "log in with a role that may read IAM: aws sso login, AWS_PROFILE=PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
}
