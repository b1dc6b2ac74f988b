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
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Values of auth.Error.Option.
const (
	optionEndpoint        = "exchange.Provider.Endpoint"
	optionIssuer          = "exchange.Provider.IssuerURL"
	optionTokenType       = "exchange.Provider.RequestedTokenType"
	optionAssumedLifetime = "exchange.Provider.AssumedLifetime"
	optionClient          = "exchange.Provider.Client"
	optionSubjectType     = "exchange.Provider.SubjectTokenType"
	optionScopes          = "exchange.Provider.DefaultScopes"
	optionAudience        = "exchange.Provider.Audience"
	optionResource        = "exchange.Provider.Resource"
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

// notJSON returns the error of an answer that no authorization server gives. A
// proxy or a load balancer may have sent it.
func (r *tokenRequest) notJSON(answer transport.Answer) error {
	e := r.failure(answer, oauth.Answer{})
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		kind = "something unknown"
	}
	e.Message = fmt.Sprintf("the token endpoint at %q answers with %.50q, not with a JSON object", r.endpoint.Host,
		r.clean(kind))
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

// failure classifies an answer by its code (RFC 6749, section 5.2, and RFC
// 8693, section 2.2.2) and by the content of the request. Servers differ in the
// status.
func (r *tokenRequest) failure(answer transport.Answer, a oauth.Answer) *auth.Error {
	e := &auth.Error{Operation: opExchange, StatusCode: answer.Status, RequestID: r.requestID(answer),
		Wait: transport.RetryAfter(answer.Header, time.Now())}
	v := r.verdict(a)
	// An answer that reports no failure may come from a proxy.
	if reason, place := r.provider.form().reason(answer.Status); a.Failed && reason != "" {
		v = verdict{reason: reason, remedy: r.trustRemedy()}
		if reason == auth.ErrMisconfigured {
			v.remedy = fmt.Sprintf("check that %s knows %s", r.provider.form().title(), r.known(place))
		}
	}
	switch status := answer.Status; {
	case status == http.StatusTooManyRequests:
		v.reason = auth.ErrThrottled
		if a.Code == "" {
			v.remedy = ""
		}
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		v.reason = auth.ErrUnavailable
	case v.unknown && r.provider.form().title() == "" &&
		(status == http.StatusNotFound || status == http.StatusMethodNotAllowed):
		v = verdictOf(auth.ErrMisconfigured, "correct the path of the token endpoint", optionEndpoint, optionIssuer)
	}
	e.Reason, e.Remedy = v.reason, v.remedy
	return e.About(v.options...)
}

// verdict classifies a refusal. The remedy names the fields that caused it.
type verdict struct {
	reason  provider.Reason
	remedy  string
	options []string
	unknown bool // no OAuth code explains the refusal
}

func verdictOf(reason provider.Reason, remedy string, options ...string) verdict {
	return verdict{reason: reason, remedy: remedy, options: options}
}

func (r *tokenRequest) verdict(a oauth.Answer) verdict {
	p, code := r.provider, a.Code
	noClient := p.Client == nil && p.form().title() == "" // a service authenticates the controller in another way
	if p.Grant == GrantClientCredentials && slices.Contains([]string{"invalid_client", "unauthorized_client"}, code) {
		code = "invalid_grant" // the tenant is the client
	}
	switch code {
	case "invalid_request":
		return r.malformed()
	case "invalid_grant", "invalid_subject_token", "access_denied":
		return verdictOf(auth.ErrDenied, r.trustRemedy())
	case "invalid_client":
		remedy := "correct the client: its ID, way of authentication, secret or key have to be those registered at the server"
		if noClient {
			remedy = "set the client as which the controller is registered at the server"
		}
		return verdictOf(auth.ErrMisconfigured, remedy, optionClient)
	case "unauthorized_client":
		remedy := fmt.Sprintf("allow %s to the client at the server", p.Grant.short())
		if noClient {
			return verdictOf(auth.ErrDenied, remedy+", or set the client that has it", optionClient)
		}
		return verdictOf(auth.ErrDenied, remedy)
	case "unsupported_grant_type":
		remedy := fmt.Sprintf("enable %s at the server, or use one that has it", p.Grant.title())
		return verdictOf(auth.ErrMisconfigured, remedy, optionGrant)
	case "request_not_supported":
		if p.Grant == GrantTokenExchange {
			remedy := "use token types that the server takes, unlike " + r.types()
			return verdictOf(auth.ErrMisconfigured, remedy, optionSubjectType, optionTokenType)
		}
		return verdictOf(auth.ErrMisconfigured, "correct "+r.sent(), optionGrant, optionParameters)
	case "invalid_scope":
		if scopes := p.scopes(r.opts); len(scopes) > 0 {
			const remedy = "allow the scopes %.100q to this ServiceAccount and client at the server, or request others"
			return verdictOf(auth.ErrDenied, fmt.Sprintf(remedy, scopes))
		}
		return verdictOf(auth.ErrDenied, "request a scope that the server allows", "auth.WithScopes", optionScopes)
	case "invalid_target":
		if target := quoted("audience", r.Audience, "resource", r.Resource); target != "" {
			return verdictOf(auth.ErrDenied, "allow "+target+" to this ServiceAccount and client, or request others")
		}
		const remedy = "name the service that accepts the token, as the server knows it"
		return verdictOf(auth.ErrDenied, remedy, optionAudience, optionResource)
	case "server_error", "temporarily_unavailable":
		return verdict{reason: auth.ErrUnavailable}
	case "slow_down": // of RFC 8628
		return verdict{reason: auth.ErrThrottled}
	case "":
		if a.Failed { // the service refused, though without a code
			return verdict{reason: auth.ErrDenied, remedy: r.trustRemedy(), unknown: true}
		}
		remedy := fmt.Sprintf("check that %q is up, what guards it, and that its token endpoint is the right one",
			r.endpoint.Host)
		return verdict{reason: auth.ErrUnavailable, remedy: remedy, unknown: true} // perhaps a proxy answered
	}
	return verdict{reason: auth.ErrDenied, unknown: true}
}

// malformed explains invalid_request. In RFC 8693 this code also covers tokens
// that the server does not trust. RFC 7523 has codes of its own for assertions,
// so there the rest of the request is wrong.
func (r *tokenRequest) malformed() verdict {
	p := r.provider
	options := []string{optionGrant, optionParameters}
	if p.Grant != GrantClientCredentials {
		options = append(options, optionClient)
	}
	switch {
	case p.Grant != GrantTokenExchange:
		return verdictOf(auth.ErrMisconfigured, "correct "+r.sent(), options...)
	case p.form().title() != "":
		return verdictOf(auth.ErrDenied, r.trustRemedy())
	}
	return verdictOf(auth.ErrDenied, r.trustRemedy()+", or correct "+r.sent(), options...)
}

// sent names what a request held beside the ServiceAccount's token. Values of
// parameters are the controller's own.
func (r *tokenRequest) sent() string {
	p, list := r.provider, []string{r.provider.Grant.title()}
	switch {
	case p.Grant == GrantClientCredentials: // the tenant is the client
	case p.Client == nil:
		list = append(list, "the missing client")
	default:
		list = append(list, fmt.Sprintf("the client %.100q", p.Client.settings().id))
	}
	for _, one := range p.learn().parameters {
		list = append(list, "the parameter "+one.name)
	}
	if target := quoted("audience", r.Audience, "resource", r.Resource); target != "" {
		list = append(list, target)
	}
	return strings.Join(list, ", ")
}

// types names the token types of a request.
func (r *tokenRequest) types() string {
	return quoted("subject_token_type", r.SubjectTokenType, "actor_token_type", r.ActorTokenType,
		"requested_token_type", r.RequestedTokenType)
}

// quoted lists the names whose values are not empty.
func quoted(namesAndValues ...string) string {
	var list []string
	for pair := range slices.Chunk(namesAndValues, 2) {
		if pair[1] != "" {
			list = append(list, fmt.Sprintf("%s %.200q", pair[0], pair[1]))
		}
	}
	return strings.Join(list, " and ")
}

// trustRemedy names the token that the server has to trust, and the values that
// the ServiceAccount asked for.
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

// named lists the annotated parameters. The values of the others are the
// controller's own.
func (r *tokenRequest) named() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(r.provider.AnnotatedParameters)) {
		list = append(list, fmt.Sprintf("%s %.256q", name, r.parameters[name]))
	}
	return list
}

// known lists what a service has to know, with the names of the controller's
// parameters alone.
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
	return g.short()
}

func (g Grant) short() string {
	if g == GrantTokenExchange {
		return "token exchange"
	}
	return "the grant " + string(g)
}

// isTransient recognizes failures that pass by themselves although their status
// suggests a refusal.
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

// clean redacts and bounds the server's text. It drops the whole text if a
// secret is too short to be redacted.
func (r *tokenRequest) clean(text string) string {
	text = redact.Text(text, r.secrets...)
	if slices.ContainsFunc(r.secrets, func(secret string) bool { return strings.Contains(text, secret) }) {
		return ""
	}
	return text
}
