package provider_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
)

// The clients of HTTPClients protect a credential in the request.
func TestHTTPClients(t *testing.T) {
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://evil.example/", http.StatusTemporaryRedirect)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		}
	}))
	t.Cleanup(service.Close)
	var clients provider.HTTPClients
	client := clients.For(&provider.Options{HTTPClient: service.Client()})
	for name, tc := range map[string]struct{ path, want string }{
		"redirect refused": {"/redirect", "redirect"},
		"body bounded":     {"/large", "too large"},
		"answer read":      {"/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := get(t, client, service.URL+tc.path)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if service.Client().CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}

func get(t *testing.T, client *http.Client, address string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return client.Do(req)
}

func TestHTTPClientsUseTheProxyOfTheCall(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	var clients provider.HTTPClients
	opts := &provider.Options{ProxyURL: address}
	resp, err := get(t, clients.For(opts), "https://service.example/")
	if err == nil {
		_ = resp.Body.Close()
		t.Error("the proxy's refusal is no error")
	}
	if got := <-asked; got != "CONNECT service.example:443" {
		t.Errorf("the proxy received %q", got)
	}
	first, again := clients.For(opts), clients.For(opts)
	if first != again || first == clients.For(&provider.Options{}) {
		t.Error("calls with the same proxy do not share connections, or other calls do")
	}
}

func TestRedact(t *testing.T) {
	const secret = "s3cret/with+parts="
	for name, text := range map[string]string{
		"raw": secret, "URL-escaped": url.QueryEscape(secret), "bearer": "Authorization: Bearer abcdefghijklmnop",
	} {
		t.Run(name, func(t *testing.T) {
			got := provider.Redact("the service\nsays "+text, secret)
			if !strings.HasPrefix(got, "the service says ") || strings.Contains(got, "s3cret") ||
				strings.Contains(got, "abcdefgh") {
				t.Errorf("got %q", got)
			}
		})
	}
	if got := provider.Redact(strings.Repeat("é", 1000)); len(got) > 303 {
		t.Errorf("the text has %d bytes", len(got))
	}
}
