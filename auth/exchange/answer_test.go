package exchange_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// change sets members of the server's good answer; nil removes them.
func change(members map[string]any) cloudtest.Fault {
	return cloudtest.Fault{Action: "token", Rewrite: func(body []byte) []byte {
		var answer map[string]any
		if err := json.Unmarshal(body, &answer); err != nil {
			panic(err)
		}
		maps.Copy(answer, members)
		maps.DeleteFunc(answer, func(_ string, v any) bool { return v == nil })
		changed, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		return changed
	}}
}

func one(name string, value any) cloudtest.Fault { return change(map[string]any{name: value}) }

// Every way in which a server can fail has its reason and its remedy.
func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"invalid_request": {cloudtest.Fault{Status: 400, Code: "invalid_request", Message: "not trusted"},
			auth.ErrDenied, "the server refuses: not trusted (HTTP 400, invalid_request); let the server trust issuer"},
		"invalid_grant": {cloudtest.Fault{Status: 400, Code: "invalid_grant"}, auth.ErrDenied,
			`subject "system:serviceaccount:tenant-a:app"`},
		"invalid_client": {cloudtest.Fault{Status: 401, Code: "invalid_client"}, auth.ErrMisconfigured,
			"Provider.Client"},
		"invalid_client with 400": {cloudtest.Fault{Status: 400, Code: "invalid_client"}, auth.ErrMisconfigured,
			"Provider.Client"},
		"unauthorized_client": {cloudtest.Fault{Status: 400, Code: "unauthorized_client"}, auth.ErrDenied,
			"allow token exchange to the client"},
		"unsupported_grant_type": {cloudtest.Fault{Status: 400, Code: "unsupported_grant_type"}, auth.ErrMisconfigured,
			"enable token exchange (RFC 8693)"},
		"invalid_scope":  {cloudtest.Fault{Status: 400, Code: "invalid_scope"}, auth.ErrDenied, `["read"]`},
		"invalid_target": {cloudtest.Fault{Status: 400, Code: "invalid_target"}, auth.ErrDenied, `audience "api"`},
		"server_error with 400": {cloudtest.Fault{Status: 400, Code: "server_error"}, auth.ErrUnavailable,
			"the server fails"},
		"temporarily unavailable": {cloudtest.Fault{Status: 400, Code: "temporarily_unavailable"}, auth.ErrUnavailable,
			"temporarily_unavailable"},
		"slow_down": {cloudtest.Fault{Status: 400, Code: "slow_down"}, auth.ErrThrottled, "slow_down"},
		"408":       {cloudtest.Fault{Status: 408, Code: "timeout"}, auth.ErrUnavailable, "the server fails"},
		"429":       {cloudtest.Fault{Status: 429, Code: "invalid_grant"}, auth.ErrThrottled, "HTTP 429"},
		"500":       {cloudtest.Fault{Status: 500, Code: "invalid_grant"}, auth.ErrUnavailable, "HTTP 500"},
		"503":       {cloudtest.Fault{Status: 503}, auth.ErrUnavailable, "HTTP 503"},
		"404": {cloudtest.Fault{Status: 404}, auth.ErrMisconfigured,
			"correct the path of the token endpoint (exchange.Provider.Endpoint, exchange.Provider.IssuerURL)"},
		"405": {cloudtest.Fault{Status: 405}, auth.ErrMisconfigured,
			"correct the path of the token endpoint"},
		"404 of a framework": {cloudtest.Fault{Status: 404, Code: "Not Found"}, auth.ErrMisconfigured,
			"correct the path of the token endpoint"},
		"404 with a code": {cloudtest.Fault{Status: 404, Code: "invalid_grant"}, auth.ErrDenied,
			"let the server trust"},
		"403":                {cloudtest.Fault{Status: 403}, auth.ErrUnavailable, "what guards"},
		"400 without a code": {cloudtest.Fault{Status: 400}, auth.ErrUnavailable, "HTTP 400"},
		"an unknown code":    {cloudtest.Fault{Status: 400, Code: "teapot"}, auth.ErrDenied, "teapot"},
		"a code that is none": {cloudtest.Fault{Status: 400, Code: "x; everything is fine\n"}, auth.ErrDenied,
			"(HTTP 400)"},
		"a huge code": {cloudtest.Fault{Status: 400, Code: strings.Repeat("x", 10_000)}, auth.ErrDenied,
			"(HTTP 400)"},
		"a huge description": {cloudtest.Fault{Status: 400, Code: "invalid_request",
			Message: strings.Repeat("x", 60_000)}, auth.ErrDenied, "xxx"},
		"a larger description": {cloudtest.Fault{Status: 400, Code: "invalid_request",
			Message: strings.Repeat("x", 65_536)}, auth.ErrUnavailable, "larger than 65536 bytes"},
		"control characters": {cloudtest.Fault{Status: 400, Code: "invalid_request", Message: "red \x1b[31m\r\nline"},
			auth.ErrDenied, "red  [31m  line"},
		"an error with 200": {one("error", "invalid_target"), auth.ErrDenied, "invalid_target"},
		"error is an object": {one("error", map[string]any{"message": "no", "type": "x"}), auth.ErrDenied,
			"the server refuses: no"},
		"cut": {cloudtest.Fault{Cut: true}, auth.ErrUnavailable, `"oauth.example"`},
		"HTML": {cloudtest.Fault{Body: "<html>page for people</html>"}, auth.ErrUnavailable,
			`"text/html", not with a JSON object`},
		"XML":    {cloudtest.Fault{Body: "<a>page for people</a>"}, auth.ErrUnavailable, `"text/xml"`},
		"a list": {cloudtest.Fault{Body: "[]"}, auth.ErrUnavailable, "not with a JSON object"},
		"null":   {cloudtest.Fault{Body: "null"}, auth.ErrUnavailable, "not with a JSON object"},
		"half of it": {cloudtest.Fault{Body: `{"access_token":"page for people`}, auth.ErrUnavailable,
			"not with a JSON object"},
		"empty": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return nil
		}}, auth.ErrUnavailable, "with nothing"},
		"10 MB": {cloudtest.Fault{Body: `{"access_token":"` + strings.Repeat("x", 10<<20)},
			auth.ErrUnavailable, "larger than"},
		"redirect": {cloudtest.Fault{Redirect: "https://oauth.example.evil.example/token"},
			auth.ErrUnavailable, `no answer from "oauth.example": refused to follow a redirect`},
		"no access_token": {one("access_token", nil), auth.ErrUnavailable, "access_token is missing"},
		"access_token is null": {cloudtest.Fault{Body: `{"access_token":null,"token_type":"Bearer","expires_in":1}`},
			auth.ErrUnavailable, "access_token is missing"},
		"access_token is 7": {one("access_token", 7), auth.ErrUnavailable, "access_token is missing"},
		"access_token capitals": {cloudtest.Fault{Body: `{"ACCESS_TOKEN":"x","token_type":"Bearer","expires_in":60}`},
			auth.ErrUnavailable, "access_token is missing"},
		"access_token two lines": {one("access_token", "a\r\nX-Header: b"), auth.ErrUnavailable, "invalid characters"},
		"access_token two words": {one("access_token", "page for people"), auth.ErrUnavailable, "invalid characters"},
		"access_token huge":      {one("access_token", strings.Repeat("x", 100_000)), auth.ErrUnavailable, "larger than"},
		"no token_type":          {one("token_type", nil), auth.ErrUnavailable, "token_type is missing"},
		"another token_type":     {one("token_type", "DPoP"), auth.ErrMisconfigured, `"DPoP"`},
		"a refresh token": {one("issued_token_type", "urn:ietf:params:oauth:token-type:refresh_token"),
			auth.ErrMisconfigured,
			"request an access token, urn:ietf:params:oauth:token-type:access_token (exchange.Provider.RequestedTokenType)"},
		"another issued type": {one("issued_token_type", exchange.TokenTypeIDToken), auth.ErrMisconfigured, "id_token"},
		"no issued type":      {one("issued_token_type", "token"), auth.ErrUnavailable, "issued_token_type"},
		"scope huge": {one("scope", "read "+strings.Repeat("x ", 5_000)), auth.ErrUnavailable,
			"scope is larger than 8192 bytes"},
		"less scope":           {one("scope", "write"), auth.ErrDenied, `did not grant the scope "read"`},
		"no scope at all":      {one("scope", ""), auth.ErrDenied, `did not grant the scope "read"`},
		"scope that is longer": {one("scope", "readonly"), auth.ErrDenied, `did not grant the scope "read"`},
		"expires_in 0":         {one("expires_in", 0), auth.ErrUnavailable, "expires_in"},
		"expires_in negative":  {one("expires_in", -3600), auth.ErrUnavailable, "expires_in"},
		"expires_in tiny":      {one("expires_in", 1e-300), auth.ErrUnavailable, "expired already"},
		"expires_in a word":    {one("expires_in", "soon"), auth.ErrUnavailable, "expires_in"},
		"expires_in Infinity":  {one("expires_in", "Infinity"), auth.ErrUnavailable, "expires_in"},
		"expires_in true":      {one("expires_in", true), auth.ErrUnavailable, "expires_in"},
		"no expiry": {change(map[string]any{"expires_in": nil, "access_token": "opaque"}), auth.ErrUnavailable,
			"Provider.AssumedLifetime"},
		"no expiry, half a JWT": {change(map[string]any{"expires_in": nil, "access_token": "e30.e30.e30"}),
			auth.ErrUnavailable, "Provider.AssumedLifetime"},
		"JWT expired": {one("access_token", "e30.eyJleHAiOjF9.x"), auth.ErrUnavailable, "expired already"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			p := w.provider()
			p.Audience, p.RequestedTokenType = "api", exchange.TokenTypeAccessToken
			w.Cloud.AddFault(tc.fault)
			token, err := w.get(t, p, auth.WithScopes("read"))
			testenv.CheckError(t, err, tc.reason, `exchange: ServiceAccount "tenant-a/app": `, tc.want)
			if token != nil || strings.Contains(err.Error(), "page for people") || strings.ContainsAny(err.Error(), "\x1b\n\r") {
				t.Errorf("got %v, %v", token, err)
			}
		})
	}
}

