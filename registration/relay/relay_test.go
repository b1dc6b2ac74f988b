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
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
)

// ca signs client certificates.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB) *ca {
	t.Helper()
	c := &ca{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
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
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: agentUser, Organization: []string{agentGroup, allAgents}},
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
	return c.issue(t, func(template *x509.Certificate) { template.Subject = pkix.Name{CommonName: user, Organization: groups} })
}

// world is a hub, which keeps the requests that it got, and a relay in front of it.
type world struct {
	ca     *ca
	hub    *httptest.Server
	relay  *httptest.Server
	answer http.HandlerFunc // of the hub
	ahead  atomic.Int64     // of the relay's clock
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

func newWorld(t testing.TB, answer http.HandlerFunc) *world {
	t.Helper()
	w := &world{ca: newCA(t), answer: answer, logged: &syncBuffer{}}
	w.log = log.New(w.logged, "", 0)
	w.hub = httptest.NewUnstartedServer(http.HandlerFunc(w.serveHub))
	w.hub.EnableHTTP2 = true
	w.hub.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.hub.StartTLS()
	t.Cleanup(w.hub.Close)
	w.start(t, w.options(), relay.TLSConfig(w.ca.pool()))
	return w
}

func (w *world) options() relay.Options {
	return relay.Options{Hub: w.config(), ClientCAs: w.ca.pool(), ErrorLog: w.log,
		Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }}
}

func (w *world) config() *rest.Config {
	return &rest.Config{Host: w.hub.URL, BearerToken: ownToken, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.hub.Certificate().Raw})}}
}

// start starts the relay.
func (w *world) start(t testing.TB, o relay.Options, config *tls.Config) {
	t.Helper()
	handler, err := relay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.relay = httptest.NewUnstartedServer(handler)
	w.relay.TLS, w.relay.EnableHTTP2 = config, true
	w.relay.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.relay.StartTLS()
	t.Cleanup(w.relay.Close)
}

func (w *world) serveHub(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	if w.answer != nil {
		w.answer(rw, r)
	}
}

// got returns the only request that the hub has got since the last call, or nil.
func (w *world) got(t testing.TB) *http.Request {
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

// client presents the certificate, if any, also to a server that does not ask for one of its CA.
func (w *world) client(t testing.TB, cert *tls.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(w.relay.Certificate())
	config := &tls.Config{RootCAs: roots}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, DisableCompression: true, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// answered is an answer of the relay.
type answered struct {
	code   int
	header http.Header
	body   string
}

// send sends a request. What comes back must not show the relay's credential.
func (w *world) send(t testing.TB, cert *tls.Certificate, method, path string, body io.Reader, header http.Header) answered {
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

func (w *world) get(t testing.TB, cert *tls.Certificate, header http.Header) answered {
	t.Helper()
	return w.send(t, cert, http.MethodGet, "/api", nil, header)
}

func (a answered) expectNoSecret(t testing.TB, w *world) {
	t.Helper()
	var all strings.Builder
	_ = a.header.Write(&all)
	all.WriteString(a.body)
	if strings.Contains(all.String(), ownToken) || strings.Contains(all.String(), w.hub.Listener.Addr().String()) || strings.Contains(w.logged.String(), ownToken) {
		t.Errorf("the answer shows the relay's credential or the hub's address: %s", all.String())
	}
}

// expect expects an answer of the relay itself, in the form of the API server's.
func (a answered) expect(t testing.TB, code int, message string) {
	t.Helper()
	status := metav1.Status{}
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("answer %d, %q, %q: %v", a.code, a.header, a.body, err)
	}
	if a.code != code || int(status.Code) != code || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure ||
		status.Reason == "" || !strings.Contains(status.Message, message) {
		t.Errorf("answer %d, %+v lacks %d, %q", a.code, status, code, message)
	}
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

func TestCertificateIsImpersonated(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "from the hub") })
	const addon = "system:open-cluster-management:cluster:cluster1:addon:metrics"
	for name, c := range map[string]struct {
		user   string
		groups []string
	}{
		"cluster's agent":    {agentUser, []string{agentGroup, allAgents}},
		"add-on's agent":     {addon + ":agent:agent1", []string{"system:open-cluster-management:addon:metrics", addon}},
		"user without group": {agentUser, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.get(t, w.ca.named(t, c.user, c.groups...), nil); a.code != http.StatusOK || a.body != "from the hub" {
				t.Errorf("answer %+v", a)
			}
			got := w.got(t)
			if got.Header.Get("Authorization") != "Bearer "+ownToken || !slices.Equal(got.Header.Values("Impersonate-User"), []string{c.user}) ||
				!slices.Equal(got.Header.Values("Impersonate-Group"), c.groups) || got.Header.Get("Accept-Encoding") != "" {
				t.Errorf("the hub got %q", got.Header)
			}
		})
	}
}

