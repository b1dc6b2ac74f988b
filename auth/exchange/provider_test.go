package exchange_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	api   = "https://api.example/v1"
	store = "https://store.example/"
)

// environment is a cluster with two tenants, and an authorization server that
// lets the first have what it wants.
type environment struct {
	*testenv.Environment
	oauth *cloudtest.OAuth
}

func subject(namespace string) string { return testenv.Subject(namespace, "app") }

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	w := &environment{Environment: testenv.New(t, testenv.ServiceAccount("tenant-a", "app"),
		testenv.ServiceAccount("tenant-b", "app"), testenv.ServiceAccount("controller", "app"))}
	w.oauth = w.Cloud.OAuth()
	w.oauth.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient(), w.oauth.TokenEndpoint(), w.oauth.URL(), "our-audience")
	w.oauth.AddGrant(cloudtest.OAuthGrant{Issuer: w.Issuer.URL(),
		Subjects:  []string{subject("tenant-a"), subject("controller")},
		Audiences: []string{"api", "store"}, Resources: []string{api, store}, Scopes: []string{"read", "write"}})
	return w
}

func (w *environment) provider() *exchange.Provider {
	return &exchange.Provider{Endpoint: w.oauth.TokenEndpoint()}
}

func (w *environment) options(namespace string, more ...auth.Option) []auth.Option {
	return w.Options(namespace, "app", more...)
}

func (w *environment) get(t testing.TB, p *exchange.Provider, more ...auth.Option) (*exchange.Token, error) {
	t.Helper()
	return w.getFor(t.Context(), p, "tenant-a", more...)
}

func (w *environment) getFor(ctx context.Context, p *exchange.Provider, namespace string,
	more ...auth.Option) (*exchange.Token, error) {
	token, err := auth.GetAccessToken(ctx, p, w.options(namespace, more...)...)
	if err != nil {
		return nil, err
	}
	return exchange.FromToken(token)
}

// identity returns the identity that the server issued a token for.
func (w *environment) identity(t testing.TB, token *exchange.Token) cloudtest.OAuthIdentity {
	t.Helper()
	id, ok := w.oauth.Identity(token.Reveal())
	if !ok {
		t.Fatalf("the server does not know %v", token)
	}
	return id
}

func TestServiceAccountGetsAToken(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	p.Audience, p.Resource, p.RequestedTokenType = "api", api, exchange.TokenTypeAccessToken
	token, err := w.get(t, p, auth.WithScopes("read", "write"))
	if err != nil {
		t.Fatal(err)
	}
	id := w.identity(t, token)
	if id.Issuer != w.Issuer.URL() || id.Subject != subject("tenant-a") || id.Audience != "api" || id.Resource != api ||
		strings.Join(id.Scopes, " ") != "read write" || id.Actor != "" || id.ClientID != "" {
		t.Errorf("got a token for %+v", id)
	}
	if token.Type() != "Bearer" || token.IssuedTokenType() != exchange.TokenTypeAccessToken ||
		strings.Join(token.Scopes(), " ") != "read write" ||
		token.GetDuration() > time.Hour || token.GetDuration() < 59*time.Minute || time.Until(token.ExpiresAt()) > time.Hour {
		t.Errorf("got %v: %s of type %q for %q", token, token.Type(), token.IssuedTokenType(), token.Scopes())
	}
	want := map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
		"subject_token_type": exchange.TokenTypeJWT,
		"audience":           "api", "resource": api, "scope": "read write",
		"requested_token_type": exchange.TokenTypeAccessToken}
	if calls := w.Cloud.Log(); len(calls) != 1 || calls[0].Host != "oauth.example" ||
		fmt.Sprint(calls[0].Parameters) != fmt.Sprint(want) {
		t.Errorf("asked %+v", calls)
	}
}

// What is not set is not sent: servers refuse empty parameters.
func TestWithoutAnything(t *testing.T) {
	w := newEnvironment(t)
	w.oauth.Configure(cloudtest.OAuthConfig{OpaqueTokens: true, Lifetime: 5 * time.Minute})
	token, err := w.get(t, w.provider())
	if err != nil || len(w.Cloud.Log()[0].Parameters) != 2 || len(token.Scopes()) != 0 ||
		token.GetDuration() > 5*time.Minute {
		t.Errorf("%v with %q, %v", token, w.Cloud.Log()[0].Parameters, err)
	}
}

