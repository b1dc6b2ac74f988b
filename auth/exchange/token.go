package exchange

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	// maxLifetime bounds the time for which a token counts as valid. A
	// longer-lived token is exchanged again sooner.
	maxLifetime  = 24 * time.Hour
	maxTokenType = 256
	maxScope     = 8 << 10 // bytes, which the cache keeps
)

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// Token is a token that the authorization server issued. It is immutable and
// prints as a redacted summary.
type Token struct {
	summary
	value      redact.Secret
	bearer     bool
	issuedType string
	scope      string // as granted, separated by blanks
	expiresAt  time.Time

	registryUser string
}

// Reveal returns the token itself.
func (t *Token) Reveal() string { return t.value.Reveal() }

// Type returns how the token is used: "Bearer", or "N_A" for a token that is
// not an access token (RFC 8693, section 2.2.1).
func (t *Token) Type() string {
	if t.bearer {
		return "Bearer"
	}
	return "N_A"
}

// IssuedTokenType returns the URN of the kind of token, such as
// [TokenTypeAccessToken]. It is "" if the server did not state it.
func (t *Token) IssuedTokenType() string { return t.issuedType }

// Scopes returns the granted scopes in the server's order. If the server states
// none, it returns the requested ones.
func (t *Token) Scopes() []string { return strings.Fields(t.scope) }

// ExpiresAt returns the earlier of the time at which the token expires and 24
// hours after it was issued.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// OAuth2Token returns the token in the type of golang.org/x/oauth2, which does
// not redact itself. It fails with [auth.ErrMisconfigured] for a token that is
// not an access token.
func (t *Token) OAuth2Token() (*oauth2.Token, error) {
	if !t.bearer {
		return nil, self.Misconfigured("request an access token, or use the token as it is",
			"the server issued a token of type N_A (%.100q), which is no access token", t.issuedType).About(optionTokenType)
	}
	return &oauth2.Token{AccessToken: t.value.Reveal(), TokenType: "Bearer", Expiry: t.expiresAt}, nil
}

// FromToken returns the Token that [auth.GetAccessToken] returned for a
// provider of this package.
func FromToken(t auth.Token) (*Token, error) {
	return provider.As[Token](ProviderName, t)
}

// read makes a Token of the answer (RFC 8693, section 2.2.1), or explains why
// there is none.
func (r *tokenRequest) read(answer transport.Answer) (auth.Token, error) {
	o, err := r.object(answer)
	if err != nil {
		return nil, r.notJSON(answer)
	}
	a, problem := r.provider.form().answer(r.provider, o)
	if problem != nil && answer.Status == http.StatusOK {
		problem.Operation, problem.RequestID = opExchange, r.requestID(answer)
		return nil, problem
	}
	if a.Failed || answer.Status != http.StatusOK {
		return nil, r.refusal(answer, a)
	}
	token, problem := r.newToken(&a)
	if problem != nil {
		problem.Operation = opExchange
		return nil, problem
	}
	return token, nil
}

func (r *tokenRequest) newToken(a *oauth.Answer) (_ *Token, problem *auth.Error) {
	switch err := oauth.CheckToken(a.AccessToken); {
	case a.AccessToken == "":
		return nil, unusable("access_token is missing")
	case err != nil:
		return nil, unusable(err.Error())
	case slices.Contains(r.secrets, a.AccessToken):
		return nil, unusable("access_token is what was sent to it")
	}
	t := &Token{value: redact.New(a.AccessToken), bearer: strings.EqualFold(a.TokenType, "Bearer"),
		issuedType: a.IssuedTokenType}
	if s, ok := r.provider.service.(registry); ok {
		t.registryUser = s.user(r.parameters)
	}
	if problem = r.checkTypes(a); problem != nil {
		return nil, problem
	}
	if t.scope, problem = r.scope(a); problem != nil {
		return nil, problem
	}
	if t.expiresAt, problem = r.expiry(a, time.Now()); problem != nil {
		return nil, problem
	}
	t.summary = summary(fmt.Sprintf("OAuth 2.0 token of type %s, redacted, expires %s", t.Type(),
		t.expiresAt.UTC().Format(time.RFC3339)))
	return t, nil
}

func unusable(problem string) *auth.Error {
	return self.Unavailable("", "check that the token endpoint is one for token exchange (RFC 8693)",
		"the answer of the server cannot be used: %s", problem)
}

// checkTypes accepts bearer tokens, and N_A for tokens that are not access
// tokens. Other types require a proof of possession.
func (r *tokenRequest) checkTypes(a *oauth.Answer) *auth.Error {
	issued, want := a.IssuedTokenType, r.RequestedTokenType
	switch {
	case a.TokenType == "":
		return unusable("token_type is missing")
	case !strings.EqualFold(a.TokenType, "Bearer") && !strings.EqualFold(a.TokenType, "N_A"):
		return self.Misconfigured("have the server issue bearer tokens to this client",
			"the server issued a token of type %.100q, which cannot be used", r.clean(a.TokenType))
	case issued == oauth.TokenTypeRefreshToken:
		return self.Misconfigured("request an access token, "+oauth.TokenTypeAccessToken,
			"the server issued a refresh token, which outlives the ServiceAccount").About(optionTokenType)
	case len(issued) > maxTokenType || issued != "" && !oauth.AbsoluteURI(issued):
		return unusable("issued_token_type is not a URI")
	case issued != "" && want != "" && issued != want:
		return self.Misconfigured("allow that type to this client at the server, or request another",
			"the server issued a token of type %.200q instead of %.200q", r.clean(issued), want).About(optionTokenType)
	}
	return nil
}

// scope returns the granted scopes. An answer without a scope grants the
// requested ones (RFC 6749, section 5.1).
func (r *tokenRequest) scope(a *oauth.Answer) (string, *auth.Error) {
	if a.Scope == nil {
		return r.Scope, nil
	}
	if len(*a.Scope) > maxScope {
		return "", unusable(fmt.Sprintf("scope is larger than %d bytes", maxScope))
	}
	scopes := strings.Fields(*a.Scope)
	for _, want := range r.provider.scopes(r.opts) {
		if !slices.Contains(scopes, want) {
			return "", self.Denied("allow the scope to this ServiceAccount and client at the server, or do not request it",
				"the server did not grant the scope %.100q", want)
		}
	}
	return strings.Join(scopes, " "), nil
}

// expiry counts from the time at which the request was sent. An earlier expiry
// in the token itself wins.
func (r *tokenRequest) expiry(a *oauth.Answer, now time.Time) (time.Time, *auth.Error) {
	claims, err := jwt.Parse(a.AccessToken)
	own := err == nil && !claims.Expiry.IsZero()
	lifetime := maxLifetime
	switch {
	case a.ExpiresIn < 0:
		return time.Time{}, unusable("expires_in is not a number of seconds above zero")
	case a.ExpiresIn > 0:
		lifetime = time.Duration(min(a.ExpiresIn, maxLifetime.Seconds()) * float64(time.Second))
	case !own && r.provider.AssumedLifetime == 0:
		return time.Time{}, self.Unavailable("", "have the server send expires_in, or set a lifetime to assume",
			"the answer of the server does not tell when the token expires").About(optionAssumedLifetime)
	case !own:
		lifetime = r.provider.AssumedLifetime
	}
	expiry := r.sentAt.Add(lifetime)
	if own && claims.Expiry.Before(expiry) {
		expiry = claims.Expiry.Time
	}
	if !expiry.After(now) {
		return time.Time{}, unusable("the token has expired already")
	}
	return expiry, nil
}
