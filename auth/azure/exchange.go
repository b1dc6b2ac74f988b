package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "exchange the ServiceAccount token at Microsoft Entra ID"

// NewTokenForServiceAccount exchanges the ServiceAccount's token for an access token of its application or managed identity:
// the client credentials grant of RFC 6749, section 4.4, with the token as client assertion (RFC 7523, section 2.2).
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *auth.Options) (auth.Token, error) {
	tenant, clientID, err := p.identity(sa, opts)
	if err != nil {
		return nil, err
	}
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	scopes, err := e.scopes(opts)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type":            {"client_credentials"},
		"client_id":             {clientID},
		"client_assertion_type": {oauth.AssertionType},
		"client_assertion":      {oidcToken},
		"scope":                 {strings.Join(scopes, " ")},
	}
	if claims := claimsOf(opts); claims != "" {
		form.Set("claims", claims)
	}
	client, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	asked := time.Now() // what the answer says is valid for counts from then on, to be safe
	endpoint := "https://" + authority + "/" + tenant + "/oauth2/v2.0/token"
	answer, err := transport.Send(ctx, client, func() (*http.Request, error) { return oauth.NewRequest(ctx, endpoint, form) }, worthAnotherTry)
	if err != nil {
		return nil, unanswered(err, opExchange, oidcToken)
	}
	if answer.Status != http.StatusOK {
		return nil, exchangeError(answer, tenant, clientID, sa, oidcToken, opts)
	}
	token, err := readToken(answer.Body, asked)
	if err != nil {
		return nil, err
	}
	token.tenant = tenant
	return token, nil
}

// scopes returns those of the call, or the cloud's own.
func (e *environment) scopes(opts *auth.Options) ([]string, error) {
	if len(opts.Scopes) > 0 {
		return opts.Scopes, nil
	}
	if len(e.defaultScopes) == 0 {
		return nil, self.Misconfigured("pass WithScopes, or describe the cloud in Provider.PrivateClouds",
			"%s has no default scope, because the address of its Azure Resource Manager is not known", e.name)
	}
	return e.defaultScopes, nil
}

// maxLife is what no access token of Microsoft Entra ID lives longer than: those with continuous access evaluation have 28
// hours.
const maxLife = 48 * time.Hour

// readToken takes over what the token endpoint answered (RFC 6749, section 5.1), if it is whole.
func readToken(body []byte, now time.Time) (*Token, error) {
	incomplete := func(what string) (*Token, error) {
		return nil, &auth.Error{Provider: ProviderName, Operation: opExchange, Reason: auth.ErrUnavailable,
			Message: "the answer of the token endpoint cannot be used: " + what,
			Remedy:  "check that the authority host is that of Microsoft Entra ID"}
	}
	var answer struct {
		TokenType   string  `json:"token_type"`
		AccessToken string  `json:"access_token"`
		ExpiresIn   seconds `json:"expires_in"`
		RefreshIn   seconds `json:"refresh_in"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return incomplete("it is not the JSON object that was expected")
	}
	life := answer.ExpiresIn.duration()
	switch {
	case !strings.EqualFold(answer.TokenType, "Bearer"):
		return incomplete(fmt.Sprintf("token_type is not Bearer but %.100q", redact.Text(answer.TokenType, answer.AccessToken)))
	case answer.AccessToken == "":
		return incomplete("access_token is missing")
	case oauth.CheckToken(answer.AccessToken) != nil:
		return incomplete("access_token holds characters that no token has")
	case life <= 0:
		return incomplete("expires_in is missing or not positive")
	case life > maxLife:
		return incomplete(fmt.Sprintf("expires_in, %s, is further away than any token lives", life))
	}
	t := &Token{accessToken: redact.New(answer.AccessToken), expiresAt: now.Add(life)}
	if refresh := answer.RefreshIn.duration(); refresh > 0 && refresh < life {
		t.refreshAt = now.Add(refresh)
	}
	return t, nil
}

// seconds is a number that some token services write as a string.
type seconds float64

// UnmarshalJSON takes what is no number for zero.
func (s *seconds) UnmarshalJSON(data []byte) error {
	var n float64
	if json.Unmarshal([]byte(strings.Trim(string(data), `"`)), &n) == nil {
		*s = seconds(n)
	}
	return nil
}

func (s seconds) duration() time.Duration {
	const most = 1e9 // more is as wrong as this
	return time.Duration(min(max(float64(s), -most), most)) * time.Second
}
