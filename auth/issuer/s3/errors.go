package s3

import (
	"context"
	"errors"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

// secrets returns those of the credentials, which errors leave out. It keeps failures of other services, such as STS, apart from those of
// S3. The SDK caches credentials.
func (s *Store) secrets(ctx context.Context, operation string) ([]string, error) {
	c, err := s.client.Options().Credentials.Retrieve(ctx)
	if err != nil {
		e := self.Unavailable(operation, "give this process AWS credentials, such as AWS_PROFILE or a role for its ServiceAccount", "")
		return nil, failed(e, err, nil)
	}
	return []string{c.SecretAccessKey, c.SessionToken}, nil
}

// failed explains why a request failed, by status and code.
func (s *Store) failed(operation string, err error, secrets []string) error {
	var answer *awshttp.ResponseError
	var api smithy.APIError
	e, region := self.Unavailable(operation, "", ""), ""
	if errors.As(err, &answer) && errors.As(err, &api) {
		e.StatusCode, e.Code = answer.HTTPStatusCode(), provider.Redact(api.ErrorCode(), secrets...)
		region = provider.Redact(answer.Response.Header.Get("x-amz-bucket-region"), secrets...)
	}
	e.Reason, e.Remedy = s.explain(e.StatusCode, e.Code, region)
	return failed(e, err, secrets)
}

// failed completes an error with what the SDK says, without secrets and bodies.
func failed(e *provider.Error, err error, secrets []string) error {
	e.Err = err
	var api smithy.APIError
	var program *processcreds.ProviderError
	switch {
	case e.StatusCode/100 == 3:
		e.Message = "it answers with a redirect, which is not followed"
	case errors.As(err, &program):
		e.Err, e.Message = nil, "the program of credential_process failed, or printed no credentials" // the text may hold its output
	case errors.As(err, &api):
		e.Message = provider.Redact(api.ErrorMessage(), secrets...)
	default:
		e.Message = transport.Message(err, secrets...)
	}
	return e
}

// refusal returns the error code of an answer; empty if there is none.
func refusal(err error) string {
	var api smithy.APIError
	var answer *awshttp.ResponseError
	switch {
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusPreconditionFailed:
		return preconditionFailed // whatever a compatible service calls it
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return ""
}

const (
	preconditionFailed = "PreconditionFailed"
	conditionalWrites  = "use a service with conditional writes (If-Match and If-None-Match)"
)

func (s *Store) explain(status int, code, region string) (provider.Reason, string) {
	switch {
	case region != "" && region != s.client.Options().Region:
		return provider.ErrMisconfigured, "set the region of the bucket, " + region
	case code == "NoSuchBucket":
		return provider.ErrMisconfigured, "create the bucket, or correct its name"
	case status == http.StatusNotImplemented:
		return provider.ErrMisconfigured, conditionalWrites
	case status == http.StatusTooManyRequests, code == "SlowDown":
		return provider.ErrThrottled, ""
	case code == "AccessDenied" && s.owner != nil:
		return provider.ErrDenied, "check that account " + *s.owner + " owns the bucket, and allow s3:GetObject, s3:PutObject and s3:ListBucket"
	case code == "AccessDenied":
		return provider.ErrDenied, "allow s3:GetObject, s3:PutObject and s3:ListBucket"
	case code == "RequestTimeTooSkewed":
		return provider.ErrUnavailable, "check the clock of this machine"
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return provider.ErrDenied, "check the credentials"
	}
	return provider.ErrUnavailable, ""
}
