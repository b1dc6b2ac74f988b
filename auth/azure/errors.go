package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/pause"
	"github.com/workloadid/workloadid/internal/transport"
)

// refused begins the error for an unsuccessful answer.
func refused(answer transport.Answer, operation, requestID string, secrets ...string) *auth.Error {
	e := self.Refused(operation, answer.Status, answer.Header)
	e.RequestID = provider.Redact(answer.Header.Get(requestID), secrets...)
	return e
}

// entraError is an error of the token endpoint (RFC 6749, section 5.2, with
// additions). It may quote the request.
type entraError struct {
	Kind        string `json:"error"`
	Description string `json:"error_description"`
	Codes       []int  `json:"error_codes"`
	TraceID     string `json:"trace_id"`
}

// aadsts splits a text that begins with "AADSTS<number>:". The separators in
// the text and the fields beside it have changed over the years.
func aadsts(description string) (number int, text string) {
	rest, ok := strings.CutPrefix(description, "AADSTS")
	text = strings.TrimLeft(rest, "0123456789")
	number, err := strconv.Atoi(rest[:len(rest)-len(text)])
	if !ok || err != nil {
		return 0, description
	}
	return number, strings.TrimPrefix(text, ":")
}

// entraAnswer is an answer of the token endpoint, parsed once.
type entraAnswer struct {
	transport.Answer
	refusal *entraError // nil unless the token endpoint sent the error
}

func parseEntra(answer transport.Answer) entraAnswer {
	e := &entraError{}
	if answer.Status == http.StatusOK || exactjson.Unmarshal(answer.Body, e) != nil || e.Kind == "" {
		e = nil
	}
	return entraAnswer{answer, e}
}

func (e *entraError) number() int {
	if n, _ := aadsts(e.Description); n != 0 || len(e.Codes) == 0 {
		return n
	}
	return e.Codes[0]
}

// message leaves out the parts that differ at every try, because conditions
// hold it.
func (e *entraError) message() string {
	_, text := aadsts(e.Description)
	for _, changing := range []string{"Trace ID:", "Correlation ID:", "Timestamp:", "Current time:"} {
		text, _, _ = strings.Cut(text, changing)
	}
	return strings.TrimSpace(text)
}

// classify goes by status and number, never by the text.
func classify(answer entraAnswer, operation string, secrets ...string) *auth.Error {
	e := refused(answer.Answer, operation, "x-ms-request-id", secrets...)
	parsed := answer.refusal
	if parsed == nil {
		e.Message = "the answer is not one of Microsoft Entra ID"
		if answer.Status == http.StatusTooManyRequests {
			e.Reason, e.Message = auth.ErrThrottled, "too many requests"
		}
		return e
	}
	number := parsed.number()
	e.Message = provider.Redact(parsed.message(), secrets...)
	if e.Code = provider.Redact(parsed.Kind, secrets...); number != 0 {
		e.Code = "AADSTS" + strconv.Itoa(number)
	}
	if e.RequestID == "" {
		e.RequestID = provider.Redact(parsed.TraceID, secrets...)
	}
	e.Reason, e.Remedy = reasonOf(answer.Status, number, parsed.Kind)
	return e
}

// AADSTS numbers with a reason or a remedy of their own.
const (
	noSuchApplication   = 700016
	noSuchTenant        = 90002
	badTenant           = 900023
	noSuchResource      = 500011
	resourceDisabled    = 50001
	badScope            = 70011
	scopeNotDefault     = 1002012
	notWithinTime       = 700024
	keyNotPublished     = 7000272
	issuerUnreachable   = 90061
	issuerBroken        = 50166
	issuerBrokenToo     = 501661
	noFederation        = 70025
	wrongFederation     = 70021
	wrongIssuer         = 700211
	wrongAudience       = 700212
	wrongSubject        = 700213
	wrongCase           = 7002138
	noRole              = 501051
	wrongSecret         = 7000215
	secretExpired       = 7000222
	requestLoop         = 50196
	tenantThrottled     = 90055
	certificateNotKnown = 700027
)

// isTemporaryNumber recognizes the numbers that Microsoft documents as
// temporary, and failures of its own services.
func isTemporaryNumber(number int) bool {
	switch number {
	case 50000, // TokenIssuanceError: there is an issue with the sign-in service
		90006, // ExternalServerRetryableError
		90012, // RequestTimeout
		90024, // RequestBudgetExceededError: a transient error has occurred
		90033, // MsodsServiceUnavailable
		90036, // MsodsServiceUnretryableFailure
		90090, // GraphRetryableError
		90091: // GraphServiceUnreachable
		return true
	}
	return false
}

// statusCancelled is the status of some gateways for a request that was cut
// short.
const statusCancelled = 499

// isTemporary recognizes statuses after which another try may succeed.
// Throttling has a reason of its own.
func isTemporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, statusCancelled:
		return true
	}
	return status < http.StatusBadRequest || status >= http.StatusInternalServerError
}

