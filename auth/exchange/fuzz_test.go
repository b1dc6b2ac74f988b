package exchange_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// fixedAnswer is a server that answers everything alike.
type fixedAnswer struct {
	status int
	body   []byte
}

func (f fixedAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f.status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(f.body)),
		ContentLength: int64(len(f.body))}, nil
}

const canary = "eyJhbGciOiJub25lIn0.e30.canary-signature"

// Whatever a server answers, there is either a whole token or an error, and
// never the token that was sent.
func FuzzAnswer(f *testing.F) {
	const good = `{"access_token":"secret-value","token_type":"Bearer","expires_in":3600,"scope":"read","issued_token_type":"urn:ietf:params:oauth:token-type:jwt"}`
	f.Add(true, []byte(good))
	f.Add(true, []byte(strings.Replace(good, "3600", `"1e999"`, 1)))
	f.Add(true, []byte(strings.Replace(good, "secret-value", canary, 1)))
	f.Add(true, []byte(strings.Replace(good, "secret-value", "e30.eyJleHAiOjk5OTk5OTk5OTl9.x", 1)))
	f.Add(false, []byte(`{"error":"invalid_request","error_description":"you sent `+canary+`"}`))
	f.Add(false, []byte("<html>"))
	f.Fuzz(func(t *testing.T, ok bool, body []byte) {
		answer := fixedAnswer{http.StatusOK, body}
		if !ok {
			answer.status = http.StatusForbidden
		}
		opts := &provider.Options{Scopes: []string{"read"}, HTTPClient: &http.Client{Transport: answer}}
		p := &exchange.Provider{Endpoint: "https://oauth.example/token"}
		got, err := p.NewTokenForServiceAccount(t.Context(), canary, testenv.ServiceAccount("tenant-a", "app"), opts)
		if (err == nil) == (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "canary-signature") || strings.ContainsAny(err.Error(), "\n\r\x1b") ||
				len(err.Error()) > 2500 {
				t.Errorf("the message is not fit: %q", err)
			}
			return
		}
		token, err := exchange.FromToken(got)
		if err != nil {
			t.Fatal(err)
		}
		value := token.Reveal()
		if value == "" || value == canary || strings.ContainsAny(value, " \r\n\t") || token.GetDuration() <= 0 ||
			token.GetDuration() > 25*60*60*1e9 {
			t.Errorf("incomplete: %v", token)
		}
		if !ok || token.Scopes()[0] == "" || strings.Contains(token.String(), value) && len(value) > 40 {
			t.Errorf("%v with %q", token, token.Scopes())
		}
	})
}

// Whatever metadata say, only the issuer's host gets the token.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://oauth.example","token_endpoint":"https://oauth.example/token"}`))
	f.Add([]byte(`{"issuer":"https://oauth.example","token_endpoint":"https://oauth.example@evil.example/token"}`))
	f.Add([]byte(`{"issuer":"https://oauth.example","token_endpoint":"https://oauth.example:443\\.evil.example"}`))
	f.Add([]byte(`{"issuer":"https://oauth.example","token_endpoint":"https://oauth.example%2eevil.example/"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost &&
				(r.URL.Scheme != "https" || strings.ToLower(r.URL.Hostname()) != "oauth.example" ||
					r.URL.Port() != "" && r.URL.Port() != "443" || r.URL.User != nil) {
				t.Errorf("the token went to %q", r.URL)
			}
			return fixedAnswer{http.StatusOK, body}.RoundTrip(r)
		})}
		p := &exchange.Provider{IssuerURL: "https://oauth.example"}
		_, err := p.NewTokenForServiceAccount(t.Context(), canary, testenv.ServiceAccount("tenant-a", "app"),
			&provider.Options{HTTPClient: client})
		if err != nil && strings.Contains(err.Error(), "canary-signature") {
			t.Errorf("the message holds the token: %v", err)
		}
	})
}

// An endpoint that is accepted has the host that its text shows, and nothing
// that could hide another.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"https://oauth.example/token", "https://[::1]:8443/", "https://a@b/",
		"https://oauth.example\\@evil/", "https://a:99999", "https://a?#", "https://a%00b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		p := &exchange.Provider{Endpoint: endpoint}
		if p.ValidateOptions(&provider.Options{}) != nil {
			return
		}
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Hostname() == "" ||
			strings.ContainsAny(endpoint, "#\\ \r\n\t") {
			t.Fatalf("%q was accepted: %v", endpoint, err)
		}
		authority, _, _ := strings.Cut(strings.TrimPrefix(endpoint, "https://"), "/")
		authority, _, _ = strings.Cut(authority, "?")
		if authority != u.Host || strings.ContainsAny(authority, "@%") {
			t.Errorf("%q was accepted: it shows %q, but goes to %q", endpoint, authority, u.Host)
		}
	})
}

// A scope that is accepted is one scope.
func FuzzScope(f *testing.F) {
	for _, s := range []string{"read", "read write", "https://api.example/read", "a\u00a0b", "a&scope=b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, scope string) {
		p := &exchange.Provider{Endpoint: "https://oauth.example/token"}
		if p.ValidateOptions(&provider.Options{Scopes: []string{scope}}) != nil {
			return
		}
		sent := url.Values{}
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := r.ParseForm(); err != nil {
				return nil, err
			}
			sent = r.PostForm
			return fixedAnswer{http.StatusForbidden, nil}.RoundTrip(r)
		})}
		_, _ = p.NewTokenForServiceAccount(t.Context(), canary, testenv.ServiceAccount("tenant-a", "app"),
			&provider.Options{Scopes: []string{scope}, HTTPClient: client})
		if fields := strings.Fields(sent.Get("scope")); len(fields) != 1 || fields[0] != scope || len(sent["scope"]) != 1 {
			t.Errorf("%q was sent as %q", scope, sent["scope"])
		}
	})
}
