package exchange

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// maxLifetime is how long a token counts as valid at most. One that lives longer is exchanged again sooner.
const maxLifetime = 24 * time.Hour

// read makes a Token of the answer (RFC 8693, section 2.2.1), or explains why there is none. It returns the interface, so
// that no typed nil gets into it.
func (r *tokenRequest) read(answer transport.Answer) (auth.Token, error) {
	a, err := oauth.ParseAnswer(answer.Body)
	if err != nil {
		return nil, r.notJSON(answer)
	}
	if a.Failed || answer.Status != http.StatusOK {
		return nil, r.refusal(answer, a)
	}
	token, problem := r.token(&a)
	if problem != nil {
		problem.Operation = opExchange
		return nil, problem
	}
	return token, nil
}

func (r *tokenRequest) token(a *oauth.Answer) (_ *Token, err *auth.Error) {
	switch err := oauth.CheckToken(a.AccessToken); {
	case a.AccessToken == "":
		return nil, unusable("access_token is missing")
	case err != nil:
		return nil, unusable(err.Error())
	case slices.Contains(r.secrets, a.AccessToken):
		return nil, unusable("access_token is what was sent to it")
	}
	t := &Token{value: redact.New(a.AccessToken), bearer: strings.EqualFold(a.TokenType, "Bearer"), issuedType: a.IssuedTokenType}
	if err := r.checkTypes(a); err != nil {
		return nil, err
	}
	if t.scope, err = r.scope(a); err != nil {
		return nil, err
	}
	if t.expiresAt, err = r.expiry(a, time.Now()); err != nil {
		return nil, err
	}
	return t, nil
}

func unusable(problem string) *auth.Error {
	return self.Unavailable("", "check that the token endpoint is one for token exchange (RFC 8693)",
		"the answer of the server cannot be used: %s", problem)
}

// checkTypes accepts bearer tokens and those that are no access tokens (N_A). Others demand a proof that is not implemented.
func (r *tokenRequest) checkTypes(a *oauth.Answer) *auth.Error {
	issued, want := a.IssuedTokenType, r.RequestedTokenType
	switch {
	case a.TokenType == "":
		return unusable("token_type is missing")
	case !strings.EqualFold(a.TokenType, "Bearer") && !strings.EqualFold(a.TokenType, "N_A"):
		return self.Misconfigured("have the server issue bearer tokens to this client",
			"the server issued a token of type %.100q, which cannot be used", a.TokenType)
	case issued == oauth.TokenTypeRefreshToken:
		return self.Misconfigured("set Provider.RequestedTokenType to TokenTypeAccessToken",
			"the server issued a refresh token, which outlives the ServiceAccount")
	case len(issued) > maxTokenType || issued != "" && !oauth.AbsoluteURI(issued):
		return unusable("issued_token_type is not a URI")
	case issued != "" && want != "" && issued != want:
		return self.Misconfigured("allow that type to this client at the server, or change Provider.RequestedTokenType",
			"the server issued a token of type %.200q instead of %.200q", issued, want)
	}
	return nil
}

const maxTokenType = 256

// scope returns what was granted: what was asked for, if the answer does not say (RFC 6749, section 5.1).
func (r *tokenRequest) scope(a *oauth.Answer) (string, *auth.Error) {
	if a.Scope == nil {
		return r.Scope, nil
	}
	scopes := strings.Fields(*a.Scope)
	for _, want := range r.opts.Scopes {
		if !slices.Contains(scopes, want) {
			return "", self.Denied("allow the scope to this ServiceAccount and client at the server, or do not ask for it",
				"the server did not grant the scope %.100q", want)
		}
	}
	return strings.Join(scopes, " "), nil
}

// expiry counts from the time at which the request was sent. Where the token says itself that it ends before, that holds.
func (r *tokenRequest) expiry(a *oauth.Answer, now time.Time) (time.Time, *auth.Error) {
	if a.ExpiresIn < 0 {
		return time.Time{}, unusable("expires_in is not a number of seconds above zero")
	}
	claims, err := jwt.Parse(a.AccessToken)
	own := err == nil && !claims.Expiry.IsZero()
	lifetime := maxLifetime
	switch {
	case a.ExpiresIn > 0:
		lifetime = time.Duration(min(a.ExpiresIn, maxLifetime.Seconds()) * float64(time.Second))
	case !own && r.provider.AssumedLifetime == 0:
		return time.Time{}, self.Unavailable("", "have the server send expires_in, or set Provider.AssumedLifetime",
			"the answer of the server does not tell when the token expires")
	case !own:
		lifetime = r.provider.AssumedLifetime
	}
	end := r.sentAt.Add(lifetime)
	if own && claims.Expiry.Before(end) {
		end = claims.Expiry.Time
	}
	if !end.After(now) {
		return time.Time{}, unusable("the token has expired already")
	}
	return end, nil
}