func TestAnswersThatAreGood(t *testing.T) {
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	jwtUntil := func(t *testing.T, w *environment, end int64) string {
		jwt, err := w.Issuer.Sign(map[string]any{"exp": end})
		if err != nil {
			t.Fatal(err)
		}
		return jwt
	}
	for name, tc := range map[string]struct {
		members map[string]any
		jwt     time.Duration
		want    time.Duration
	}{
		"as it is":              {nil, 0, time.Hour},
		"type in small letters": {map[string]any{"token_type": "bearer"}, 0, time.Hour},
		"type in capitals":      {map[string]any{"token_type": "BEARER"}, 0, time.Hour},
		"no issued_token_type":  {map[string]any{"issued_token_type": nil}, 0, time.Hour},
		"seconds in a string":   {map[string]any{"expires_in": "600"}, 0, 10 * time.Minute},
		"half seconds":          {map[string]any{"expires_in": 600.5}, 0, 10 * time.Minute},
		"a million years":       {map[string]any{"expires_in": 1e300, "access_token": "opaque"}, 0, 24 * time.Hour},
		"a number beyond numbers": {map[string]any{"expires_in": json.Number("1e999"), "access_token": "opaque"}, 0,
			24 * time.Hour},
		"JWT until then":         {map[string]any{"expires_in": nil}, 30 * time.Minute, 30 * time.Minute},
		"JWT expires sooner":     {map[string]any{"expires_in": 3600}, 5 * time.Minute, 5 * time.Minute},
		"JWT expires later":      {map[string]any{"expires_in": 600}, time.Hour, 10 * time.Minute},
		"JWT of a million years": {map[string]any{"expires_in": nil}, 290 * 365 * 24 * time.Hour, 24 * time.Hour},
		"nothing tells":          {map[string]any{"expires_in": nil, "access_token": "opaque"}, 0, 2 * time.Minute},
		"null tells nothing": {map[string]any{"expires_in": json.RawMessage("null"), "access_token": "opaque"}, 0,
			2 * time.Minute},
		"more scope":               {map[string]any{"scope": "openid read write"}, 0, time.Hour},
		"scope of other blanks":    {map[string]any{"scope": " read  "}, 0, time.Hour},
		"scope is null":            {map[string]any{"scope": json.RawMessage("null")}, 0, time.Hour},
		"error that says nothing":  {map[string]any{"error": ""}, 0, time.Hour},
		"members that are unknown": {map[string]any{"x": map[string]any{"y": 1}}, 0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			p := w.provider()
			p.AssumedLifetime = 2 * time.Minute
			if tc.jwt != 0 {
				tc.members["access_token"] = jwtUntil(t, w, in(tc.jwt))
			}
			w.Cloud.AddFault(change(tc.members))
			token, err := w.get(t, p, auth.WithScopes("read"))
			if err != nil {
				t.Fatal(err)
			}
			if d := token.GetDuration(); d > tc.want+time.Second || d < tc.want-time.Minute {
				t.Errorf("lives for %s, want %s", d, tc.want)
			}
			if token.Type() != "Bearer" || !strings.Contains(" "+strings.Join(token.Scopes(), " ")+" ", " read ") {
				t.Errorf("got a %s token for %q, want a Bearer token for read", token.Type(), token.Scopes())
			}
		})
	}
}

