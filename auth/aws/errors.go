package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

// exchangeError explains why STS gave no credentials for a ServiceAccount.
func (p *Provider) exchangeError(err error, arn string, sa *corev1.ServiceAccount, opts *provider.Options,
	oidcToken string) error {
	e := classify(err, opAssumeRole, oidcToken)
	answer := e.Message
	e.Message = fmt.Sprintf("role %q: %s", arn, e.Message)
	switch {
	case e.Code == "AccessDenied" && isOtherService(opts):
		e.Remedy = fmt.Sprintf(
			"correct the role, or let the service at %q trust %s with the client ID %q and allow the role to the subject %q",
			otherService(opts), opts.IssuerName(), p.audienceOf(otherService(opts)), opts.SubjectClaim(sa))
	case e.Code == "AccessDenied":
		e.Remedy = fmt.Sprintf(
			"correct the role, or let its trust policy allow sts:AssumeRoleWithWebIdentity to the OIDC provider of %s "+
				"for the subject %q", opts.IssuerName(), opts.SubjectClaim(sa))
	case strings.Contains(answer, "No OpenIDConnect provider found"):
		e.Remedy = "use a role that trusts this issuer, or create the IAM OIDC provider for " + opts.IssuerName() +
			" in the account of the role"
	case e.Code == "InvalidIdentityToken" && strings.Contains(answer, "audience") && isOtherService(opts):
		e.Remedy = fmt.Sprintf("correct the audience, or set it as client ID at the service; the default is %q",
			p.audienceOf(otherService(opts)))
	case e.Code == "InvalidIdentityToken" && strings.Contains(answer, "audience"):
		e.Remedy = fmt.Sprintf(
			"correct the audience, or add it to the client IDs of the IAM OIDC provider; the default is %q", DefaultAudience)
	case cannotVerify(e.Code, answer):
		e.Remedy = "make the issuer's discovery document and keys readable for AWS, publish the current keys, " +
			"and check that the account of the role has the IAM OIDC provider for " + opts.IssuerName()
	}
	return e
}

// classify goes by status and code of an error of the SDK. The text decides
// only where these say nothing.
func classify(err error, operation string, secrets ...string) *auth.Error {
	e := self.Unavailable(operation, "", "")
	e.Err = provider.Bounded(err)
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		e.StatusCode, e.RequestID = response.HTTPStatusCode(), provider.Redact(response.ServiceRequestID(), secrets...)
		if response.Response != nil && response.Response.Response != nil {
			e.Wait = transport.RetryAfter(response.Response.Header, time.Now())
			forgetRequest(response.Response.Response)
		}
	}
	if e.StatusCode/100 == 3 {
		e.Message = "it answers with a redirect, which is not followed"
		return e
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code, e.Message = provider.Redact(api.ErrorCode(), secrets...), provider.Redact(api.ErrorMessage(), secrets...)
		e.Reason, e.Remedy = reasonOf(e.Code, e.Message, e.StatusCode)
		if isTooLong(e.Code, e.Message) {
			e.Option = "aws.WithSessionDuration"
		}
		return e
	}
	e.Message = transportMessage(err, secrets...)
	if e.StatusCode == http.StatusTooManyRequests {
		e.Reason = auth.ErrThrottled
	}
	return e
}

// forgetRequest leaves the status. The cache keeps errors for minutes, and the
// request holds a token. With the certificates, buffers and headers it takes
// three quarters of the memory of a failing tenant.
func forgetRequest(r *http.Response) { r.Request, r.TLS, r.Body, r.Header = nil, nil, http.NoBody, nil }

