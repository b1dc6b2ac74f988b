package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func userinfo(ctx context.Context, t *testing.T, client *http.Client, address string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// The client of x/oauth2 gets to a service that demands the token.
func TestTokenSource(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	source := p.NewTokenSource(t.Context(),
		w.options("tenant-a", testenv.Cached(t, "tenant-a"), auth.WithScopes("read"))...)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, w.Cloud.Client())
	status, body, err := userinfo(t.Context(), t, oauth2.NewClient(ctx, source), "https://oauth.example/userinfo")
	if err != nil || status != http.StatusOK || body != `{"scope":"read","sub":"system:serviceaccount:tenant-a:app"}` {
		t.Errorf("got %d %s, %v, want the user of tenant-a", status, body, err)
	}
	first, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	value := first.AccessToken
	first.AccessToken = "overwritten"
	second, err := source.Token()
	if err != nil || second.AccessToken != value || second.Type() != "Bearer" || !second.Valid() ||
		time.Until(second.Expiry) > time.Hour || second.RefreshToken != "" {
		t.Errorf("the second token differs, or is not valid: %v", err)
	}
	if n := w.Cloud.Calls("oauth", "token"); n != 1 {
		t.Errorf("%d exchanges", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.NewTokenSource(ended, w.options("tenant-a")...).Token(); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	p = w.provider()
	p.RequestedTokenType = exchange.TokenTypeIDToken
	_, err = p.NewTokenSource(t.Context(), w.options("tenant-a")...).Token()
	testenv.CheckError(t, err, auth.ErrMisconfigured, "N_A")
}

// Only the named hosts get the token, and requests honour their contexts.
func TestTransport(t *testing.T) {
	w := newEnvironment(t)
	transport, err := w.provider().NewTransport(w.Cloud.Client().Transport, []string{"oauth.example"},
		w.options("tenant-a", testenv.Cached(t, "tenant-a"))...)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	for range 3 {
		status, body, err := userinfo(t.Context(), t, client, "https://oauth.example/userinfo")
		if err != nil || status != http.StatusOK || !strings.Contains(body, subject("tenant-a")) {
			t.Errorf("got %d %s, %v, want the user of tenant-a", status, body, err)
		}
	}
	if n := w.Cloud.Calls("oauth", "token"); n != 1 {
		t.Errorf("%d exchanges", n)
	}
	client.CloseIdleConnections()

	// Deleting the ServiceAccount takes effect at once.
	if err := w.Client.Delete(t.Context(), testenv.ServiceAccount("tenant-a", "app")); err != nil {
		t.Fatal(err)
	}
	_, _, err = userinfo(t.Context(), t, client, "https://oauth.example/userinfo")
	if !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("with a ServiceAccount that is gone: %v", err)
	}
}

func TestTransportEndsWithTheRequest(t *testing.T) {
	w := newEnvironment(t)
	transport, err := w.provider().NewTransport(w.Cloud.Client().Transport, []string{"api.example"},
		w.options("tenant-a")...)
	if err != nil {
		t.Fatal(err)
	}
	w.Cloud.AddFault(cloudtest.Fault{Action: "token", Hang: true})
	ctx, since := testenv.CancelAt(t, w.Cloud, "oauth", "token")
	_, _, err = userinfo(ctx, t, &http.Client{Transport: transport}, "https://api.example/")
	if !errors.Is(err, context.Canceled) || since() > 15*time.Second { // the request alone would be given up after 20
		t.Errorf("after %s: %v", since(), err)
	}
}

// seen holds the parts of a request that a service received.
type seen struct {
	host, authorization, other string
}

func TestHostsOfATransport(t *testing.T) {
	w := newEnvironment(t)
	var got []seen
	redirects := map[string]string{}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		got = append(got, seen{r.URL.Host, r.Header.Get("Authorization"), r.Header.Get("X-Other")})
		resp, err := fixedAnswer{http.StatusOK, []byte("{}")}.RoundTrip(r)
		if to := redirects[r.URL.Host]; to != "" {
			resp.StatusCode = http.StatusFound
			resp.Header.Set("Location", to)
		}
		return resp, err
	})
	transport, err := w.provider().NewTransport(base, []string{"api.example", "Store.example:8443"},
		w.options("tenant-a", testenv.Cached(t, "tenant-a"))...)
	if err != nil {
		t.Fatal(err)
	}
	send := func(t *testing.T, address, host string) error {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Other", "stays")
		if host != "" {
			req.Host = host
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if len(req.Header) != 1 {
			t.Errorf("the caller's request was changed: %v", req.Header)
		}
		return err
	}
	for name, tc := range map[string]struct {
		address, host string
		want          bool
	}{
		"named":               {"https://api.example/v1", "", true},
		"in capitals":         {"https://API.example/v1", "", true},
		"with its port":       {"https://api.example:443/v1", "", true},
		"another port":        {"https://api.example:8443/v1", "", false},
		"named with a port":   {"https://store.example:8443/", "", true},
		"without that port":   {"https://store.example/", "", false},
		"a sub-domain":        {"https://x.api.example/", "", false},
		"a longer domain":     {"https://api.example.evil.example/", "", false},
		"a prefix":            {"https://evil-api.example/", "", false},
		"the parent":          {"https://example/", "", false},
		"in the path":         {"https://evil.example/api.example", "", false},
		"in the user":         {"https://api.example@evil.example/", "", false},
		"in the query":        {"https://evil.example/?api.example", "", false},
		"a final dot":         {"https://api.example./", "", false},
		"an address":          {"https://127.0.0.1/", "", false},
		"for another host":    {"https://api.example/", "evil.example", false},
		"for the other host":  {"https://api.example/", "store.example:8443", true},
		"another one for it":  {"https://evil.example/", "api.example", false},
		"http, another port":  {"http://api.example/", "", false},
		"http, the same port": {"http://api.example:443/", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			err := send(t, tc.address, tc.host)
			if strings.HasPrefix(tc.address, "http:") {
				testenv.CheckError(t, err, auth.ErrMisconfigured, "without encryption")
				if len(got) != 0 {
					t.Errorf("it was sent: %v", got)
				}
				return
			}
			if err != nil || len(got) != 1 || strings.HasPrefix(got[0].authorization, "Bearer ey") != tc.want ||
				got[0].other != "stays" {
				t.Errorf("the service got %v, %v, want the token in it: %t", got, err, tc.want)
			}
		})
	}
	got = nil
	redirects["api.example"] = "https://evil.example/"
	if err := send(t, "https://api.example/", ""); err != nil || len(got) != 2 || got[0].authorization == "" ||
		got[1] != (seen{"evil.example", "", "stays"}) {
		t.Errorf("a redirect to another host: %v, %v", got, err)
	}
	got = nil
	redirects["api.example"] = "http://api.example/"
	if err := send(t, "https://api.example/", ""); !errors.Is(err, auth.ErrMisconfigured) || len(got) != 1 {
		t.Errorf("a redirect to http: %v, %v", got, err)
	}
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestTransportClosesTheBody(t *testing.T) {
	w := newEnvironment(t)
	transport, err := w.provider().NewTransport(nil, []string{"api.example"}, w.options("tenant-b")...)
	if err != nil {
		t.Fatal(err)
	}
	body := &closer{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example/", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, auth.ErrDenied) || !body.closed {
		t.Errorf("closed %t, %v", body.closed, err)
	}
}

