package azure

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "exchange the ServiceAccount token at Microsoft Entra ID"

// NewTokenForServiceAccount exchanges the ServiceAccount's token for an access
// token of its application or managed identity: the client credentials grant of
// RFC 6749, section 4.4, with the token as client assertion (RFC 7523, section
// 2.2).
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	tenant, clientID, _ := strings.Cut(opts.Identity, "/") // as GetIdentity joined them
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
	endpoint := "https://" + authority + "/" + tenant + "/oauth2/v2.0/token"
	return retryStale(ctx, func() (auth.Token, error) {
		asked := time.Now() // the lifetime in the answer counts from then, to be safe
		answer, err := p.askEntra(ctx, endpoint, form, opts)
		switch {
		case err != nil:
			return nil, self.Unanswered(opExchange, err, oidcToken)
		case answer.Status != http.StatusOK && p.learn().proxy != nil:
			return nil, bindingError(answer, tenant, clientID, sa, oidcToken)
		case answer.Status != http.StatusOK:
			audiences := opts.Audiences
			if len(audiences) == 0 {
				audiences = e.audiences[:]
			}
			return nil, exchangeError(answer, tenant, clientID, audiences, sa, opts, oidcToken)
		}
		return readToken(answer.Body, tenant, asked)
	})
}

// askEntra sends a form to the token endpoint, or to the token proxy.
func (p *Provider) askEntra(ctx context.Context, endpoint string, form url.Values, opts *provider.Options,
) (entraAnswer, error) {
	proxy := p.learn().proxy
	var last entraAnswer
	answer, err := transport.Send(ctx, proxy.clientOr(p.clients.ForTokens(opts)), func() (*http.Request, error) {
		req, err := oauth.NewRequest(ctx, endpoint, form)
		return proxy.reroute(req), err
	}, func(answer transport.Answer) bool {
		last = parseEntra(answer)
		return last.isTransient()
	})
	if last.Status != answer.Status { // Send retries some statuses whatever the answer holds
		last = parseEntra(answer)
	}
	return last, err
}

// TokenServiceURL returns the address of the authority for an exchange with
// these options. With IdentityBindings it returns the token proxy's. It uses no
// network.
func (p *Provider) TokenServiceURL(opts *provider.Options) (string, error) {
	_, host, err := p.environmentOf(opts)
	if err != nil {
		return "", err
	}
	if proxy := p.learn().proxy; proxy != nil {
		return proxy.target.String(), nil
	}
	return "https://" + host, nil
}

// scopes returns the scopes of the call, else the cloud's.
func (e *environment) scopes(opts *provider.Options) ([]string, error) {
	if len(opts.Scopes) > 0 {
		return opts.Scopes, nil
	}
	if len(e.defaultScopes) == 0 {
		return nil, self.Misconfigured("set the scopes, or describe the private cloud",
			"%s has no default scope, because the address of its Azure Resource Manager is not known", e.name).
			About("auth.WithScopes", "azure.Provider.PrivateClouds")
	}
	return e.defaultScopes, nil
}

// maxLife bounds the lifetime of access tokens. With continuous access
// evaluation it is 28 hours.
const maxLife = 48 * time.Hour

// readToken refuses an answer of the token endpoint (RFC 6749, section 5.1)
// that cannot be used.
func readToken(body []byte, tenant string, now time.Time) (auth.Token, error) {
	unusable := func(format string, args ...any) (auth.Token, error) {
		return nil, self.Unusable(opExchange, "Microsoft Entra ID", format, args...)
	}
	answer, err := exactjson.ParseObject(body)
	if err != nil {
		return unusable("%v", err)
	}
	secret, kind := answer.Text("access_token"), answer.Text("token_type")
	life, refresh := duration(answer.Seconds("expires_in")), duration(answer.Seconds("refresh_in"))
	switch {
	case !strings.EqualFold(kind, "Bearer"):
		return unusable("token_type is not Bearer but %.100q", provider.Redact(kind, secret))
	case oauth.CheckToken(secret) != nil:
		return unusable("access_token is missing or malformed")
	case life <= 0 || life > maxLife:
		return unusable("expires_in is missing or out of range")
	}
	refreshAt := time.Time{}
	if refresh > 0 && refresh < life {
		refreshAt = now.Add(refresh)
	}
	return newToken(secret, now.Add(life), refreshAt, tenant), nil
}

func duration(seconds float64) time.Duration {
	const most = 1e9 // a Duration can hold it
	return time.Duration(min(seconds, most)) * time.Second
}
