package proxy_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/podidentity/proxy"
)

const secret = "b3J0aG9nb25hbA.verbatim_~"

// issuer plays the server: it checks each call and answers with new
// credentials, or with what answer writes.
type issuer struct {
	t      testing.TB
	mu     sync.Mutex
	calls  []time.Time
	tokens []string
	// answer returns false to have credentials issued.
	answer func(w http.ResponseWriter, r *http.Request, call int) bool
}

func (s *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodPost || r.URL.Path != "/v1/credentials" || r.ContentLength > 0 {
		s.t.Errorf("the proxy sends %s %s with %d bytes", r.Method, r.URL, r.ContentLength)
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.calls, s.tokens = append(s.calls, time.Now()), append(s.tokens, token)
	if s.answer == nil || !s.answer(w, r, len(s.calls)) {
		issue(w, len(s.calls), time.Now().Add(time.Hour))
	}
}

func (s *issuer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func issue(w http.ResponseWriter, number int, expires time.Time) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"AccessKeyId":"ASIA%d","SecretAccessKey":"very/secret+%d","Token":"session%d==","Expiration":%q}`,
		number, number, number, expires.UTC().Format(time.RFC3339))
}

func refuseWith(w http.ResponseWriter, status int, code, message string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Code": code, "Message": message})
	return true
}

// refusing is a server that refuses all calls.
func refusing(t testing.TB, status int, code, message string) *issuer {
	return &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		return refuseWith(w, status, code, message)
	}}
}

// issuing is a server whose credentials have a lifetime.
func issuing(t testing.TB, lifetime time.Duration) *issuer {
	return &issuer{t: t, answer: func(w http.ResponseWriter, _ *http.Request, call int) bool {
		issue(w, call, time.Now().Add(lifetime))
		return true
	}}
}

// inMemory hands requests to a handler without a network, which synctest needs.
type inMemory struct{ handler http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func tokenFile(t testing.TB, token string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// newProxy returns a proxy with a server in memory.
func newProxy(t testing.TB, server http.Handler, changes ...func(*proxy.Options)) *proxy.Proxy {
	t.Helper()
	o := proxy.Options{Server: "https://iam.example:8443", TokenFile: tokenFile(t, "pod-token"), Secret: secret,
		Client: &http.Client{Transport: inMemory{server}}}
	for _, change := range changes {
		change(&o)
	}
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// running returns a proxy that runs until the test ends.
func running(t testing.TB, server http.Handler, changes ...func(*proxy.Options)) *proxy.Proxy {
	t.Helper()
	p := newProxy(t, server, changes...)
	run(t, p)
	return p
}

// run runs the proxy until the test ends.
func run(t testing.TB, p *proxy.Proxy) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass lets fake time pass, and then everything that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// answer is what an application sees.
type answer struct {
	status int
	header http.Header
	body   string

	AccessKeyID                        string `json:"AccessKeyId"`
	SecretAccessKey, Token, Expiration string
	Code, Message                      string
}

func read(t testing.TB, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
	if err := json.Unmarshal(body, &a); err != nil && len(body) > 0 {
		t.Errorf("the body %q: %v", body, err)
	}
	return a
}

// ask calls the handler as an application of the pod, without a network.
func ask(t testing.TB, p *proxy.Proxy) answer {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request(t.Context()))
	return read(t, w.Result())
}

func request(ctx context.Context) *http.Request {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2020}
	r := httptest.NewRequestWithContext(context.WithValue(ctx, http.LocalAddrContextKey, local), http.MethodGet,
		"/v1/credentials", nil)
	r.Host, r.RemoteAddr = "127.0.0.1:2020", "127.0.0.1:40000"
	r.Header.Set("Authorization", secret)
	return r
}

// startServer starts a server with TLS and returns options of a proxy that
// trusts it.
func startServer(t testing.TB, handler http.Handler) proxy.Options {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return proxy.Options{Server: server.URL, CA: ca, TokenFile: tokenFile(t, "pod-token"), Secret: secret}
}

// start runs a whole proxy on the loopback and returns its addresses.
func start(t testing.TB, o proxy.Options) []string {
	t.Helper()
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, p)
	return serve(t, p)
}

func serve(t testing.TB, handler http.Handler) (addresses []string) {
	t.Helper()
	listeners, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- proxy.Serve(ctx, handler, listeners) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, l := range listeners {
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func get(t testing.TB, address string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/credentials", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}
