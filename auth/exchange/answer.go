package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// maxLifetime is how long a token counts as valid at most. One that lives longer is exchanged again sooner.
const maxLifetime = 24 * time.Hour

// object is a JSON object whose names are compared whole, unlike those of encoding/json.
type object map[string]json.RawMessage

func parseObject(body []byte) (object, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, errors.New("it is not a JSON object") // the error could quote the body
	}
	if o == nil {
		return nil, errors.New("it is null")
	}
	return o, nil
}

// text returns a member that is a string; present is false if it is missing, null or something else.
func (o object) text(name string) (value string, present bool) {
	var s *string
	if json.Unmarshal(o[name], &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// has tells whether there is a member that says something. Some servers send all members that they know.
func (o object) has(name string) bool {
	raw := string(o[name])
	return raw != "" && raw != "null" && raw != `""`
}

// seconds returns a number, which some servers write as a string. What does not fit is infinite.
func (o object) seconds(name string) (seconds float64, present bool, err error) {
	if !o.has(name) {
		return 0, false, nil
	}
	var n json.Number
	if err := json.Unmarshal(o[name], &n); err != nil {
		return 0, true, errors.New("it is not a number")
	}
	seconds, _ = n.Float64() // fails where it does not fit only
	return seconds, true, nil
}

// read makes a Token of the answer (RFC 8693, section 2.2.1), or explains why there is none. It returns the interface, so
// that no typed nil gets into it.
func (r *tokenRequest) read(answer transport.Answer) (auth.Token, error) {
	o, err := parseObject(answer.Body)
	if err != nil {
		return nil, r.notJSON(answer)
	}
	if o.has("error") || answer.Status != http.StatusOK {
		return nil, r.refusal(answer, o)
	}
	token, problem := r.token(o)
	if problem != nil {
		problem.Operation = opExchange
		return nil, problem
	}
	return token, nil
}

func (r *tokenRequest) token(o object) (_ *Token, err *auth.Error) {
	value, _ := o.text("access_token")
	if problem := r.unusable(value); problem != "" {
		return nil, unusable(problem)
	}
	t := &Token{value: redact.New(value)}
	if t.bearer, err = tokenType(o); err != nil {
		return nil, err
	}
	if t.issuedType, err = r.issuedType(o); err != nil {
		return nil, err
	}
	if t.scope, err = r.scope(o); err != nil {
		return nil, err
	}
	if t.expiresAt, err = r.expiry(o, value, time.Now()); err != nil {
		return nil, err
	}
	return t, nil
}

// unusable says what is wrong with an access token. The characters are those of RFC 6749, appendix A.12, without the blank,
// which would take another turn in an Authorization header.
func (r *tokenRequest) unusable(value string) string {
	switch {
	case value == "":
		return "access_token is missing"
	case len(value) > jwt.MaxSize:
		return fmt.Sprintf("access_token is larger than %d bytes", jwt.MaxSize)
	case strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "access_token holds characters that have no place in it"
	case slices.Contains(r.secrets, value):
		return "access_token is what was sent to it"
	}
	return ""
}

func unusable(problem string) *auth.Error {
	return &auth.Error{Reason: auth.ErrUnavailable,
		Message: "the answer of the server cannot be used: " + problem,
		Remedy:  "check that the token endpoint is one for token exchange (RFC 8693)"}
}

// tokenType knows bearer tokens and those that are no access tokens. Others demand a proof that is not implemented.
func tokenType(o object) (bearer bool, err *auth.Error) {
	kind, _ := o.text("token_type")
	switch {
	case strings.EqualFold(kind, "Bearer"):
		return true, nil
	case strings.EqualFold(kind, "N_A"):
		return false, nil
	case kind == "":
		return false, unusable("token_type is missing")
	}
	return false, self.Misconfigured("have the server issue bearer tokens to this client",
		"the server issued a token of type %.100q, which cannot be used", kind)
}

func (r *tokenRequest) issuedType(o object) (string, *auth.Error) {
	issued, _ := o.text("issued_token_type")
	want := r.provider.RequestedTokenType
	switch {
	case issued == tokenTypeRefreshToken:
		return "", self.Misconfigured("set Provider.RequestedTokenType to TokenTypeAccessToken",
			"the server issued a refresh token, which outlives the ServiceAccount")
	case len(issued) > maxTokenType || issued != "" && !absoluteURI(issued):
		return "", unusable("issued_token_type is not a URI")
	case issued != "" && want != "" && issued != want:
		return "", self.Misconfigured("allow that type to this client at the server, or change Provider.RequestedTokenType",
			"the server issued a token of type %.200q instead of %.200q", issued, want)
	}
	return issued, nil
}

const maxTokenType = 256

// scope returns what was granted: what was asked for, if the answer does not say (RFC 6749, section 5.1).
func (r *tokenRequest) scope(o object) (string, *auth.Error) {
	granted, present := o.text("scope")
	if !present {
		return strings.Join(r.opts.Scopes, " "), nil
	}
	scopes := strings.Fields(granted)
	for _, want := range r.opts.Scopes {
		if !slices.Contains(scopes, want) {
			return "", self.Denied("allow the scope to this ServiceAccount and client at the server, or do not ask for it",
				"the server did not grant the scope %.100q", want)
		}
	}
	return strings.Join(scopes, " "), nil
}

// expiry counts from the time at which the request was sent. Where the token says itself that it ends before, that holds.
func (r *tokenRequest) expiry(o object, value string, now time.Time) (time.Time, *auth.Error) {
	seconds, told, err := o.seconds("expires_in")
	if err != nil || told && seconds <= 0 {
		return time.Time{}, unusable("expires_in is not a number of seconds above zero")
	}
	end := r.sentAt.Add(maxLifetime)
	if told && seconds < maxLifetime.Seconds() {
		end = r.sentAt.Add(time.Duration(seconds * float64(time.Second)))
	}
	claims, err := jwt.Parse(value)
	own := err == nil && !claims.Expiry.IsZero()
	if own && claims.Expiry.Before(end) {
		end = claims.Expiry.Time
	}
	if !told && !own {
		if r.provider.AssumedLifetime == 0 {
			return time.Time{}, &auth.Error{Reason: auth.ErrUnavailable,
				Message: "the answer of the server does not tell when the token expires",
				Remedy:  "have the server send expires_in, or set Provider.AssumedLifetime"}
		}
		end = r.sentAt.Add(r.provider.AssumedLifetime)
	}
	if !end.After(now) {
		return time.Time{}, unusable("the token has expired already")
	}
	return end, nil
}
