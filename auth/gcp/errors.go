package gcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// serviceError is an error answer of Google: OAuth 2.0 (RFC 6749, section 5.2)
// of the token service, AIP-193 of other services.
type serviceError struct {
	code, message string
	reason        string // of google.rpc.ErrorInfo, or of the list of errors of older services
	known         bool   // the answer has one of the two forms
}

func parseError(body []byte) serviceError {
	var outer struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	if exactjson.Unmarshal(body, &outer) != nil || len(outer.Error) == 0 {
		return serviceError{}
	}
	var code string
	if exactjson.Unmarshal(outer.Error, &code) == nil {
		return serviceError{code: code, message: outer.Description, known: code != ""}
	}
	var inner struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []struct {
			Type   string `json:"@type"`
			Reason string `json:"reason"`
		} `json:"details"`
		Errors []struct {
			Reason string `json:"reason"`
		} `json:"errors"`
	}
	if exactjson.Unmarshal(outer.Error, &inner) != nil {
		return serviceError{}
	}
	e := serviceError{code: inner.Status, message: inner.Message, known: true}
	if len(inner.Errors) > 0 {
		e.reason = inner.Errors[0].Reason
	}
	for _, d := range inner.Details {
		if d.Type == "type.googleapis.com/google.rpc.ErrorInfo" {
			e.reason = d.Reason
		}
	}
	return e
}

// classify decides by status and code. The text decides only where both are
// silent.
func classify(answer transport.Answer, operation string, secrets ...string) (*auth.Error, serviceError) {
	s := parseError(answer.Body)
	e := self.Refused(operation, answer.Status, answer.Header)
	e.Reason, e.Code, e.Message = reasonOf(answer.Status, s), provider.Redact(s.code, secrets...),
		provider.Redact(s.message, secrets...)
	switch {
	case answer.Status/100 == 3:
		e.Message = "it answers with a redirect, which is not followed"
	case !s.known:
		e.Message = "the answer is not one of Google"
	case e.Message == "":
		e.Message = "it gives no reason"
	}
	if s.reason == "SERVICE_DISABLED" {
		e.Remedy = "enable the API in the project that the message names: gcloud services enable <service>"
	}
	return e, s
}

func reasonOf(status int, s serviceError) provider.Reason {
	switch {
	case status == http.StatusTooManyRequests, isThrottled(s):
		return auth.ErrThrottled
	case status >= http.StatusInternalServerError, status < http.StatusBadRequest, isTemporary(status, s), !s.known:
		return auth.ErrUnavailable // an unknown answer may come from a proxy
	case s.reason == "SERVICE_DISABLED", s.code == "invalid_target", s.code == "invalid_request",
		s.code == "invalid_scope",
		s.code == "INVALID_ARGUMENT", s.code == "NOT_FOUND", s.code == "FAILED_PRECONDITION", status == http.StatusNotFound,
		isTooLong(s):
		return auth.ErrMisconfigured
	case s.code == "invalid_grant" && (isStale(s) || cannotVerify(s)), s.code == "UNAUTHENTICATED":
		return auth.ErrUnavailable // the service could not verify the token, or does not know a new one yet
	}
	return auth.ErrDenied
}

// isThrottled recognizes rate limits that a service reports with another status
// than 429, such as 403.
func isThrottled(s serviceError) bool {
	switch s.code {
	case "RESOURCE_EXHAUSTED", "slow_down":
		return true
	}
	switch s.reason {
	case "RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded":
		return true
	}
	return false
}

// statusCancelled is the HTTP status of google.rpc.Code CANCELLED.
const statusCancelled = 499

// isTemporary recognizes answers below 500 after which another try may succeed.
func isTemporary(status int, s serviceError) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, statusCancelled:
		return true
	}
	switch s.code {
	case "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL", "UNKNOWN", "DATA_LOSS",
		"temporarily_unavailable", "server_error", "internal_failure":
		return true
	}
	return false
}

// isStale recognizes clock skew: a token that was just issued cannot be stale.
func isStale(s serviceError) bool { return strings.Contains(s.message, "is stale to sign-in") }

// cannotVerify reports that the token service could not fetch the issuer's
// keys.
func cannotVerify(s serviceError) bool {
	return strings.Contains(s.message, "connecting to the given credential's issuer")
}

