package awstrust

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// request is what was asked, for messages.
type request struct {
	service, action, resource string
	// who is the caller, and secrets what it has logged in with: a service, or what stands in its place, may repeat that.
	who     string
	secrets []string
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
		e.StatusCode, e.RequestID = response.HTTPStatusCode(), redact.Text(response.ServiceRequestID(), r.secrets...)
	}
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() == "UnknownError" {
		e.Message = r.service + " gives no usable answer to " + r.action + unanswered(err, e.StatusCode, r.secrets)
		return e
	}
	e.Code = redact.Text(api.ErrorCode(), r.secrets...)
	switch {
	case isThrottle(e.Code):
		e.Reason, e.Message = auth.ErrThrottled, r.service+" asks to slow down"
	case (e.Code == "NoSuchEntity" || e.Code == "NoSuchEntityException") && r.missing != "":
		e.Reason, e.Message, e.Remedy, e.Err = auth.ErrMisconfigured, r.missing, r.create, doctor.ErrMissing
	case isDenial(e.Code):
		e.Reason = auth.ErrDenied
		e.Message = fmt.Sprintf("%s refuses %s to %.300q: %s", r.service, r.action, r.who, redact.Text(api.ErrorMessage(), r.secrets...))
		e.Remedy = fmt.Sprintf("allow %s on %s, and see: %s", r.action, quoted(r.resource), r.show)
	case e.Code == "ExpiredToken" || e.Code == "ExpiredTokenException" || e.Code == "InvalidClientTokenId" ||
		e.Code == "UnrecognizedClientException":
		e.Reason, e.Message, e.Remedy = auth.ErrDenied, r.service+" does not accept your login: "+redact.Text(api.ErrorMessage(), r.secrets...), "log in again: aws sso login, or renew the access key"
	default:
		e.Message = fmt.Sprintf("%s answers %s to %s: %s", r.service, e.Code, r.action, redact.Text(api.ErrorMessage(), r.secrets...))
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
func unanswered(err error, status int, secrets []string) string {
	var decoding *smithy.DeserializationError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, &tooLarge):
		return ": " + transport.Message(err, secrets...)
	case status/100 == 3:
		return ": it answers with a redirect, which is not followed"
	case errors.As(err, &decoding) || status != 0:
		return fmt.Sprintf(": HTTP %d with something that is no answer of it", status)
	}
	return ": " + transport.Message(err, secrets...)
}

// strange is for answers that lack what was asked for.
func strange(r request) error {
	return &auth.Error{Provider: "aws", Reason: auth.ErrUnavailable, Remedy: "see: " + r.show,
		Message: r.service + " gives no usable answer to " + r.action + ": it lacks what was asked for"}
}

// noLogin is for callers without credentials. The SDK's own words may repeat a file, or what a program printed, so they are not
// used.
func noLogin(err error) error {
	e := &auth.Error{Provider: "aws", Reason: auth.ErrMisconfigured, Message: "there is no login for AWS on this machine: " + noLoginBecause(err),
		Remedy: "log in with a role that may read IAM: aws sso login, AWS_PROFILE=PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Message, e.Err = "the login for AWS was not found in time", err
	}
	return e
}

func noLoginBecause(err error) string {
	var (
		api     smithy.APIError
		process *processcreds.ProviderError
		session *ssocreds.InvalidTokenError
		file    *fs.PathError
		profile config.SharedConfigProfileNotExistError
		request *url.Error
	)
	switch {
	case errors.As(err, &process):
		return "the program of credential_process failed, or printed no credentials"
	case errors.As(err, &api):
		return "it was refused with " + redact.Text(api.ErrorCode())
	case errors.As(err, &session):
		return "that of IAM Identity Center has ended"
	case errors.As(err, &file):
		return fmt.Sprintf("%.200q cannot be read: %v", file.Path, file.Err)
	case errors.As(err, &profile):
		return fmt.Sprintf("there is no profile %.100q in the shared configuration", profile.Profile)
	case errors.As(err, &request):
		return transport.Message(err)
	}
	return "neither the environment nor the shared files, nor a metadata service has one that can be used"
}