func TestCertificateOfIntermediateCA(t *testing.T) {
	w := newWorld(t, nil)
	between := &ca{key: newKey(t)}
	between.cert = w.ca.create(t, &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "between"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, w.ca.cert, between.key)
	cert := between.issue(t, nil)
	w.get(t, cert, nil).expect(t, http.StatusUnauthorized, "unknown authority")
	cert.Certificate = append(cert.Certificate, between.cert.Raw)
	if a := w.get(t, cert, nil); a.code != http.StatusOK {
		t.Errorf("answer %+v", a)
	}
}

func TestBearerGoesThroughUnchanged(t *testing.T) {
	w := newWorld(t, nil)
	for _, value := range []string{"Bearer abcdef.0123456789abcdef", "bearer abc", "Bearer a b"} {
		t.Run(value, func(t *testing.T) {
			if a := w.get(t, nil, http.Header{"Authorization": {value}}); a.code != http.StatusOK {
				t.Errorf("answer %+v", a)
			}
			got := w.got(t)
			if !slices.Equal(got.Header.Values("Authorization"), []string{value}) || got.Header.Get("Impersonate-User") != "" {
				t.Errorf("the hub got %q", got.Header)
			}
		})
	}
	t.Run("the relay has a certificate", func(t *testing.T) {
		var peers atomic.Int64
		hub := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { peers.Store(int64(len(r.TLS.PeerCertificates))) }))
		hub.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		hub.StartTLS()
		defer hub.Close()
		own := w.ca.named(t, "relay")
		der, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{ca: w.ca, hub: hub, logged: &syncBuffer{}}
		config := w.config()
		config.BearerToken = ""
		config.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
		config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		handler, err := relay.New(relay.Options{Hub: config, ClientCAs: w.ca.pool()})
		if err != nil {
			t.Fatal(err)
		}
		w.relay = httptest.NewUnstartedServer(handler)
		w.relay.TLS = relay.TLSConfig(w.ca.pool())
		w.relay.StartTLS()
		defer w.relay.Close()
		for _, c := range []struct {
			cert   *tls.Certificate
			header http.Header
			want   int64
		}{{w.ca.issue(t, nil), nil, 1}, {nil, bearer("abc"), 0}, {w.ca.issue(t, nil), nil, 1}} {
			if a := w.get(t, c.cert, c.header); a.code != http.StatusOK || peers.Load() != c.want {
				t.Errorf("answer %+v, the hub saw %d certificates of the relay instead of %d", a, peers.Load(), c.want)
			}
		}
	})
}