// isTooLong reports that the subject exceeds the limit of google.subject. Older
// texts of the service do not name the attribute.
func isTooLong(s serviceError) bool {
	return strings.Contains(s.message, "mapped attribute ") && strings.Contains(s.message, "exceeds the 127 bytes limit")
}

// decode reads the answer of a success.
func decode(answer transport.Answer, operation string, into any) error {
	if exactjson.Unmarshal(answer.Body, into) != nil {
		return self.Unusable(operation, service, "it is not the JSON object that was expected")
	}
	return nil
}

// isTransient recognizes a service that could not fetch the keys of the issuer,
// as happens while they are new.
func isTransient(answer transport.Answer) bool {
	return answer.Status == http.StatusBadRequest && cannotVerify(parseError(answer.Body))
}

// exchangeError explains why the token service gave no token.
func (e *exchange) exchangeError(answer transport.Answer) *auth.Error {
	err, s := classify(answer, opExchange, e.oidcToken)
	err.Message = fmt.Sprintf("audience %q: %s", e.audience, err.Message)
	if err.Remedy == "" {
		err.Remedy = e.exchangeRemedy(s)
	}
	if s.code == "invalid_scope" {
		err.Option = "auth.WithScopes"
	}
	return err
}

// tokenAudience returns the audience of the ServiceAccount's token.
func (e *exchange) tokenAudience() string {
	switch host := e.provider.otherService(e.opts); {
	case len(e.opts.Audiences) > 0:
		return e.opts.Audiences[0]
	case host != "":
		return e.provider.audienceOf(host)
	}
	return e.audience
}

// exchangeRemedy names the most frequent cause of each error.
func (e *exchange) exchangeRemedy(s serviceError) string {
	switch {
	case isTooLong(s):
		return "map a shorter attribute to google.subject, or shorten the names"
	case s.code == "invalid_target":
		return "check that pool and provider exist and are enabled, and that the project is given by its number; " +
			"new ones take minutes"
	case s.code == "invalid_request":
		return fmt.Sprintf("check the annotation %q and the universe domain", WorkloadIdentityProviderAnnotation)
	case s.code == "unauthorized_client":
		return "change the provider's attribute condition so that it admits the ServiceAccount"
	case s.code == "invalid_scope":
		return "check the scopes"
	case strings.Contains(s.message, "audience in ID Token"):
		return fmt.Sprintf("add %q to the allowed audiences of the workload identity provider", e.tokenAudience())
	case strings.Contains(s.message, "issuer in ID Token"):
		return "set the provider's issuer URI to " + e.opts.IssuerName() + ", letter by letter"
	case cannotVerify(s):
		return "make the issuer's discovery document and keys public, or upload its current JWKS to the provider"
	case strings.Contains(s.message, "verify the ID Token signature"):
		return "upload the current JWKS of " + e.opts.IssuerName() + " to the provider"
	case isStale(s):
		return "check the clock of the cluster's control plane: Google finds a new token stale"
	}
	return ""
}

// impersonationError explains why the ServiceAccount cannot impersonate the
// service account.
func (e *exchange) impersonationError(answer transport.Answer, operation, federated string) *auth.Error {
	err, s := classify(answer, operation, e.oidcToken, federated)
	err.Message = fmt.Sprintf("service account %q: %s", e.email, err.Message)
	if err.Remedy == "" {
		err.Remedy = e.impersonationRemedy(answer.Status, s)
	}
	return err
}

func (e *exchange) impersonationRemedy(status int, s serviceError) string {
	switch {
	case status == http.StatusForbidden && len(delegates(e.opts)) > 0:
		return fmt.Sprintf("grant roles/iam.serviceAccountTokenCreator along the chain of delegates, and to %q on its first",
			e.member)
	case status == http.StatusForbidden:
		return fmt.Sprintf("grant roles/iam.workloadIdentityUser on the service account to %q; new grants take minutes",
			e.member)
	case status == http.StatusUnauthorized:
		return "check that the clocks agree: a token of the security token service that is just new is not accepted"
	case status == http.StatusNotFound:
		return fmt.Sprintf("create the service account, or correct the annotation %q", ServiceAccountAnnotation)
	case strings.Contains(s.message, "lifetime"):
		return "ask for at most an hour, or list the service account in " +
			"constraints/iam.allowServiceAccountCredentialLifetimeExtension"
	}
	return ""
}