// A tenant reads the error, and the client's secret is the controller's.
func TestSecretsOfTheClientInTypes(t *testing.T) {
	const secret = "correct-horse-battery"
	w := newEnvironment(t)
	p := w.provider()
	p.Client, p.RequestedTokenType = exchange.ClientSecretBasic("client", secretOf(secret)),
		"urn:ietf:params:oauth:token-type:access_token"
	w.oauth.SetClient(cloudtest.OAuthClient{ID: "client", Method: "client_secret_basic", Secret: secret})
	for name, fault := range map[string]cloudtest.Fault{
		"token_type": one("token_type", secret), "issued_token_type": one("issued_token_type", "urn:x:"+secret),
	} {
		t.Run(name, func(t *testing.T) {
			defer w.Cloud.AddFault(fault)()
			_, err := w.get(t, p)
			testenv.CheckError(t, err, auth.ErrMisconfigured, "the server issued a token of type")
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret shows: %v", err)
			}
		})
	}
}

// Nothing that was sent comes back in an error, however the server quotes it.
func TestSecretsInAnswers(t *testing.T) {
	for name, secret := range map[string]string{"long": "correct-horse-battery", "short": "pw1",
		"encoded": "a b+c&d:e/f"} {
		w := newEnvironment(t)
		p := w.provider()
		p.Client = exchange.ClientSecretBasic("client", secretOf(secret))
		p.ActorToken = auth.NewFileTokenSource(w.writeToken(t, w.oauth.TokenEndpoint()))
		var sent []string
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := r.ParseForm(); err != nil {
				return nil, err
			}
			user, password, _ := r.BasicAuth()
			sent = append(sent, secret, password, r.PostForm.Get("subject_token"), r.PostForm.Get("actor_token"),
				strings.TrimPrefix(r.Header.Get("Authorization"), "Basic "))
			body, err := json.Marshal(map[string]string{"error": r.PostForm.Get("subject_token"),
				"error_description": "you sent " + user + strings.Join(sent, ", ")})
			if err != nil {
				return nil, err
			}
			return fixedAnswer{http.StatusBadRequest, body}.RoundTrip(r)
		})}
		_, err := w.get(t, p, auth.WithHTTPClient(client))
		if !errors.Is(err, auth.ErrDenied) || len(sent) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, s := range sent {
			if s != "" && strings.Contains(err.Error(), s) {
				t.Errorf("%s: the message holds %q: %v", name, s, err)
			}
		}
		// A server that hands back what it was sent has issued nothing.
		echo := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := r.ParseForm(); err != nil {
				return nil, err
			}
			body,
				err := json.Marshal(map[string]any{"access_token": r.PostForm.Get("subject_token"), "token_type": "Bearer",
				"expires_in": 60})
			if err != nil {
				return nil, err
			}
			return fixedAnswer{http.StatusOK, body}.RoundTrip(r)
		})}
		_, err = w.get(t, p, auth.WithHTTPClient(echo))
		testenv.CheckError(t, err, auth.ErrUnavailable, "what was sent to it")
	}
}

