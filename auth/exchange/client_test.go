package exchange_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// secret needs form-encoding, in the header and in the body.
const secret = "p:ä%+ &=secret"

func secretOf(s string) exchange.SecretFunc {
	return func(context.Context) (string, error) { return s, nil }
}

// writeToken mounts a token of the controller's own ServiceAccount.
func (w *environment) writeToken(t *testing.T, audience string) (file string) {
	t.Helper()
	return w.TokenFile(t, "controller", "app", audience)
}

func TestClientAuthentication(t *testing.T) {
	w := newEnvironment(t)
	w.oauth.Configure(cloudtest.OAuthConfig{RequireClient: true})
	clients := map[string]exchange.ClientAuthentication{
		"none": exchange.PublicClient("none"),
		// The colon would end the ID if it were not encoded.
		"client:basic": exchange.ClientSecretBasic("client:basic", secretOf(secret)),
		"assertion": exchange.ServiceAccountAssertion("assertion",
			auth.NewFileTokenSource(w.writeToken(t, w.oauth.TokenEndpoint()))),
	}
	w.oauth.SetClient(cloudtest.OAuthClient{ID: "none", Method: "none"})
	w.oauth.SetClient(cloudtest.OAuthClient{ID: "client:basic", Method: "client_secret_basic", Secret: secret})
	w.oauth.SetClient(cloudtest.OAuthClient{ID: "assertion", Method: "client_assertion", Issuer: w.Issuer.URL(),
		Subject: subject("controller")})
	for id, c := range clients {
		t.Run(id, func(t *testing.T) {
			p := w.provider()
			p.Client = c
			for range 2 {
				token, err := w.get(t, p)
				if err != nil {
					t.Fatal(err)
				}
				if got := w.identity(t, token).ClientID; got != id {
					t.Errorf("got a token for client %q", got)
				}
			}
			w.oauth.SetClient(cloudtest.OAuthClient{ID: id, Method: "client_secret_basic", Secret: "changed"})
			_, err := w.get(t, p)
			testenv.CheckError(t, err, auth.ErrMisconfigured, "invalid_client", "HTTP 401", "Provider.Client")
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret shows: %v", err)
			}
		})
	}
	_, err := w.get(t, w.provider())
	testenv.CheckError(t, err, auth.ErrMisconfigured, "invalid_client")
}