func TestTokenTypes(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	p.RequestedTokenType, p.SubjectTokenType = exchange.TokenTypeIDToken, exchange.TokenTypeIDToken
	token, err := w.get(t, p)
	if err != nil || token.Type() != "N_A" || token.IssuedTokenType() != exchange.TokenTypeIDToken ||
		w.Cloud.Log()[0].Parameters["subject_token_type"] != exchange.TokenTypeIDToken {
		t.Fatalf("got %v, %v", token, err)
	}
	_, err = token.OAuth2Token()
	testenv.CheckError(t, err, auth.ErrMisconfigured, "N_A", "as it is")
	p = w.provider()
	p.SubjectTokenType = "urn:ietf:params:oauth:token-type:saml2"
	_, err = w.get(t, p)
	testenv.CheckError(t, err, auth.ErrDenied, "subject_token_type")
}

func TestAudienceOfTheKubernetesToken(t *testing.T) {
	w := newEnvironment(t)
	for want, p := range map[string]*exchange.Provider{
		w.oauth.TokenEndpoint(): w.provider(),
		w.oauth.URL():           {IssuerURL: w.oauth.URL()},
		"our-audience":          {Endpoint: w.oauth.TokenEndpoint(), KubernetesAudience: "our-audience"},
	} {
		got, err := p.GetAudiences(t.Context(), &corev1.ServiceAccount{}, &provider.Options{})
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if _, err := w.get(t, p); err != nil {
			t.Error(err)
		}
	}
	_,
		err := w.get(t, &exchange.Provider{Endpoint: w.oauth.TokenEndpoint(),
		KubernetesAudience: "https://kubernetes.default.svc"})
	testenv.CheckError(t, err, auth.ErrDenied, "API server")
}

// Callers choose only the audiences and resources that the provider allows.
func TestTargetsOfACall(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	p.Audience, p.Resource, p.AllowedAudiences, p.AllowedResources = "api", api, []string{"store"}, []string{store}
	for name, tc := range map[string]struct {
		opts               []auth.Option
		audience, resource string
		refused            string
	}{
		"none":               {nil, "api", api, ""},
		"the provider's own": {[]auth.Option{exchange.WithAudience("api"), exchange.WithResource(api)}, "api", api, ""},
		"allowed": {[]auth.Option{exchange.WithAudience("store"), exchange.WithResource(store)}, "store",
			store, ""},
		"the last one counts": {[]auth.Option{exchange.WithAudience("bank"), exchange.WithAudience("store")}, "store",
			api, ""},
		"another audience":     {[]auth.Option{exchange.WithAudience("bank")}, "", "", `"bank"`},
		"an empty audience":    {[]auth.Option{exchange.WithAudience("")}, "", "", "AllowedAudiences"},
		"almost the audience":  {[]auth.Option{exchange.WithAudience("store ")}, "", "", `"store "`},
		"another resource":     {[]auth.Option{exchange.WithResource("https://bank.example/")}, "", "", "AllowedResources"},
		"part of the resource": {[]auth.Option{exchange.WithResource(store + "x")}, "", "", store + "x"},
		"other capitals":       {[]auth.Option{exchange.WithAudience("STORE")}, "", "", "STORE"},
		"both in one":          {[]auth.Option{exchange.WithAudience("store&audience=bank")}, "", "", "AllowedAudiences"},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.Requests()
			token, err := w.get(t, p, tc.opts...)
			if tc.refused != "" {
				testenv.CheckError(t, err, auth.ErrDenied, tc.refused)
				testenv.ExpectNone(t, w.Requests()-before)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if id := w.identity(t, token); id.Audience != tc.audience || id.Resource != tc.resource {
				t.Errorf("got a token for %+v", id)
			}
		})
	}
}

