package relay_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/registration/relay"
)

const (
	ownToken   = "relay-own-secret"
	agentUser  = "system:open-cluster-management:cluster1:agent1"
	agentGroup = "system:open-cluster-management:cluster1"
	allAgents  = "system:open-cluster-management:managed-clusters"
	// testAddress is the header that sets the remote address of a request.
	testAddress = "Test-Address"
)

// ca signs client certificates.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB) *ca {
	t.Helper()
	c := &ca{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c.cert = c.create(t, template, template, c.key)
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (c *ca) create(t testing.TB, template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// issue returns the certificate of an agent for an hour, with changes.
func (c *ca) issue(t testing.TB, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2),
		Subject:   pkix.Name{CommonName: agentUser, Organization: []string{agentGroup, allAgents}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	key := newKey(t)
	return &tls.Certificate{Certificate: [][]byte{c.create(t, template, c.cert, key).Raw}, PrivateKey: key}
}

func (c *ca) named(t testing.TB, user string, groups ...string) *tls.Certificate {
	t.Helper()
	return c.issue(t, func(template *x509.Certificate) {
		template.Subject = pkix.Name{CommonName: user, Organization: groups}
	})
}

// environment is a hub, which keeps the requests that it got, and a relay in
// front of it.
type environment struct {
	ca     *ca
	hub    *httptest.Server
	relay  *httptest.Server
	answer http.HandlerFunc // of the hub
	log    *log.Logger
	logged *syncBuffer

	mu   sync.Mutex
	seen []*http.Request
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newEnvironment(t testing.TB, answer http.HandlerFunc) *environment {
	t.Helper()
	w := &environment{ca: newCA(t), answer: answer, logged: &syncBuffer{}}
	w.log = log.New(w.logged, "", 0)
	w.hub = httptest.NewUnstartedServer(http.HandlerFunc(w.serveHub))
	w.hub.EnableHTTP2 = true
	w.hub.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.hub.StartTLS()
	t.Cleanup(w.hub.Close)
	w.start(t, w.options(), relay.TLSConfig(w.ca.pool()))
	return w
}

func (w *environment) options() relay.Options {
	return relay.Options{Hub: w.config(), ClientCAs: w.ca.pool(), ErrorLog: w.log}
}

func (w *environment) config() *rest.Config {
	return &rest.Config{Host: w.hub.URL, BearerToken: ownToken, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.hub.Certificate().Raw})}}
}

// start starts the relay.
func (w *environment) start(t testing.TB, o relay.Options, config *tls.Config) {
	t.Helper()
	handler, err := relay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.relay = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if address := r.Header.Get(testAddress); address != "" {
			r.RemoteAddr = address
		}
		handler.ServeHTTP(rw, r)
	}))
	w.relay.Listener = relay.LimitListener(w.relay.Listener, 1000, 1000)
	w.relay.TLS, w.relay.EnableHTTP2 = config, true
	w.relay.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.relay.StartTLS()
	t.Cleanup(w.relay.Close)
}

func (w *environment) serveHub(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	if w.answer != nil {
		w.answer(rw, r)
	}
}

// got returns the only request that the hub has got since the last call, or
// nil.
func (w *environment) got(t testing.TB) *http.Request {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	switch len(seen) {
	case 0:
		return nil
	case 1:
		return seen[0]
	}
	t.Fatalf("the hub got %d requests", len(seen))
	return nil
}

// client presents the certificate, if any, also to a server that does not ask
// for one of its CA.
func (w *environment) client(t testing.TB, cert *tls.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(w.relay.Certificate())
	config := &tls.Config{RootCAs: roots}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, DisableCompression: true, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// answered is an answer of the relay.
type answered struct {
	code   int
	header http.Header
	body   string
}

// send sends a request. What comes back must not show the relay's credential.
func (w *environment) send(t testing.TB, cert *tls.Certificate, method, path string, body io.Reader,
	header http.Header) answered {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.relay.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		request.Header = header.Clone()
	}
	answer, err := w.client(t, cert).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answered{answer.StatusCode, answer.Header, string(content)}
	a.expectNoSecret(t, w)
	return a
}

func (w *environment) get(t testing.TB, cert *tls.Certificate, header http.Header) answered {
	t.Helper()
	return w.send(t, cert, http.MethodGet, "/api", nil, header)
}

func (a answered) expectNoSecret(t testing.TB, w *environment) {
	t.Helper()
	var all strings.Builder
	_ = a.header.Write(&all)
	all.WriteString(a.body)
	if strings.Contains(all.String(), ownToken) || strings.Contains(all.String(), w.hub.Listener.Addr().String()) ||
		strings.Contains(w.logged.String(), ownToken) {
		t.Errorf("the answer shows the relay's credential or the hub's address: %s", all.String())
	}
}

// expect expects an answer of the relay itself, in the form of the API
// server's.
func (a answered) expect(t testing.TB, code int, message string) {
	t.Helper()
	status := metav1.Status{}
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("answer %d, %q, %q: %v", a.code, a.header, a.body, err)
	}
	if a.code != code || int(status.Code) != code || status.Kind != "Status" || status.APIVersion != "v1" ||
		status.Status != metav1.StatusFailure || status.Reason == "" || !strings.Contains(status.Message, message) {
		t.Errorf("answer %d, %+v lacks %d, %q", a.code, status, code, message)
	}
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// sendHTTP1 writes the request line and the headers itself.
func (w *environment) sendHTTP1(t testing.TB, cert *tls.Certificate, header http.Header) answered {
	t.Helper()
	var request strings.Builder
	request.WriteString("GET /api HTTP/1.1\r\nHost: relay\r\n")
	_ = header.Write(&request)
	return w.raw(t, cert, request.String()+"\r\n")
}

func (w *environment) raw(t testing.TB, cert *tls.Certificate, request string) answered {
	t.Helper()
	return w.write(t, cert, request, false)
}

// rawThenEOF sends nothing more after the request.
func (w *environment) rawThenEOF(t testing.TB, cert *tls.Certificate, request string) answered {
	t.Helper()
	return w.write(t, cert, request, true)
}

// dial connects with HTTP/1.
func (w *environment) dial(t testing.TB, cert *tls.Certificate) *tls.Conn {
	t.Helper()
	config := w.client(t, cert).Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:forcetypeassert // made above
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", w.relay.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*tls.Conn) //nolint:forcetypeassert // dialed above
}

func (w *environment) write(t testing.TB, cert *tls.Certificate, request string, eof bool) answered {
	t.Helper()
	conn := w.dial(t, cert)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if eof {
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	method, _, _ := strings.Cut(request, " ")
	return readAnswer(t, w, conn, method)
}