// reasonOf goes by the codes of AWS STS and of the other services.
func reasonOf(code, message string, status int) (provider.Reason, string) {
	switch {
	case isThrottled(code), status == http.StatusTooManyRequests:
		return auth.ErrThrottled, ""
	case status >= http.StatusInternalServerError && (code == "" || code == "UnknownError"): // a page
		return auth.ErrUnavailable, "if it lasts, see the AWS Health Dashboard, or the proxy that answers for AWS"
	case code == "", code == "UnknownError":
		return auth.ErrUnavailable, "check whether a proxy answers for AWS"
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, isTemporary(code),
		cannotVerify(code, message):
		return auth.ErrUnavailable, ""
	case clocksDiffer(code, message):
		return auth.ErrUnavailable, "check the clock of this machine: AWS finds its signature too old or too new"
	case code == "ExpiredToken":
		return auth.ErrUnavailable, "check that the clocks agree"
	case code == "ExpiredTokenException":
		return auth.ErrUnavailable, "check the clock of the cluster's control plane: STS finds a new token expired"
	case code == "RegionDisabledException":
		return auth.ErrMisconfigured, "activate STS for the region in the account, or use another region"
	case isTooLong(code, message):
		return auth.ErrMisconfigured, "correct the session's duration, or raise the role's maximum session duration"
	case code == "PackedPolicyTooLarge":
		return auth.ErrMisconfigured, "use fewer or shorter session tags, or a shorter session policy; " +
			"AWS limits the packed size of both together, and tags of the roles before count too"
	case code == "ValidationError", code == "MalformedPolicyDocument",
		code == "InvalidParameterException", code == "ResourceNotFoundException":
		return auth.ErrMisconfigured, ""
	case status >= http.StatusBadRequest:
		return auth.ErrDenied, ""
	}
	return auth.ErrUnavailable, ""
}

// isTooLong reports that the role does not allow such long sessions.
func isTooLong(code, message string) bool {
	return code == "ValidationError" && strings.Contains(message, "MaxSessionDuration")
}

// isThrottled recognizes the throttling codes of the SDK, and related ones.
func isThrottled(code string) bool {
	_, known := retry.DefaultThrottleErrorCodes[code]
	return known || strings.HasPrefix(code, "Throttl")
}

// isTemporary recognizes codes after which another try may succeed: the SDK's,
// and some that services send with status 400.
func isTemporary(code string) bool {
	_, known := retry.DefaultRetryableErrorCodes[code]
	return known || code == "ServerException" || code == "ServiceUnavailableException" || code == "IDPCommunicationError"
}

// cannotVerify reports that STS could not fetch the issuer's keys. The second
// text is the newer one, which STS also has for an issuer that it does not
// know.
func cannotVerify(code, message string) bool {
	return code == "InvalidIdentityToken" &&
		(strings.Contains(message, "retrieve verification key") || strings.Contains(message, "could not be validated"))
}

// serviceError explains why a service other than STS refused credentials of
// STS.
func serviceError(err error, operation string, from *Token) *auth.Error {
	e := classify(err, operation, from.secrets()...)
	switch e.Code {
	case "ExpiredTokenException":
		e.Reason, e.Remedy = auth.ErrUnavailable, "check that the clocks agree"
	case "UnrecognizedClientException":
		e.Remedy = "check that the account has activated the region, and that the region is one of the role's own partition"
	}
	return e
}

// isTransient recognizes errors for a cluster whose keys are new, and clock
// skew: the SDK learns the time of the service from the first answer.
func isTransient(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	code, message := api.ErrorCode(), api.ErrorMessage()
	return code == "IDPCommunicationError" || cannotVerify(code, message) || clocksDiffer(code, message)
}

// clocksDiffer recognizes refusals of a signature that is too old or from the
// future.
func clocksDiffer(code, message string) bool {
	return code == "RequestExpired" || code == "RequestTimeTooSkewed" ||
		strings.Contains(message, "Signature expired") || strings.Contains(message, "Signature not yet current")
}

// transportMessage describes an error without an answer of the service. It
// repeats no part of a malformed answer.
func transportMessage(err error, secrets ...string) string {
	var undecodable *smithy.DeserializationError
	var tooLarge *http.MaxBytesError
	if errors.As(err, &undecodable) && !errors.As(err, &tooLarge) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) {
		return "the answer cannot be read"
	}
	return transport.Message(err, secrets...)
}