func reasonOf(status, number int, kind string) (provider.Reason, string) {
	const reachable = "make the issuer's discovery document and keys readable for Azure, and publish the current keys"
	switch number {
	case requestLoop, tenantThrottled:
		return auth.ErrThrottled, ""
	case issuerUnreachable, issuerBroken, issuerBrokenToo, keyNotPublished:
		return auth.ErrUnavailable, reachable
	case notWithinTime:
		return auth.ErrUnavailable,
			"check the clock of the cluster's control plane: Azure finds a new token expired, or not valid yet"
	case noSuchApplication:
		return auth.ErrMisconfigured, "use the client ID (not the object or resource ID) of an identity of that tenant"
	case noSuchTenant, badTenant:
		return auth.ErrMisconfigured, "correct the tenant, or use the authority host of its cloud"
	case noSuchResource, resourceDisabled, badScope, scopeNotDefault:
		return auth.ErrMisconfigured, "use a scope <resource>/.default of a resource that the tenant and the cloud have"
	case noRole:
		return auth.ErrDenied, "assign the identity a role of the resource's application"
	case wrongSecret, secretExpired:
		return auth.ErrDenied, "renew the client secret in the environment of this process"
	case certificateNotKnown:
		return auth.ErrDenied, "register the certificate with the application"
	}
	switch {
	case status == http.StatusTooManyRequests, kind == "slow_down":
		return auth.ErrThrottled, ""
	case isTemporaryNumber(number), isTemporary(status), kind == "temporarily_unavailable", kind == "server_error":
		return auth.ErrUnavailable, ""
	case kind == "invalid_scope", kind == "invalid_resource", kind == "invalid_target":
		return auth.ErrMisconfigured, ""
	}
	return auth.ErrDenied, ""
}

// isTransient recognizes refusals that another try may mend.
func (a entraAnswer) isTransient() bool {
	if a.refusal == nil || a.Status < http.StatusBadRequest {
		return false
	}
	number := a.refusal.number()
	return number == issuerUnreachable || number == issuerBroken || number == issuerBrokenToo || isTemporaryNumber(number)
}

// isStale recognizes refusals that Entra also gives when one of its replicas
// does not know a federated credential yet. About 2 % of good requests meet it.
func isStale(err error) bool {
	var e *auth.Error
	if !errors.As(err, &e) {
		return false
	}
	switch number, _ := aadsts(e.Code); number {
	case wrongFederation, wrongIssuer, wrongAudience, wrongSubject:
		return true
	}
	return false
}

// replicaDelay is the time before the second try after a stale refusal. A
// common mistake causes the same refusal, so a third try is not made.
const replicaDelay = 2 * time.Second

// retryStale tries again once if the refusal may be stale. It returns the
// refusal if ctx ends before that.
func retryStale[T any](ctx context.Context, try func() (T, error)) (T, error) {
	token, err := try()
	if !isStale(err) {
		return token, err
	}
	if pause.For(ctx, replicaDelay) != nil {
		return token, err
	}
	again, failed := try()
	if failed != nil && !errors.Is(failed, auth.ErrDenied) {
		failed = err // an outage says less than the refusal
	}
	return again, failed
}

// exchangeError explains why Entra gave no token for a ServiceAccount.
func exchangeError(answer entraAnswer, tenant, clientID string, audiences []string, sa *corev1.ServiceAccount,
	opts *provider.Options, oidcToken string) error {
	e := classify(answer, opExchange, oidcToken)
	e.Message = fmt.Sprintf("client ID %q of tenant %q: %s", clientID, tenant, e.Message)
	explainFederation(e, clientID, opts.SubjectClaim(sa), opts.IssuerName(), audiences)
	return e
}

// explainFederation names the part of a federated credential that does not
// match.
func explainFederation(e *auth.Error, clientID, subject, issuer string, audiences []string) {
	number, _ := aadsts(e.Code)
	switch number {
	case noFederation, wrongFederation:
		e.Remedy = fmt.Sprintf("add a federated credential with %s (compare the slash at its end) "+
			"and the subject %q to the identity %q", issuer, subject, clientID)
	case wrongIssuer:
		e.Remedy = fmt.Sprintf("set the issuer of the federated credential of %q to %s, "+
			"with or without a slash at its end as the token has it", clientID, issuer)
	case wrongSubject:
		e.Remedy = fmt.Sprintf("set the subject of the federated credential of %q to %q; "+
			"a new one takes minutes to be known everywhere", clientID, subject)
	case wrongCase:
		e.Remedy = fmt.Sprintf("write the subject of the federated credential of %q as %q: upper and lower case count",
			clientID, subject)
	case wrongAudience:
		e.Remedy = fmt.Sprintf("set the audience of the federated credential of %q to %.300q, or give the token another one",
			clientID, strings.Join(audiences, " "))
		_ = e.About("auth.WithAudiences", "azure.Provider.Audience", "azure.Cloud.Audience")
	}
}
