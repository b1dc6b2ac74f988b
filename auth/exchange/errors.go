package exchange

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Error codes of RFC 6749, sections 4.1.2.1 and 5.2, of RFC 8693, section 2.2.2, and slow_down of RFC 8628.
const (
	codeInvalidRequest         = "invalid_request"
	codeInvalidClient          = "invalid_client"
	codeInvalidGrant           = "invalid_grant"
	codeUnauthorizedClient     = "unauthorized_client"
	codeUnsupportedGrantType   = "unsupported_grant_type"
	codeInvalidScope           = "invalid_scope"
	codeInvalidTarget          = "invalid_target"
	codeServerError            = "server_error"
	codeTemporarilyUnavailable = "temporarily_unavailable"
	codeSlowDown               = "slow_down"
)

// refusal is an error response (RFC 6749, section 5.2). The server's own words are redacted and bounded.
func (r *tokenRequest) refusal(answer transport.Answer, o object) error {
	code, _ := o.text("error")
	description, _ := o.text("error_description")
	e := r.failure(answer)
	e.Code = r.clean(shortCode(code))
	e.Reason = reasonOf(answer.Status, code)
	e.Remedy = r.remedy(e.Reason, code)
	e.Message = "the server refuses"
	if e.Reason == auth.ErrUnavailable || e.Reason == auth.ErrThrottled {
		e.Message = "the server fails"
	}
	if text := r.clean(description); text != "" {
		e.Message += ": " + text
	}
	return e
}

// notJSON is an answer of something else than an authorization server: a proxy, a load balancer, a page for people.
func (r *tokenRequest) notJSON(answer transport.Answer) error {
	e := r.failure(answer)
	e.Reason = reasonOfStatus(answer.Status)
	e.Remedy = r.remedy(e.Reason, "")
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

// reasonOf goes by the code: servers differ in the status they send it with. Only a status that blames the server wins.
func reasonOf(status int, code string) auth.Reason {
	if status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= http.StatusInternalServerError {
		return reasonOfStatus(status)
	}
	switch code {
	case codeInvalidRequest, codeInvalidGrant, codeUnauthorizedClient, codeInvalidScope, codeInvalidTarget:
		// RFC 8693 has servers say invalid_request of tokens that they do not trust.
		return auth.ErrDenied
	case codeInvalidClient, codeUnsupportedGrantType:
		return auth.ErrMisconfigured
	case codeServerError, codeTemporarilyUnavailable:
		return auth.ErrUnavailable
	case codeSlowDown:
		return auth.ErrThrottled
	case "":
		return reasonOfStatus(status)
	}
	return auth.ErrDenied
}

// reasonOfStatus is for answers without a code. What is no answer of the server judges nobody.
func reasonOfStatus(status int) auth.Reason {
	if status == http.StatusTooManyRequests {
		return auth.ErrThrottled
	}
	return auth.ErrUnavailable
}

func (r *tokenRequest) remedy(reason auth.Reason, code string) string {
	switch code {
	case codeInvalidRequest, codeInvalidGrant:
		return r.trustRemedy()
	case codeInvalidClient:
		return "correct Provider.Client: ID, way of authentication, secret or key have to be those registered at the server"
	case codeUnauthorizedClient:
		return "allow token exchange to the client at the server"
	case codeUnsupportedGrantType:
		return "enable token exchange (RFC 8693) at the server, or use one that has it"
	case codeInvalidScope:
		return fmt.Sprintf("allow the scopes %.100q to this ServiceAccount and client at the server, or ask for others",
			r.opts.Scopes)
	case codeInvalidTarget:
		return fmt.Sprintf("allow audience %.200q and resource %.200q to this ServiceAccount and client, or ask for others",
			r.shared.Get("audience"), r.shared.Get("resource"))
	}
	if reason == auth.ErrUnavailable && code == "" {
		return fmt.Sprintf("check that %q is up, what guards it, and that its token endpoint is the right one", r.host())
	}
	return ""
}

// trustRemedy says what the server has to trust.
func (r *tokenRequest) trustRemedy() string {
	claims, err := jwt.Parse(r.shared.Get("subject_token"))
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
	o, err := parseObject(answer.Body)
	if err != nil {
		return false
	}
	code, _ := o.text("error")
	return code == codeTemporarilyUnavailable || code == codeServerError || code == codeSlowDown
}

// shortCode leaves out what is no code, since codes stand unquoted in messages.
func shortCode(code string) string {
	const most = 64
	for i := range len(code) {
		switch c := code[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return ""
		}
	}
	if len(code) > most {
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
