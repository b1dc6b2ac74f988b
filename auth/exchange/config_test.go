package exchange_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// A provider that cannot work is refused before any network call.
func TestProvidersThatAreRefused(t *testing.T) {
	w := newEnvironment(t)
	endpoint := w.oauth.TokenEndpoint()
	for name, tc := range map[string]struct {
		provider *exchange.Provider
		want     string
	}{
		"zero":          {&exchange.Provider{}, "(exchange.Provider.Endpoint, exchange.Provider.IssuerURL)"},
		"both":          {&exchange.Provider{Endpoint: endpoint, IssuerURL: w.oauth.URL()}, "exclude"},
		"http":          {&exchange.Provider{Endpoint: "http://oauth.example/token"}, "https://"},
		"capitals":      {&exchange.Provider{Endpoint: "HTTPS://oauth.example/token"}, "https://"},
		"no scheme":     {&exchange.Provider{Endpoint: "oauth.example/token"}, "https://"},
		"no host":       {&exchange.Provider{Endpoint: "https:///token"}, "no valid host"},
		"empty host":    {&exchange.Provider{Endpoint: "https://:443/token"}, "no valid host"},
		"user":          {&exchange.Provider{Endpoint: "https://u:pass-word@oauth.example/token"}, "user name"},
		"look-alike":    {&exchange.Provider{Endpoint: "https://oauth.example@evil.example/token"}, "user name"},
		"backslash":     {&exchange.Provider{Endpoint: `https://oauth.example\@evil.example/`}, "invalid characters"},
		"fragment":      {&exchange.Provider{Endpoint: endpoint + "#"}, "fragment"},
		"line":          {&exchange.Provider{Endpoint: endpoint + "\n"}, "invalid characters"},
		"blank":         {&exchange.Provider{Endpoint: "https://oauth.example /token"}, "invalid characters"},
		"port":          {&exchange.Provider{Endpoint: "https://oauth.example:0/token"}, "no valid host"},
		"port missing":  {&exchange.Provider{Endpoint: "https://oauth.example:/token"}, "no valid host"},
		"other letters": {&exchange.Provider{Endpoint: "https://öauth.example/token"}, "invalid characters"},
		"percent":       {&exchange.Provider{Endpoint: "https://oauth%2eexample/token"}, "refused"},
		"huge": {&exchange.Provider{Endpoint: "https://oauth.example/" + strings.Repeat("x", 10_000)},
			"too long"},
		"issuer of http":   {&exchange.Provider{IssuerURL: "http://oauth.example"}, "https://"},
		"issuer, query":    {&exchange.Provider{IssuerURL: "https://oauth.example?x=1"}, "query"},
		"issuer, question": {&exchange.Provider{IssuerURL: "https://oauth.example?"}, "query"},
		"allowed host": {&exchange.Provider{IssuerURL: w.oauth.URL(), AllowedEndpointHosts: []string{"https://x"}},
			`"https://x"`},
		"allowed path":   {&exchange.Provider{IssuerURL: w.oauth.URL(), AllowedEndpointHosts: []string{"x/y"}}, `"x/y"`},
		"resource":       {&exchange.Provider{Endpoint: endpoint, Resource: "api"}, "Provider.Resource"},
		"resource, part": {&exchange.Provider{Endpoint: endpoint, Resource: api + "#part"}, "Provider.Resource"},
		"resources":      {&exchange.Provider{Endpoint: endpoint, AllowedResources: []string{""}}, "AllowedResources"},
		"audiences":      {&exchange.Provider{Endpoint: endpoint, AllowedAudiences: []string{""}}, "AllowedAudiences"},
		"refresh token": {&exchange.Provider{Endpoint: endpoint,
			RequestedTokenType: "urn:ietf:params:oauth:token-type:refresh_token"}, "refresh tokens"},
		"token type":    {&exchange.Provider{Endpoint: endpoint, RequestedTokenType: "jwt"}, "RequestedTokenType"},
		"subject type":  {&exchange.Provider{Endpoint: endpoint, SubjectTokenType: "jwt"}, "SubjectTokenType"},
		"actor type":    {&exchange.Provider{Endpoint: endpoint, ActorTokenType: "jwt"}, "ActorTokenType"},
		"lifetime":      {&exchange.Provider{Endpoint: endpoint, AssumedLifetime: -1}, "AssumedLifetime"},
		"long lifetime": {&exchange.Provider{Endpoint: endpoint, AssumedLifetime: 25 * time.Hour}, "AssumedLifetime"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, tc.provider)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			if strings.Contains(err.Error(), "pass-word") {
				t.Errorf("a password shows: %v", err)
			}
			sa := testenv.ServiceAccount("tenant-a", "app")
			if _, err := tc.provider.GetAudiences(t.Context(), sa, &provider.Options{}); !errors.Is(err,
				auth.ErrMisconfigured) {
				t.Errorf("GetAudiences: %v", err)
			}
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

func TestOptionsThatAreRefused(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		option auth.Option
		want   string
	}{
		"two scopes in one": {auth.WithScopes("read write"), `"read write"`},
		"quoted scope":      {auth.WithScopes(`"read"`), "scope"},
		"scope with a line": {auth.WithScopes("read\nwrite"), `"read\nwrite"`},
		"endpoint":          {auth.WithSTSEndpoint("https://evil.example/token"), "WithSTSEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, w.provider(), tc.option)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

// RFC 6749, section 3.2: the query of the endpoint stays.
func TestEndpointWithAQuery(t *testing.T) {
	w := newEnvironment(t)
	w.oauth.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient(), "our-audience")
	var asked string
	client := w.Cloud.Client()
	next := client.Transport
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		return next.RoundTrip(r)
	})
	p := &exchange.Provider{Endpoint: w.oauth.TokenEndpoint() + "?api-version=1", KubernetesAudience: "our-audience"}
	if _, err := w.get(t, p, auth.WithHTTPClient(client)); err != nil || asked != p.Endpoint {
		t.Errorf("asked %q, %v", asked, err)
	}
}

func TestDiscovery(t *testing.T) {
	for name, tc := range map[string]struct {
		config cloudtest.OAuthConfig
		calls  int // for the metadata
	}{
		"RFC 8414":                    {cloudtest.OAuthConfig{}, 1},
		"RFC 8414 with a path":        {cloudtest.OAuthConfig{Path: "/realms/one"}, 1},
		"OpenID Connect":              {cloudtest.OAuthConfig{OpenIDOnly: true}, 1},
		"OpenID Connect with a path":  {cloudtest.OAuthConfig{OpenIDOnly: true, Path: "/realms/one"}, 1},
		"another host":                {cloudtest.OAuthConfig{Host: "login.example"}, 1},
		"a slash at the issuer's end": {cloudtest.OAuthConfig{Path: "/"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.oauth.Configure(tc.config)
			w.oauth.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient(), w.oauth.URL())
			if tc.config.Path == "/" {
				w.Cloud.AddFault(cloudtest.Fault{Action: "unknown",
					Body: `{"issuer":"https://oauth.example/","token_endpoint":"https://oauth.example//token"}`})
			}
			p := &exchange.Provider{IssuerURL: w.oauth.URL()}
			for range 3 {
				if _, err := w.get(t, p); err != nil {
					t.Fatal(err)
				}
			}
			if n := w.Cloud.Calls("oauth", "metadata"); n > tc.calls {
				t.Errorf("the metadata were read %d times", n)
			}
			if n := w.Cloud.Calls("oauth", "token"); n != 3 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}

// Metadata decide where ServiceAccount tokens go, so only the issuer's own are
// accepted.
func TestMetadataThatAreRefused(t *testing.T) {
	const issuer = "https://oauth.example"
	document := func(issuer, endpoint string) cloudtest.Fault {
		return cloudtest.Fault{Action: "metadata", Body: `{"issuer":"` + issuer + `","token_endpoint":"` + endpoint + `"}`}
	}
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"another issuer": {document("https://evil.example", issuer+"/token"), auth.ErrMisconfigured,
			`those of "https://evil.example"`},
		"issuer and slash":   {document(issuer+"/", issuer+"/token"), auth.ErrMisconfigured, "a slash at the end included"},
		"issuer in capitals": {document("https://OAUTH.example", issuer+"/token"), auth.ErrMisconfigured, "OAUTH"},
		"issuer is missing": {cloudtest.Fault{Action: "metadata", Body: `{"token_endpoint":"https://oauth.example/token"}`},
			auth.ErrMisconfigured, `those of ""`},
		"another host": {document(issuer, "https://evil.example/token"), auth.ErrMisconfigured, "AllowedEndpointHosts"},
		"a sub-domain": {document(issuer, "https://a.oauth.example/token"), auth.ErrMisconfigured, `"a.oauth.example"`},
		"a longer domain": {document(issuer, "https://oauth.example.evil.example/token"), auth.ErrMisconfigured,
			"another host"},
		"a prefix":     {document(issuer, "https://evil-oauth.example/token"), auth.ErrMisconfigured, "another host"},
		"another port": {document(issuer, "https://oauth.example:8443/token"), auth.ErrMisconfigured, "another host"},
		"a user": {document(issuer, "https://oauth.example@evil.example/token"), auth.ErrMisconfigured,
			"user name"},
		"http":        {document(issuer, "http://oauth.example/token"), auth.ErrMisconfigured, "https://"},
		"a final dot": {document(issuer, "https://oauth.example./token"), auth.ErrMisconfigured, "refused"},
		"no endpoint": {cloudtest.Fault{Action: "metadata", Body: `{"issuer":"https://oauth.example"}`},
			auth.ErrMisconfigured, "token endpoint"},
		"HTML":   {cloudtest.Fault{Action: "metadata", Body: "<html>"}, auth.ErrUnavailable, "JSON object"},
		"a list": {cloudtest.Fault{Action: "metadata", Body: "[]"}, auth.ErrUnavailable, "JSON object"},
		"empty": {cloudtest.Fault{Action: "metadata", Rewrite: func([]byte) []byte {
			return nil
		}}, auth.ErrUnavailable, "JSON object"},
		"10 MB": {cloudtest.Fault{Action: "metadata", Body: "{" + strings.Repeat(" ", 10<<20)},
			auth.ErrUnavailable, "larger than"},
		"redirect": {cloudtest.Fault{Action: "metadata", Redirect: "https://evil.example/"}, auth.ErrUnavailable,
			"redirect"},
		"cut": {cloudtest.Fault{Action: "metadata", Cut: true}, auth.ErrUnavailable, `"oauth.example"`},
		"403": {cloudtest.Fault{Action: "metadata", Status: 403}, auth.ErrUnavailable, "HTTP 403"},
		"429": {cloudtest.Fault{Action: "metadata", Status: 429, RetryAfter: "60"}, auth.ErrThrottled,
			"HTTP 429"},
		"503": {cloudtest.Fault{Action: "metadata", Status: 503}, auth.ErrUnavailable, "HTTP 503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			end := w.Cloud.AddFault(tc.fault)
			p := &exchange.Provider{IssuerURL: issuer}
			_, err := w.get(t, p)
			testenv.CheckError(t, err, tc.reason, "look up the token endpoint", tc.want)
			if n := w.Cloud.Calls("oauth", "token"); n != 0 {
				t.Errorf("the token was sent %d times", n)
			}
			end()
			if _, err := w.get(t, p); err != nil {
				t.Errorf("the failure is remembered: %v", err)
			}
		})
	}
}

func TestEndpointAtAHostThatIsAllowed(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Action: "metadata",
		Body: `{"issuer":"https://oauth.example","token_endpoint":"https://tokens.example:443/token"}`})
	asked := ""
	client := w.Cloud.Client()
	next := client.Transport
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if asked = r.URL.Host; asked == "tokens.example:443" {
			r.URL.Host, r.Host = "oauth.example", "oauth.example"
		}
		return next.RoundTrip(r)
	})
	for _, host := range []string{"tokens.example", "TOKENS.example", "tokens.example:443"} {
		asked = ""
		p := &exchange.Provider{IssuerURL: w.oauth.URL(), AllowedEndpointHosts: []string{"other.example", host}}
		if _, err := w.get(t, p, auth.WithHTTPClient(client)); err != nil || asked != "tokens.example:443" {
			t.Errorf("%s: asked %q, %v", host, asked, err)
		}
	}
}

// A lookup that hangs delays no other caller, and its caller leaves with its
// context.
func TestDiscoveryThatHangs(t *testing.T) {
	w := newEnvironment(t)
	p := &exchange.Provider{IssuerURL: w.oauth.URL()}
	w.Cloud.AddFault(cloudtest.Fault{Action: "metadata", Hang: true, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.getFor(ctx, p, "tenant-a")
		done <- err
	}()
	for w.Cloud.Calls("oauth", "metadata") == 0 { // what hangs there gives no other sign
		select {
		case err := <-done:
			t.Fatalf("the metadata were not requested: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := w.get(t, p); err != nil {
		t.Error(err)
	}
	cancelled := time.Now()
	cancel()
	// the request alone would be given up after 20
	if err := <-done; !errors.Is(err, context.Canceled) || time.Since(cancelled) > 15*time.Second {
		t.Errorf("after %s: %v", time.Since(cancelled), err)
	}
}