func TestTransportsThatAreRefused(t *testing.T) {
	for _, hosts := range [][]string{nil, {""}, {"https://api.example"}, {"api.example/"}, {"*.example"}, {"a b"},
		{"u@api.example"}, {"api.example:0"}, {"api.example", ""}} {
		_, err := (&exchange.Provider{}).NewTransport(nil, hosts)
		testenv.CheckError(t, err, auth.ErrMisconfigured, "host")
	}
}

func TestAdaptersInvalidate(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		server := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			return fixedAnswer{http.StatusOK,
				fmt.Appendf(nil, `{"access_token":"t%d","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",`+
					`"token_type":"Bearer","expires_in":3600}`, n)}.RoundTrip(r)
		})}
		opts := func() []auth.Option {
			return w.options("tenant-a", testenv.Cached(t, "tenant-a"), auth.WithHTTPClient(server))
		}
		source := p.NewTokenSource(t.Context(), opts()...)
		testenv.CheckInvalidate(t, source, func() (string, error) {
			token, err := source.Token()
			if err != nil {
				return "", err
			}
			return token.AccessToken, nil
		})
		var sent string
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			return fixedAnswer{http.StatusUnauthorized, nil}.RoundTrip(r)
		})
		transport, err := p.NewTransport(base, []string{"api.example"}, opts()...)
		if err != nil {
			t.Fatal(err)
		}
		testenv.CheckInvalidate(t, transport, func() (string, error) {
			resp, err := (&http.Client{Transport: transport}).Get("https://api.example/") //nolint:noctx // it is sent nowhere
			if err != nil {
				return "", err
			}
			return sent, resp.Body.Close()
		})
	})
}
