package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// Grant is the grant_type of OAuth 2.0. It decides how the provider presents
// the tenant's token to the server.
type Grant string

const (
	// GrantTokenExchange presents it as subject token (RFC 8693). It is the
	// default.
	GrantTokenExchange Grant = ""
	// GrantJWTBearer presents it as assertion (RFC 7523, section 2.1).
	GrantJWTBearer Grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	// GrantClientCredentials presents it as assertion of the client (RFC 7523,
	// section 2.2): the tenant is the client. ServiceAccountAssertion is the
	// controller's own.
	GrantClientCredentials Grant = "client_credentials"
)

// oauthForm is the form of OAuth 2.0, which each grant fills in.
type oauthForm struct {
	name string
	// ownAudience reports that the service publishes no audience for Kubernetes
	// tokens, so KubernetesAudience is required.
	ownAudience bool
}

func (f oauthForm) title() string                      { return f.name }
func (oauthForm) checkOptions(*provider.Options) error { return nil }
func (oauthForm) parameters() []string                 { return nil }
func (oauthForm) ignoresCase(string) bool              { return false }
func (oauthForm) headers() map[string]string           { return nil }
func (oauthForm) reason(int) (provider.Reason, string) { return "", "" }

func (f oauthForm) check(p *Provider) error {
	if !f.ownAudience || p.KubernetesAudience != "" {
		return nil
	}
	return self.Misconfigured("name the one that its configuration has",
		"%s publishes no audience for Kubernetes tokens", f.name).
		About("exchange.Provider.KubernetesAudience")
}

func (oauthForm) sends(grant Grant) fields {
	switch grant {
	case GrantJWTBearer:
		return allFields &^ fieldsOfExchange
	case GrantClientCredentials: // the tenant is the client
		return allFields &^ (fieldsOfExchange | fieldsOfClient)
	default:
		return allFields
	}
}

func (oauthForm) audiences(c *config, _ *corev1.ServiceAccount) ([]string, error) {
	return c.audiences[:], nil
}

func (oauthForm) send(ctx context.Context, client *http.Client, r *tokenRequest) (transport.Answer, error) {
	return transport.Send(ctx, client, func() (*http.Request, error) { return r.make(ctx) }, r.isTransient)
}

// answer reads an answer. An error may be an object with the members type and
// message, as several services send.
func (f oauthForm) answer(p *Provider, o exactjson.Object) (a oauth.Answer, problem *auth.Error) {
	a = oauth.ReadAnswer(o)
	if text := o.Text("message"); f.name != "" && a.AccessToken == "" && text != "" {
		a.Failed, a.Description = true, text
	}
	if nested := o.Object("error"); nested != nil {
		a.Code, a.Description = nested.Text("type"), nested.Text("message")
	}
	if a.TokenType == "" && p.AssumeBearer {
		a.TokenType = "Bearer"
	}
	return a, nil
}

func (oauthForm) request(ctx context.Context, r *tokenRequest) (*http.Request, error) {
	r.form, r.authorization = r.fields(), ""
	if c := r.provider.Client; c != nil {
		if err := c.settings().authenticate(ctx, r); err != nil {
			return nil, err
		}
	}
	newRequest := func() (*http.Request, error) { return oauth.NewRequest(ctx, r.endpoint.String(), r.form) }
	if r.provider.JSONBody {
		members := make(map[string]string, len(r.form))
		for name := range r.form {
			members[name] = r.form.Get(name)
		}
		newRequest = func() (*http.Request, error) { return newJSONRequest(ctx, r.endpoint.String(), members) }
	}
	req, err := newRequest()
	if err == nil && r.authorization != "" {
		req.Header.Set("Authorization", r.authorization)
	}
	return req, err
}

// fields returns the form of the grant.
func (r *tokenRequest) fields() url.Values {
	form := url.Values{}
	switch p := r.provider; p.Grant {
	case GrantJWTBearer:
		form.Set("assertion", r.SubjectToken)
	case GrantClientCredentials:
		form.Set("client_assertion_type", oauth.AssertionType)
		form.Set("client_assertion", r.SubjectToken)
	default:
		form = r.Form()
	}
	if r.provider.Grant != GrantTokenExchange {
		for name, value := range map[string]string{"grant_type": string(r.provider.Grant), "audience": r.Audience,
			"resource": r.Resource, "scope": r.Scope} {
			if value != "" {
				form.Set(name, value)
			}
		}
	}
	for name, value := range r.parameters {
		form.Set(name, value)
	}
	return form
}

func newJSONRequest(ctx context.Context, endpoint string, members map[string]string) (*http.Request, error) {
	body, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	return req, nil
}
