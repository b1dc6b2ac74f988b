package cloudtest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	jwtType       = "urn:ietf:params:oauth:token-type:jwt"
	bearerType    = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	oauthIssuer   = "https://oauth.example"
)

// oauthEnvironment has a server with a grant for the ServiceAccount of a
// environment.
func oauthEnvironment(t *testing.T) (environment, *cloudtest.OAuth) {
	t.Helper()
	w := newEnvironment(t)
	o := w.Cloud.OAuth()
	o.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient(), audience)
	o.AddGrant(cloudtest.OAuthGrant{Issuer: w.Issuer.URL(), Subjects: []string{subject}, Audiences: []string{"api"},
		Resources: []string{"https://api.example/"}, Scopes: []string{"read"}})
	return w, o
}

func (w environment) form(t *testing.T) url.Values {
	t.Helper()
	return url.Values{"grant_type": {exchangeGrant}, "subject_token": {w.token(t)}, "subject_token_type": {jwtType}}
}

// post sends a form to the token endpoint and returns the answer.
func (w environment) post(t *testing.T, form url.Values, headers ...string) (int, map[string]any) {
	t.Helper()
	return w.ask(t, http.MethodPost, form, headers...)
}

func (w environment) ask(t *testing.T, method string, form url.Values, headers ...string) (int, map[string]any) {
	t.Helper()
	headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
	status, body, header := send(t, w.Cloud, method, oauthIssuer+"/token", form.Encode(), headers...)
	answer := map[string]any{}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
		t.Errorf("headers: %v", header)
	}
	return status, answer
}

// The token is a JWT that verifies with the published keys, and the server
// knows its identity.
func TestOAuthExchange(t *testing.T) {
	w, o := oauthEnvironment(t)
	form := w.form(t)
	maps.Copy(form, url.Values{"audience": {"api"}, "resource": {"https://api.example/"}, "scope": {"read"},
		"actor_token": {w.token(t)}, "actor_token_type": {jwtType}})
	status, answer := w.post(t, form)
	token, _ := answer["access_token"].(string)
	if status != http.StatusOK || answer["token_type"] != "Bearer" || answer["expires_in"] != 3600.0 ||
		answer["scope"] != "read" ||
		answer["issued_token_type"] != "urn:ietf:params:oauth:token-type:access_token" || answer["refresh_token"] != nil {
		t.Fatalf("got %d %v, want an access token for read", status, answer)
	}
	id, ok := o.Identity(token)
	if !ok || id.Issuer != w.Issuer.URL() || id.Subject != subject || id.Actor != subject || id.Audience != "api" ||
		id.Resource != "https://api.example/" || len(id.Scopes) != 1 || time.Until(id.Expiration) > time.Hour {
		t.Errorf("the server knows %+v", id)
	}
	var keys jose.JSONWebKeySet
	getJSON(t, w.Cloud, oauthIssuer+"/jwks", &keys)
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		jwt.Claims
		Act struct {
			Sub string `json:"sub"`
		} `json:"act"`
	}
	if err := parsed.Claims(keys.Key(parsed.Headers[0].KeyID)[0], &claims); err != nil || claims.Subject != subject ||
		claims.Issuer != o.URL() || claims.Audience[0] != "api" || claims.Act.Sub != subject {
		t.Errorf("the claims are %+v, %v", claims, err)
	}
	for name := range w.Cloud.Log()[0].Parameters {
		if strings.HasSuffix(name, "_token") {
			t.Errorf("the log holds %s", name)
		}
	}
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(2 * time.Hour) })
	if _, ok := o.Identity(token); ok {
		t.Error("an expired token is known still")
	}
}

