package exchange

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// refusal is an error response (RFC 6749, section 5.2). The server's own words are redacted and bounded.
func (r *tokenRequest) refusal(answer transport.Answer, a oauth.Answer) error {
	e := r.failure(answer)
	e.Code = r.clean(shortCode(a.Code))
	e.Reason, e.Remedy = r.judge(answer.Status, a.Code)
	e.Message = "the server refuses"
	if e.Reason == auth.ErrUnavailable || e.Reason == auth.ErrThrottled {
		e.Message = "the server fails"
	}
	if text := r.clean(a.Description); text != "" {
		e.Message += ": " + text
	}
	return e
}

// notJSON is an answer of something else than an authorization server: a proxy, a load balancer, a page for people.
func (r *tokenRequest) notJSON(answer transport.Answer) error {
	e := r.failure(answer)
	e.Reason, e.Remedy = r.judge(answer.Status, "")
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		kind = "something unknown"
	}
	e.Message = fmt.Sprintf("the token endpoint at %q answers with %.50q, not with a JSON object", r.host(), kind)
	if len(answer.Body) == 0 {
		e.Message = fmt.Sprintf("the token endpoint at %q answers with nothing", r.host())
	}
	return e
}

func (r *tokenRequest) failure(answer transport.Answer) *auth.Error {
	return &auth.Error{Operation: opExchange, StatusCode: answer.Status,
		RequestID: r.clean(answer.Header.Get("X-Request-Id")),
		Wait:      transport.RetryAfter(answer.Header, time.Now())}
}

// judge goes by the code (RFC 6749, section 5.2, and RFC 8693, section 2.2.2): servers differ in the status they send it with.
// Only a status that blames the server wins.
func (r *tokenRequest) judge(status int, code string) (reason auth.Reason, remedy string) {
	switch code {
	case "invalid_request", "invalid_grant":
		// RFC 8693 has servers say invalid_request of tokens that they do not trust.
		reason, remedy = auth.ErrDenied, r.trustRemedy()
	case "invalid_client":
		reason = auth.ErrMisconfigured
		remedy = "correct Provider.Client: ID, way of authentication, secret or key have to be those registered at the server"
	case "unauthorized_client":
		reason, remedy = auth.ErrDenied, "allow token exchange to the client at the server"
	case "unsupported_grant_type":
		reason, remedy = auth.ErrMisconfigured, "enable token exchange (RFC 8693) at the server, or use one that has it"
	case "invalid_scope":
		reason = auth.ErrDenied
		remedy = fmt.Sprintf("allow the scopes %.100q to this ServiceAccount and client at the server, or ask for others", r.opts.Scopes)
	case "invalid_target":
		reason = auth.ErrDenied
		remedy = fmt.Sprintf("allow audience %.200q and resource %.200q to this ServiceAccount and client, or ask for others", r.Audience, r.Resource)
	case "server_error", "temporarily_unavailable":
		reason = auth.ErrUnavailable
	case "slow_down": // of RFC 8628
		reason = auth.ErrThrottled
	case "": // what is no answer of the server judges nobody
		reason = auth.ErrUnavailable
		remedy = fmt.Sprintf("check that %q is up, what guards it, and that its token endpoint is the right one", r.host())
	default:
		reason = auth.ErrDenied
	}
	switch {
	case status == http.StatusTooManyRequests && code == "":
		return auth.ErrThrottled, ""
	case status == http.StatusTooManyRequests:
		return auth.ErrThrottled, remedy
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		return auth.ErrUnavailable, remedy
	}
	return reason, remedy
}

// trustRemedy says what the server has to trust.
func (r *tokenRequest) trustRemedy() string {
	claims, err := jwt.Parse(r.SubjectToken)
	if err != nil {
		return "let the server trust the cluster's issuer and this ServiceAccount for token exchange"
	}
	return fmt.Sprintf("let the server trust issuer %.200q, subject %.300q and audience %.200q for token exchange",
		claims.Issuer, claims.Subject, claims.Audience)
}

// again tells what goes away by itself although the status does not say so.
func again(answer transport.Answer) bool {
	if answer.Status != http.StatusBadRequest {
		return answer.Status == http.StatusRequestTimeout
	}
	a, _ := oauth.ParseAnswer(answer.Body) // without a code if it is none
	return slices.Contains([]string{"temporarily_unavailable", "server_error", "slow_down"}, a.Code)
}

// shortCode leaves out what is no code, since codes stand unquoted in messages.
func shortCode(code string) string {
	const most = 64
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	if len(code) > most || strings.ContainsFunc(code, func(r rune) bool { return !strings.ContainsRune(allowed, r) }) {
		return ""
	}
	return code
}

// clean makes the server's words fit for a message. Secrets that are too short to be scrubbed take the words with them.
func (r *tokenRequest) clean(text string) string {
	text = redact.Text(text, r.secrets...)
	for _, secret := range r.secrets {
		if strings.Contains(text, secret) {
			return ""
		}
	}
	return text
}

func (r *tokenRequest) host() string {
	u, err := url.Parse(r.endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}