func TestRefusedCredentials(t *testing.T) {
	w := newWorld(t, nil)
	agent := w.ca.issue(t, nil)
	plus := func(header http.Header, name string, values ...string) http.Header {
		h := maps.Clone(header)
		if h == nil {
			h = http.Header{}
		}
		h[name] = values
		return h
	}
	for name, c := range map[string]struct {
		cert    *tls.Certificate
		header  http.Header
		code    int
		message string
	}{
		"neither certificate nor bearer":         {nil, nil, 401, "client certificate"},
		"basic authentication":                   {nil, http.Header{"Authorization": {"Basic YTpi"}}, 401, "bearer"},
		"bearer without a token":                 {nil, http.Header{"Authorization": {"Bearer"}}, 401, "bearer"},
		"two bearers":                            {nil, http.Header{"Authorization": {"Bearer a", "Bearer b"}}, 401, "one bearer"},
		"certificate of another CA":              {newCA(t).issue(t, nil), nil, 401, "unknown authority"},
		"certificate that signed itself":         {selfSigned(t), nil, 401, "unknown authority"},
		"expired certificate":                    {w.ca.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), nil, 401, "expired"},
		"certificate that is not valid yet":      {w.ca.issue(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), nil, 401, "not yet valid"},
		"certificate of a server":                {w.ca.issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), nil, 401, "usage"},
		"expired certificate and a bearer":       {w.ca.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), bearer("a"), 400, "not both"},
		"certificate and a bearer":               {agent, bearer("a"), 400, "not both"},
		"certificate and an empty Authorization": {agent, http.Header{"Authorization": {""}}, 400, "not both"},
		"certificate and Impersonate-User":       {agent, plus(nil, "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"certificate and Impersonate-Group":      {agent, plus(nil, "Impersonate-Group", "system:masters"), 400, "Impersonate-*"},
		"certificate and Impersonate-Uid":        {agent, plus(nil, "Impersonate-Uid", "1"), 400, "Impersonate-*"},
		"certificate and Impersonate-Extra":      {agent, plus(nil, "Impersonate-Extra-Scopes%2fa", "b"), 400, "Impersonate-*"},
		"certificate and impersonate in capitals": {agent, plus(nil, "IMPERSONATE-USER",
			"admin"), 400, "Impersonate-*"},
		"bearer and Impersonate-User":         {nil, plus(bearer("a"), "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"Impersonate-User alone":              {nil, plus(nil, "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"administrator":                       {w.ca.named(t, "admin", "system:masters"), nil, 403, "admin"},
		"agent who is an administrator too":   {w.ca.named(t, agentUser, agentGroup, "system:masters"), nil, 403, "system:masters"},
		"group of agents and another user":    {w.ca.named(t, "system:kube-controller-manager", agentGroup), nil, 403, "system:kube-controller-manager"},
		"node":                                {w.ca.named(t, "system:node:a", "system:nodes"), nil, 403, "system:node:a"},
		"name that only contains the prefix":  {w.ca.named(t, "x"+agentUser, agentGroup), nil, 403, "x" + agentUser},
		"no name":                             {w.ca.named(t, "", agentGroup), nil, 403, `""`},
		"group with a space at its end":       {w.ca.named(t, agentUser, agentGroup+" "), nil, 403, "cluster1 "},
		"group with a line break":             {w.ca.named(t, agentUser, agentGroup+"\r\nImpersonate-Group: system:masters"), nil, 403, "cluster1"},
		"user with letters that are no ASCII": {w.ca.named(t, agentUser+"ä", agentGroup), nil, 403, "agent1"},
		"upgrade to a websocket":              {agent, upgrade("websocket"), 400, "exec"},
		"upgrade to SPDY":                     {agent, upgrade("SPDY/3.1"), 400, "exec"},
		"upgrade with a bearer":               {nil, plus(upgrade("websocket"), "Authorization", "Bearer a"), 400, "exec"},
		"upgrade to h2c":                      {nil, plus(upgrade("h2c"), "Authorization", "Bearer a"), 400, "exec"},
	} {
		t.Run(name, func(t *testing.T) {
			w.sendHTTP1(t, c.cert, c.header).expect(t, c.code, c.message)
			if c.header.Get("Upgrade") == "" {
				w.get(t, c.cert, c.header).expect(t, c.code, c.message)
			}
			if got := w.got(t); got != nil {
				t.Errorf("the hub got %q", got.Header)
			}
		})
	}
}

func upgrade(to string) http.Header { return http.Header{"Connection": {"Upgrade"}, "Upgrade": {to}} }

func selfSigned(t *testing.T) *tls.Certificate {
	c := newCA(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: agentUser}, NotAfter: time.Now().Add(time.Hour)}
	return &tls.Certificate{Certificate: [][]byte{c.create(t, template, template, c.key).Raw}, PrivateKey: c.key}
}

// sendHTTP1 writes the request line and the headers itself.
func (w *world) sendHTTP1(t testing.TB, cert *tls.Certificate, header http.Header) answered {
	t.Helper()
	var request strings.Builder
	request.WriteString("GET /api HTTP/1.1\r\nHost: relay\r\n")
	_ = header.Write(&request)
	return w.raw(t, cert, request.String()+"\r\n")
}

func (w *world) raw(t testing.TB, cert *tls.Certificate, request string) answered {
	t.Helper()
	return w.write(t, cert, request, false)
}

// rawThenEOF sends nothing more after the request.
func (w *world) rawThenEOF(t testing.TB, cert *tls.Certificate, request string) answered {
	t.Helper()
	return w.write(t, cert, request, true)
}

func (w *world) write(t testing.TB, cert *tls.Certificate, request string, eof bool) answered {
	t.Helper()
	config := w.client(t, cert).Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:forcetypeassert // made above
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", w.relay.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if eof {
		if err := conn.(*tls.Conn).CloseWrite(); err != nil { //nolint:forcetypeassert // dialed above
			t.Fatal(err)
		}
	}
	method, _, _ := strings.Cut(request, " ")
	return readAnswer(t, w, conn, method)
}