// The server finds the client by the ServiceAccount alone.
func TestServiceAccountAsClientWithoutAnID(t *testing.T) {
	w := newEnvironment(t)
	w.oauth.SetClient(cloudtest.OAuthClient{ID: "controller", Method: "client_assertion", Issuer: w.Issuer.URL(),
		Subject: subject("controller")})
	p := w.provider()
	p.ClientAudience = "our-audience"
	p.Client = exchange.ServiceAccountAssertion("", auth.NewFileTokenSource(w.writeToken(t, "our-audience")))
	token, err := w.get(t, p)
	if err != nil || w.identity(t, token).ClientID != "controller" {
		t.Errorf("got %v, %v", token, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A replaced secret is used from the next exchange on.
func TestSecretsAreReadAgain(t *testing.T) {
	w := newEnvironment(t)
	current := "first-secret"
	p := w.provider()
	p.Client = exchange.ClientSecretBasic("c", func(context.Context) (string, error) { return current, nil })
	for _, current = range []string{"first-secret", "second-secret"} {
		w.oauth.SetClient(cloudtest.OAuthClient{ID: "c", Method: "client_secret_basic", Secret: current})
		if _, err := w.get(t, p); err != nil {
			t.Error(err)
		}
	}
}

func TestClientsThatCannotWork(t *testing.T) {
	w := newEnvironment(t)
	broken := errors.New("vault is sealed")
	for name, tc := range map[string]struct {
		client exchange.ClientAuthentication
		reason provider.Reason
		want   string
		before bool // anything is asked of the network
	}{
		"no ID":           {exchange.PublicClient(""), auth.ErrMisconfigured, `"" is not a client ID`, true},
		"ID with a break": {exchange.PublicClient("a\nb"), auth.ErrMisconfigured, `"a\nb"`, true},
		"no function":     {exchange.ClientSecretBasic("c", nil), auth.ErrMisconfigured, "no secret", true},
		"no source":       {exchange.ServiceAccountAssertion("c", nil), auth.ErrMisconfigured, "no source", true},
		"empty secret":    {exchange.ClientSecretBasic("c", secretOf("")), auth.ErrMisconfigured, "is empty", false},
		"secret fails": {exchange.ClientSecretBasic("c", func(context.Context) (string, error) { return "", broken }),
			auth.ErrUnavailable, "vault is sealed", false},
		"secret cancelled": {exchange.ClientSecretBasic("c", func(context.Context) (string, error) {
			return "", context.Canceled
		}), auth.ErrUnavailable, "cancelled", false},
		"no file": {exchange.ServiceAccountAssertion("c", auth.NewFileTokenSource("/nonexistent/token")),
			auth.ErrMisconfigured, "/nonexistent/token", false},
		"other audience": {exchange.ServiceAccountAssertion("c", auth.NewFileTokenSource(w.writeToken(t, "vault"))),
			auth.ErrDenied, `"vault"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.Issuer.TokenRequests()
			p := w.provider()
			p.Client = tc.client
			_, err := w.get(t, p)
			testenv.CheckError(t, err, tc.reason, tc.want)
			if tc.before && w.Issuer.TokenRequests() != before {
				t.Error("a token was requested")
			}
		})
	}
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
}

func TestActor(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	p.ActorToken = auth.NewFileTokenSource(w.writeToken(t, w.oauth.TokenEndpoint()))
	token, err := w.get(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if id := w.identity(t, token); id.Actor != subject("controller") || id.Subject != subject("tenant-a") {
		t.Errorf("got a token for %+v", id)
	}
	if got := w.Cloud.Log()[0].Parameters["actor_token_type"]; got != exchange.TokenTypeJWT {
		t.Errorf("actor_token_type is %q", got)
	}
	p = w.provider()
	p.ActorToken = auth.NewFileTokenSource(w.writeToken(t, w.Issuer.URL()))
	_, err = w.get(t, p)
	testenv.CheckError(t, err, auth.ErrDenied, "the actor token is not sent out", w.Issuer.URL())
}

func TestControllerToken(t *testing.T) {
	w := newEnvironment(t)
	client := auth.WithHTTPClient(w.Cloud.Client())
	get := func(p *exchange.Provider, opts ...auth.Option) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), p, append(opts, client)...)
	}
	_, err := get(w.provider())
	testenv.CheckError(t, err, auth.ErrMisconfigured, "Provider.TokenFile")
	p := w.provider()
	p.TokenFile = w.writeToken(t, w.oauth.TokenEndpoint())
	token, err := get(p, auth.WithScopes("read"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := exchange.FromToken(token)
	if err != nil || w.identity(t, own).Subject != subject("controller") {
		t.Errorf("got %v, %v", own, err)
	}
	p.TokenFile = w.writeToken(t, "our-audience")
	_, err = get(p)
	testenv.CheckError(t, err, auth.ErrDenied, `"our-audience"`, "not sent out")
	if _, err = get(p, auth.WithAudiences("our-audience"),
		auth.WithPolicy(auth.Policy{Audiences: []string{"our-audience"}})); err != nil {
		t.Error(err)
	}
	// A token for the API server stays here, whatever the configuration says.
	p = w.provider()
	p.KubernetesAudience, p.TokenFile = w.Issuer.URL(), w.writeToken(t, w.Issuer.URL())
	_, err = get(p)
	testenv.CheckError(t, err, auth.ErrDenied, "the API server")
	p = w.provider()
	p.TokenFile = filepath.Join(t.TempDir(), "nothing")
	_, err = get(p)
	testenv.CheckError(t, err, auth.ErrMisconfigured, p.TokenFile)
}