func TestRetries(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 400, Code: "temporarily_unavailable"})
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 408})
	if _, err := w.get(t, w.provider()); err != nil || w.Cloud.Calls("oauth", "") != 3 {
		t.Errorf("%d calls, %v", w.Cloud.Calls("oauth", ""), err)
	}
	if _, err := w.getFor(t.Context(), w.provider(), "tenant-b"); err == nil || w.Cloud.Calls("oauth", "") != 4 {
		t.Errorf("a refusal was asked for again: %d calls, %v", w.Cloud.Calls("oauth", ""), err)
	}
	w.Cloud.AddFault(cloudtest.Fault{Status: 429, RetryAfter: "120"})
	_, err := w.get(t, w.provider())
	if !errors.Is(err, auth.ErrThrottled) || auth.RetryAfter(err) != 2*time.Minute || w.Cloud.Calls("oauth", "") != 5 {
		t.Errorf("%d calls, %s, %v", w.Cloud.Calls("oauth", ""), auth.RetryAfter(err), err)
	}
}

// A token lives from the moment that the server issued it, which may be long
// before its answer arrives.
func TestLifetimeCountsFromTheRequest(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		const took = 20 * time.Second
		slow := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(took) // of the bubble
			return fixedAnswer{http.StatusOK, []byte(`{"access_token":"opaque","token_type":"Bearer","expires_in":3600}`)}.
				RoundTrip(r)
		})}
		token, err := w.get(t, w.provider(), auth.WithHTTPClient(slow))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := token.GetDuration(), time.Hour-took; got != want {
			t.Errorf("the token lives for %s, want %s", got, want)
		}
	})
}
