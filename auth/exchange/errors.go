package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Values of auth.Error.Option.
const (
	optionEndpoint        = "exchange.Provider.Endpoint"
	optionIssuer          = "exchange.Provider.IssuerURL"
	optionTokenType       = "exchange.Provider.RequestedTokenType"
	optionAssumedLifetime = "exchange.Provider.AssumedLifetime"
)

// refusal returns the error of an error response (RFC 6749, section 5.2).
func (r *tokenRequest) refusal(answer transport.Answer, a oauth.Answer) error {
	e := r.failure(answer, a)
	e.Code = r.clean(shortCode(a.Code))
	e.Message = cmp.Or(r.provider.form().title(), "the server") + " refuses"
	if e.Reason == auth.ErrUnavailable || e.Reason == auth.ErrThrottled {
		e.Message = strings.TrimSuffix(e.Message, "refuses") + "fails"
	}
	if text := r.clean(a.Description); text != "" {
		e.Message += ": " + text
	}
	return e
}

// notJSON returns the error of an answer from something else than an authorization server, such as a proxy or a load balancer.
func (r *tokenRequest) notJSON(answer transport.Answer) error {
	e := r.failure(answer, oauth.Answer{})
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		kind = "something unknown"
	}
	e.Message = fmt.Sprintf("the token endpoint at %q answers with %.50q, not with a JSON object", r.endpoint.Host, r.clean(kind))
	if len(answer.Body) == 0 {
		e.Message = fmt.Sprintf("the token endpoint at %q answers with nothing", r.endpoint.Host)
	}
	return e
}

// requestID reads the header or the member by which services name a request.
func (r *tokenRequest) requestID(answer transport.Answer) string {
	o, _ := r.object(answer) // nil if it is not JSON
	return r.clean(cmp.Or(answer.Header.Get("X-Request-Id"), answer.Header.Get("Request-Id"), o.Text("request_id")))
}

func (r *tokenRequest) failure(answer transport.Answer, a oauth.Answer) *auth.Error {
	code := a.Code
	e := &auth.Error{Operation: opExchange, StatusCode: answer.Status, RequestID: r.requestID(answer),
		Wait: transport.RetryAfter(answer.Header, time.Now())}
	e.Reason, e.Remedy = r.reasonOf(code)
	if a.Failed && code == "" { // a refusal of the service, though without a code
		e.Reason, e.Remedy = auth.ErrDenied, r.trustRemedy()
	}
	if reason, place := r.provider.form().reason(answer.Status); a.Failed && reason != "" { // a proxy's page has no reason of the service
		e.Reason, e.Remedy = reason, r.trustRemedy()
		if reason == auth.ErrMisconfigured {
			e.Remedy = fmt.Sprintf("check that %s knows %s", r.provider.form().title(), r.known(place))
		}
	}
	if code == "invalid_client" && e.Reason == auth.ErrMisconfigured {
		e.Option = "exchange.Provider.Client"
	}
	switch status := answer.Status; {
	case status == http.StatusTooManyRequests:
		e.Reason = auth.ErrThrottled
		if code == "" {
			e.Remedy = ""
		}
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		e.Reason = auth.ErrUnavailable
	}
	return e
}

// reasonOf goes by the code (RFC 6749, section 5.2, and RFC 8693, section 2.2.2), because servers differ in the status.
func (r *tokenRequest) reasonOf(code string) (reason provider.Reason, remedy string) {
	if r.provider.Grant == GrantClientCredentials && slices.Contains([]string{"invalid_client", "unauthorized_client"}, code) {
		code = "invalid_grant" // the tenant is the client
	}
	switch code {
	case "invalid_request", "invalid_grant", "invalid_subject_token", "access_denied":
		// In RFC 8693, invalid_request is also the code for tokens that the server does not trust.
		return auth.ErrDenied, r.trustRemedy()
	case "invalid_client":
		return auth.ErrMisconfigured, "correct the client: its ID, way of authentication, secret or key have to be those registered at the server"
	case "unauthorized_client":
		return auth.ErrDenied, "allow token exchange to the client at the server"
	case "unsupported_grant_type":
		return auth.ErrMisconfigured, fmt.Sprintf("enable %s at the server, or use one that has it", r.provider.Grant.title())
	case "invalid_scope":
		return auth.ErrDenied, fmt.Sprintf("allow the scopes %.100q to this ServiceAccount and client at the server, or request others", r.opts.Scopes)
	case "invalid_target":
		return auth.ErrDenied, fmt.Sprintf("allow audience %.200q and resource %.200q to this ServiceAccount and client, or request others", r.Audience, r.Resource)
	case "server_error", "temporarily_unavailable":
		return auth.ErrUnavailable, ""
	case "slow_down": // of RFC 8628
		return auth.ErrThrottled, ""
	case "": // perhaps not the server's own answer
		return auth.ErrUnavailable, fmt.Sprintf("check that %q is up, what guards it, and that its token endpoint is the right one", r.endpoint.Host)
	}
	return auth.ErrDenied, ""
}

// trustRemedy names the token that the server has to trust, and what the ServiceAccount asked for.
func (r *tokenRequest) trustRemedy() string {
	purpose := cmp.Or(r.provider.form().title(), r.provider.Grant.title())
	if named := r.named(); len(named) > 0 {
		purpose += " with " + strings.Join(named, ", ")
	}
	claims, err := jwt.Parse(r.SubjectToken)
	if err != nil {
		return "let the server trust the cluster's issuer and this ServiceAccount for " + purpose
	}
	return fmt.Sprintf("let the server trust issuer %.200q, subject %.300q and audience %.200q for %s",
		claims.Issuer, claims.Subject, claims.Audience, purpose)
}

// named lists the annotated parameters. The values of the others are the controller's own.
func (r *tokenRequest) named() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(r.provider.AnnotatedParameters)) {
		list = append(list, fmt.Sprintf("%s %.256q", name, r.parameters[name]))
	}
	return list
}

// known lists what a service has to know, with the names of the controller's parameters alone.
func (r *tokenRequest) known(place string) string {
	list := r.named()
	if place != "" {
		list = append(list, place)
	}
	for _, name := range slices.Sorted(maps.Keys(r.provider.Parameters)) {
		list = append(list, "the controller's "+name)
	}
	return strings.Join(list, ", ")
}

func (g Grant) title() string {
	if g == GrantTokenExchange {
		return "token exchange (RFC 8693)"
	}
	return "the grant " + string(g)
}

// isTransient reports failures that pass by themselves although their status does not tell.
func (r *tokenRequest) isTransient(answer transport.Answer) bool {
	if answer.Status != http.StatusBadRequest {
		return answer.Status == http.StatusRequestTimeout
	}
	o, _ := r.object(answer) // without a code if it is not JSON
	return slices.Contains([]string{"temporarily_unavailable", "server_error", "slow_down"}, o.Text("error"))
}

// shortCode drops malformed codes, because messages hold codes unquoted.
func shortCode(code string) string {
	const most = 64
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	if len(code) > most || strings.Trim(code, allowed) != "" {
		return ""
	}
	return code
}

// clean redacts and bounds the server's text. A secret that is too short to be redacted drops the whole text.
func (r *tokenRequest) clean(text string) string {
	text = redact.Text(text, r.secrets...)
	if slices.ContainsFunc(r.secrets, func(secret string) bool { return strings.Contains(text, secret) }) {
		return ""
	}
	return text
}