func TestServerThatAsksForNoCertificate(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		auth tls.ClientAuthType
		cert *tls.Certificate
		code int
	}{
		"nothing asked":                   {tls.NoClientCert, w.ca.issue(t, nil), 401},
		"any certificate, and a good one": {tls.RequireAnyClientCert, w.ca.issue(t, nil), 200},
		"any certificate, and a foreign":  {tls.RequireAnyClientCert, newCA(t).issue(t, nil), 401},
		"verified, and a good one":        {tls.VerifyClientCertIfGiven, w.ca.issue(t, nil), 200},
	} {
		t.Run(name, func(t *testing.T) {
			w.start(t, w.options(), &tls.Config{ClientAuth: c.auth, ClientCAs: w.ca.pool(), MinVersion: tls.VersionTLS12})
			if a := w.get(t, c.cert, nil); a.code != c.code {
				t.Errorf("answer %+v", a)
			}
			if got := w.got(t); (got != nil) != (c.code == 200) {
				t.Errorf("the hub got %+v", got)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		handler, err := relay.New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		recorder, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		request.Header = bearer("a")
		handler.ServeHTTP(recorder, request)
		answered{recorder.Code, recorder.Header(), recorder.Body.String()}.expect(t, 400, "https")
		if w.got(t) != nil {
			t.Error("the hub got it")
		}
	})
}

// A certificate that expires while its connection lives is refused from then on.
func TestCertificateExpiresDuringAConnection(t *testing.T) {
	w := newWorld(t, nil)
	var connections atomic.Int64
	c := w.client(t, w.ca.issue(t, nil))
	get := func() *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.relay.URL+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return answer
	}
	c.Transport.(*http.Transport).TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { connections.Add(1); return nil } //nolint:forcetypeassert // made above
	if a := get(); a.StatusCode != http.StatusOK {
		t.Fatalf("answer %d", a.StatusCode)
	}
	w.ahead.Store(int64(time.Hour))
	if a := get(); a.StatusCode != http.StatusUnauthorized || connections.Load() != 1 {
		t.Errorf("answer %d on connection %d", a.StatusCode, connections.Load())
	}
	w.got(t)
}

func TestNewRefuses(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		change  func(*relay.Options)
		message string
	}{
		"no hub":                        {func(o *relay.Options) { o.Hub = nil }, "Hub"},
		"no client CAs":                 {func(o *relay.Options) { o.ClientCAs = nil }, "ClientCAs"},
		"hub without TLS":               {func(o *relay.Options) { o.Hub.Host = "http://hub" }, "https"},
		"hub without scheme":            {func(o *relay.Options) { o.Hub.Host = "hub:6443" }, "https"},
		"hub with a path":               {func(o *relay.Options) { o.Hub.Host = "https://hub/k8s/c" }, "https"},
		"hub with a password":           {func(o *relay.Options) { o.Hub.Host = "https://a:secret@hub" }, "https"},
		"hub that need not be verified": {func(o *relay.Options) { o.Hub.TLSClientConfig = rest.TLSClientConfig{Insecure: true} }, "verified"},
		"CA that cannot be read":        {func(o *relay.Options) { o.Hub.CAData, o.Hub.CAFile = nil, "missing" }, "transport"},
	} {
		t.Run(name, func(t *testing.T) {
			o := w.options()
			c.change(&o)
			if _, err := relay.New(o); err == nil || !strings.Contains(err.Error(), c.message) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}