// Everything that shapes a token tells it apart in a cache that is shared.
// TestConformance has the fields of the provider.
func TestCacheKey(t *testing.T) {
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	allow := func() *exchange.Provider {
		p := w.provider()
		p.AllowedAudiences, p.AllowedResources = []string{"api", "store"}, []string{api, store}
		return p
	}
	plain := allow()
	seen := map[string]string{}
	for name, opts := range map[string][]auth.Option{
		"plain":          nil,
		"audience":       {exchange.WithAudience("api")},
		"other audience": {exchange.WithAudience("store")},
		"resource":       {exchange.WithResource(api)},
		"scope":          {auth.WithScopes("read")},
	} {
		token, err := w.get(t, plain, append(opts, testenv.WithCache(tokens, "tenant-a"))...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, ok := seen[token.Reveal()]; ok {
			t.Errorf("%s got the token of %s", name, other)
		}
		seen[token.Reveal()] = name
	}
	same, err := w.get(t, allow(), testenv.WithCache(tokens, "tenant-a"))
	if err != nil || seen[same.Reveal()] != "plain" {
		t.Errorf("providers that are alike do not share: %v", err)
	}
}

func TestNames(t *testing.T) {
	if got := (&exchange.Provider{}).GetName(); got != exchange.ProviderName {
		t.Errorf("got %q", got)
	}
	w := newEnvironment(t)
	p := w.provider()
	p.Name = "login"
	if _, err := auth.NewProviderSet(p, &exchange.Provider{}); err != nil {
		t.Error(err)
	}
	_, err := w.getFor(t.Context(), p, "tenant-b")
	testenv.CheckError(t, err, auth.ErrDenied, "login: ServiceAccount")
}

func TestConformance(t *testing.T) {
	w := newEnvironment(t)
	t.Run("issuer", func(t *testing.T) {
		w.runConformance(t, func(*testing.T) auth.Provider {
			return &exchange.Provider{IssuerURL: w.oauth.URL(), Audience: "api"}
		})
	})
	t.Run("endpoint", func(t *testing.T) {
		w.runConformance(t, func(*testing.T) auth.Provider { return w.provider() })
	})
	t.Run("jwt-bearer", func(t *testing.T) {
		w.runConformance(t, func(*testing.T) auth.Provider {
			return &exchange.Provider{Endpoint: w.oauth.TokenEndpoint(), Grant: exchange.GrantJWTBearer}
		}, rfc8693...)
	})
	t.Run("keycloak", func(t *testing.T) {
		w.runConformance(t, func(*testing.T) auth.Provider {
			return exchange.NewKeycloak(w.oauth.URL())
		}, append(rfc8693, "Client")...)
	})
}

// rfc8693 are fields that other grants refuse.
var rfc8693 = []string{"RequestedTokenType", "SubjectTokenType", "ActorTokenType", "ActorToken"}

func (w *environment) runConformance(t *testing.T, newProvider func(*testing.T) auth.Provider, refused ...string) {
	fields := w.fields(t)
	for _, field := range refused {
		fields[field] = nil
	}
	if p, ok := newProvider(t).(*exchange.Provider); ok && p.Grant == exchange.GrantJWTBearer {
		fields["Grant"] = exchange.GrantTokenExchange
	}
	authtest.RunConformance(t, authtest.Harness{
		New:       newProvider,
		Options:   []auth.Option{auth.WithScopes("read"), auth.WithHTTPClient(w.Cloud.Client())},
		Fields:    fields,
		NoRegions: true,
		Client:    w.Client,
		Good:      client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Other:     client.ObjectKey{Namespace: "controller", Name: "app"},
		Refused:   client.ObjectKey{Namespace: "tenant-b", Name: "app"},
		Break:     w.Break,
		Calls:     func() int { return w.Cloud.Calls("", "") },
		Secrets: func(t *testing.T, token auth.Token) []string {
			own, err := exchange.FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return append(strings.Split(own.Reveal(), "."), own.Reveal())
		},
	})
}

// fields are other values of a Provider's fields.
func (w *environment) fields(t *testing.T) map[string]any {
	return map[string]any{"Name": "other", "Audience": "other", "Resource": "https://other.example",
		"KubernetesAudience": "other",
		"RequestedTokenType": exchange.TokenTypeJWT, "AssumedLifetime": time.Minute,
		"SubjectTokenType": exchange.TokenTypeIDToken,
		"ActorTokenType":   exchange.TokenTypeIDToken,
		"ActorToken":       auth.NewFileTokenSource(w.writeToken(t, w.oauth.TokenEndpoint())),
		"Client": exchange.ServiceAccountAssertion("other",
			auth.NewFileTokenSource(w.writeToken(t, w.oauth.TokenEndpoint()))),
		// These exclude each other, limit a choice, or need a client or no
		// ServiceAccount.
		"Endpoint": nil, "IssuerURL": nil, "AllowedEndpointHosts": nil, "AllowedAudiences": nil, "AllowedResources": nil,
		"ClientAudience": nil,
		"TokenFile":      nil,
		"Parameters":     map[string]string{"pool": "other"}, "Headers": map[string]string{"X-Other": "1"},
		"AssumeBearer": true,
		"Grant":        exchange.GrantJWTBearer, "DefaultScopes": []string{"other"},
		"JSONBody": true, "AnnotatedParameters": nil} // TestConformanceOfServices has it
}
