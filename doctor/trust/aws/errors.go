package aws

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// explain returns the finding of a failed call. Of the answer it takes status, code and request ID: messages of services, and of
// what stands in their place, may repeat the login.
func explain(err error, q *reading.Question) doctor.Finding {
	status, requestID := 0, ""
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		status, requestID = response.HTTPStatusCode(), redact.Text(response.ServiceRequestID(), q.Secrets...)
	}
	f := explainCode(err, q, status)
	f.RequestID = requestID
	return f
}

func explainCode(err error, q *reading.Question, status int) doctor.Finding {
	switch code := codeOf(err); code {
	case "":
		return q.Unusable(transportError(err), status, "", unusable(err, status, q.Secrets))
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		return q.Refused(status, code)
	case "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch":
		return q.LoginRefused(status, code, logIn)
	default:
		if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled {
			status = http.StatusTooManyRequests
		}
		return q.Unusable(nil, status, code, "the service answered with an error")
	}
}

// codeOf returns the error code of the service, "" if the answer was none of the service's.
func codeOf(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() == "UnknownError" {
		return ""
	}
	return api.ErrorCode()
}

// transportError drops errors of decoders, which may quote the answer, and those of answers that arrived.
func transportError(err error) error {
	var decoding *smithy.DeserializationError
	var response *awshttp.ResponseError
	if errors.As(err, &decoding) || errors.As(err, &response) && response.HTTPStatusCode() != 0 {
		return nil
	}
	return err
}

func unusable(err error, status int, secrets []string) string {
	if transportError(err) == nil {
		return fmt.Sprintf("HTTP %d with an answer that is not of the service", status)
	}
	return transport.Message(err, secrets...)
}
