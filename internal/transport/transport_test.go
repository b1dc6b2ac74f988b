package transport_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, c *http.Client, target string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func client(t *testing.T, p *transport.Pool, proxy *url.URL, ca string) *http.Client {
	t.Helper()
	c, err := p.Client(proxy, ca)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestConnectionsAreShared(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { connections.Add(1); return ctx }
	server.StartTLS()
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	var pool transport.Pool
	for range 10 {
		if body, err := get(t, client(t, &pool, nil, ca), server.URL); err != nil || body != "hello" {
			t.Fatalf("got the body %q and the error %v, want \"hello\"", body, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for ten requests", n)
	}
	if client(t, &pool, nil, ca) == client(t, &pool, nil, "") {
		t.Error("different certificate authorities share a client")
	}
	if _, err := get(t, client(t, &pool, nil, ""), server.URL); err == nil {
		t.Error("a certificate that the system does not trust was accepted")
	}
	pool.CloseIdleConnections()
}

func TestWhatAServerMayNotDo(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/stolen", http.StatusTemporaryRedirect)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := client(t, &transport.Pool{}, nil, "")
	if _, err := get(t, c, server.URL+"/redirect"); err == nil ||
		!strings.Contains(transport.Message(err),
			strconv.Quote(strings.TrimPrefix(server.URL, "http://"))+": refused to follow a redirect") {
		t.Errorf("redirect: %v", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status, size int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d/%d", &status, &size)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Repeat("a", size))
	}))
	defer server.Close()
	whole := client(t, &transport.Pool{}, nil, "")
	tokens := transport.ForTokens(whole)
	outside := transport.Derive(tokens, func(*http.Transport) {})
	defer outside.CloseIdleConnections()
	for name, tc := range map[string]struct {
		client *http.Client
		status int
		limit  int
	}{
		"an object":                   {whole, 200, transport.MaxBody},
		"a refusal":                   {whole, 403, transport.MaxToken},
		"a failure":                   {whole, 503, transport.MaxToken},
		"a token":                     {tokens, 200, transport.MaxToken},
		"no token":                    {tokens, 400, transport.MaxToken},
		"a token of a derived client": {outside, 200, transport.MaxToken},
		"a token of a guarded client": {transport.Guard(tokens), 200, transport.MaxToken},
	} {
		t.Run(name, func(t *testing.T) {
			at := func(size int) string { return fmt.Sprintf("%s/%d/%d", server.URL, tc.status, size) }
			if body, err := get(t, tc.client, at(tc.limit)); err != nil || len(body) != tc.limit {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			var tooLarge *http.MaxBytesError
			if _, err := get(t, tc.client, at(tc.limit+1)); !errors.As(err, &tooLarge) || tooLarge.Limit != int64(tc.limit) {
				t.Errorf("one byte more: %v", err)
			}
		})
	}
}

// The controller's own identity travels over plain http from agents and
// metadata services, which environment variables name.
func TestPlainHTTPIsDialledDirectly(t *testing.T) {
	alias := testenv.Alias(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })
	proxy, asked := testenv.RefusingProxy(t)
	c := client(t, &transport.Pool{}, proxy, "")
	body, err := get(t, c, alias)
	if err != nil || body != "secret" || len(asked()) != 0 {
		t.Errorf("%q, %v; the proxy was asked %q", body, err, asked())
	}
	if _, err := get(t, c, "https://sts.example/"); err == nil || !slices.Contains(asked(), "CONNECT sts.example:443") {
		t.Errorf("%v; the proxy was asked %q", err, asked())
	}
}

func TestProxyIsNotUsedForLocalServices(t *testing.T) {
	own := httptest.NewTLSServer(http.NotFoundHandler())
	defer own.Close()
	proxy, asked := testenv.RefusingProxy(t)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw}))
	if _, err := get(t, client(t, &transport.Pool{}, proxy, ca), own.URL); err != nil || len(asked()) != 0 {
		t.Errorf("loopback went through the proxy: %q, %v", asked(), err)
	}
}

func TestProxyOfAHost(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy.example:3128"}
	for address, want := range map[string]*url.URL{
		"https://sts.example":                proxy,
		"https://10.0.0.1":                   proxy,
		"https://169.255.0.1":                proxy,
		"http://sts.example":                 nil,
		"https://localhost":                  nil,
		"https://127.0.0.2:8443":             nil,
		"https://[::1]":                      nil,
		"https://169.254.169.254":            nil,
		"https://169.254.170.23":             nil,
		"https://[::ffff:169.254.169.254]":   nil,
		"https://[fe80::1]":                  nil,
		"https://[fd00:ec2::254]":            nil,
		"https://metadata":                   nil,
		"https://Metadata.Google.Internal./": nil,
	} {
		t.Run(address, func(t *testing.T) {
			to, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			through := &http.Transport{}
			transport.UseProxy(through, proxy)
			if got, err := through.Proxy(&http.Request{URL: to}); err != nil || got != want {
				t.Errorf("got the proxy %v, %v, want %v", got, err, want)
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if _, err := get(t, client(t, &transport.Pool{}, nil, ca), server.URL); err == nil ||
		!strings.Contains(err.Error(), "protocol version") {
		t.Errorf("got %v, want a refused protocol version", err)
	}
}

func TestBadCertificateAuthority(t *testing.T) {
	if _, err := (&transport.Pool{}).Client(nil, "secret"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestPoolIsBounded(t *testing.T) {
	var pool transport.Pool
	first := client(t, &pool, &url.URL{Scheme: "http", Host: "proxy-0"}, "")
	for i := range 100 {
		client(t, &pool, &url.URL{Scheme: "http", Host: fmt.Sprintf("proxy-%d", i+1)}, "")
	}
	if client(t, &pool, &url.URL{Scheme: "http", Host: "proxy-0"}, "") == first {
		t.Error("clients of a hundred proxies are kept")
	}
}