func TestOAuthRefusals(t *testing.T) {
	w, o := oauthEnvironment(t)
	o.AddGrant(cloudtest.OAuthGrant{Issuer: w.Issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"},
		Clients: []string{"b"}})
	other := testenv.Forger(t)
	stranger, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://stranger.example"})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(i *cloudtest.Issuer) string {
		token, err := i.Sign(i.Claims(app(), []string{audience}, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	claim := func(name string, value any) url.Values {
		return url.Values{"subject_token": {w.token(t, func(claims map[string]any) { claims[name] = value })}}
	}
	for name, tc := range map[string]struct {
		change url.Values
		status int
		code   string
	}{
		"nothing wrong":       {nil, 200, ""},
		"grant type":          {url.Values{"grant_type": {"client_credentials"}}, 400, "unsupported_grant_type"},
		"no token":            {url.Values{"subject_token": nil}, 400, "invalid_request"},
		"no type":             {url.Values{"subject_token_type": nil}, 400, "invalid_request"},
		"unknown type":        {url.Values{"subject_token_type": {"jwt"}}, 400, "invalid_request"},
		"requested type":      {url.Values{"requested_token_type": {"jwt"}}, 400, "invalid_request"},
		"not a JWT":           {url.Values{"subject_token": {"opaque"}}, 400, "invalid_request"},
		"another issuer":      {url.Values{"subject_token": {sign(stranger)}}, 400, "invalid_request"},
		"another key":         {url.Values{"subject_token": {sign(other)}}, 400, "invalid_request"},
		"another audience":    {claim("aud", "vault"), 400, "invalid_request"},
		"no audience":         {claim("aud", nil), 400, "invalid_request"},
		"expired":             {claim("exp", time.Now().Add(-time.Minute).Unix()), 400, "invalid_request"},
		"no expiry":           {claim("exp", nil), 400, "invalid_request"},
		"not yet":             {claim("nbf", time.Now().Add(time.Hour).Unix()), 400, "invalid_request"},
		"another subject":     {claim("sub", "system:serviceaccount:tenant-c:app"), 400, "invalid_request"},
		"not for this client": {claim("sub", "system:serviceaccount:tenant-b:app"), 400, "unauthorized_client"},
		"audience":            {url.Values{"audience": {"bank"}}, 400, "invalid_target"},
		"resource":            {url.Values{"resource": {"https://bank.example/"}}, 400, "invalid_target"},
		"resource, part":      {url.Values{"resource": {"https://api.example/#x"}}, 400, "invalid_target"},
		"scope":               {url.Values{"scope": {"read write"}}, 400, "invalid_scope"},
		"twice":               {url.Values{"scope": {"read", "read"}}, 400, "invalid_request"},
		"actor, no type":      {url.Values{"actor_token": {sign(other)}}, 400, "invalid_request"},
		"actor type, none":    {url.Values{"actor_token_type": {jwtType}}, 400, "invalid_request"},
		"actor of a stranger": {url.Values{"actor_token": {sign(stranger)}, "actor_token_type": {jwtType}}, 400,
			"invalid_request"},
		"unknown client": {url.Values{"client_id": {"nobody"}}, 401, "invalid_client"},
		"two ways":       {url.Values{"client_secret": {"x"}, "client_assertion": {"y"}}, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			form := w.form(t)
			maps.Copy(form, tc.change)
			maps.DeleteFunc(form, func(_ string, v []string) bool { return v == nil })
			status, answer := w.post(t, form)
			if code, _ := answer["error"].(string); status != tc.status || code != tc.code ||
				(answer["access_token"] == nil) != (code != "") {
				t.Errorf("got %d %v, want %d %q", status, answer, tc.status, tc.code)
			}
		})
	}
	if status, answer := w.post(t, w.form(t), "Content-Type", "application/json"); status != 400 ||
		answer["error"] != "invalid_request" {
		t.Errorf("JSON: %d %v", status, answer)
	}
	if status, answer := w.ask(t, http.MethodGet, nil); status != 405 {
		t.Errorf("GET: %d %v", status, answer)
	}
}

func TestOAuthClients(t *testing.T) {
	w, o := oauthEnvironment(t)
	o.Configure(cloudtest.OAuthConfig{RequireClient: true})
	o.SetClient(cloudtest.OAuthClient{ID: "basic", Method: "client_secret_basic", Secret: "p:w"})
	o.SetClient(cloudtest.OAuthClient{ID: "sa", Method: "client_assertion", Issuer: w.Issuer.URL(), Subject: subject})
	federated := func(change func(map[string]any)) url.Values {
		return url.Values{"client_assertion": {w.token(t, change)}, "client_assertion_type": {bearerType}}
	}
	for name, tc := range map[string]struct {
		form          url.Values
		authorization string
		ok            bool
	}{
		"none":               {nil, "", false},
		"basic":              {nil, basicAuth("basic", "p%3Aw"), true},
		"basic, wrong":       {nil, basicAuth("basic", "p%3Ax"), false},
		"basic, not encoded": {nil, basicAuth("basic", "%zz"), false},
		"bearer":             {nil, "Bearer x", false},
		"secret in the form": {url.Values{"client_id": {"basic"}, "client_secret": {"p:w"}}, "", false},
		"not a JWT":          {url.Values{"client_assertion": {"x"}, "client_assertion_type": {bearerType}}, "", false},
		"expired": {federated(func(c map[string]any) {
			c["exp"] = time.Now().Add(-time.Second).Unix()
		}), "", false},
		"of the future": {federated(func(c map[string]any) {
			c["iat"] = time.Now().Add(time.Hour).Unix()
		}), "", false},
		"another client's ID":    {merge(federated(nil), url.Values{"client_id": {"basic"}}), "", false},
		"ServiceAccount":         {federated(nil), "", true},
		"ServiceAccount, its ID": {merge(federated(nil), url.Values{"client_id": {"sa"}}), "", true},
		"another ServiceAccount": {federated(func(c map[string]any) {
			c["sub"] = "system:serviceaccount:tenant-b:app"
		}), "", false},
		"ServiceAccount, audience": {federated(func(c map[string]any) { c["aud"] = "vault" }), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.post(t, merge(w.form(t), tc.form), "Authorization", tc.authorization)
			if (status == http.StatusOK) != tc.ok ||
				!tc.ok && (status != http.StatusUnauthorized || answer["error"] != "invalid_client") {
				t.Errorf("got %d %v, want a token: %t", status, answer, tc.ok)
			}
		})
	}
}

func merge(a, b url.Values) url.Values {
	merged := maps.Clone(a)
	maps.Copy(merged, b)
	return merged
}

func TestOAuthMetadata(t *testing.T) {
	w, o := oauthEnvironment(t)
	o.Configure(cloudtest.OAuthConfig{Host: "Login.example", Path: "/realms/one", OpaqueTokens: true})
	for path, want := range map[string]int{
		"/.well-known/oauth-authorization-server/realms/one": 200,
		"/realms/one/.well-known/openid-configuration":       200,
		"/.well-known/oauth-authorization-server":            404,
		"/realms/one/userinfo":                               401,
	} {
		status, text, _ := send(t, w.Cloud, http.MethodGet, "https://login.example"+path, "")
		var document map[string]any
		if err := json.Unmarshal([]byte(text), &document); err != nil || status != want ||
			want == 200 && (document["issuer"] != o.URL() ||
				document["token_endpoint"] != "https://login.example/realms/one/token") {
			t.Errorf("%s: got %d %s, %v, want %d", path, status, text, err, want)
		}
	}
	if resp, err := w.Cloud.Client().Get(oauthIssuer + "/jwks"); err == nil { //nolint:noctx // fails at once
		_ = resp.Body.Close()
		t.Error("the server answers at its old host still")
	}
}
