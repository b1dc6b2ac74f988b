package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/registration/relay"
)

func TestCertificateIsImpersonated(t *testing.T) {
	w := newEnvironment(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "from the hub") })
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
			if got.Header.Get("Authorization") != "Bearer "+ownToken ||
				!slices.Equal(got.Header.Values("Impersonate-User"), []string{c.user}) ||
				!slices.Equal(got.Header.Values("Impersonate-Group"), c.groups) || got.Header.Get("Accept-Encoding") != "" {
				t.Errorf("the hub got %q", got.Header)
			}
		})
	}
}

func TestBearerGoesThroughUnchanged(t *testing.T) {
	w := newEnvironment(t, nil)
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
		hub := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			peers.Store(int64(len(r.TLS.PeerCertificates)))
		}))
		hub.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		hub.StartTLS()
		defer hub.Close()
		own := w.ca.named(t, "relay")
		der, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		w := &environment{ca: w.ca, hub: hub, logged: &syncBuffer{}}
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
	w := newEnvironment(t, nil)
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
		"neither certificate nor bearer": {nil, nil, 401, "client certificate"},
		"basic authentication":           {nil, http.Header{"Authorization": {"Basic YTpi"}}, 401, "bearer"},
		"bearer without a token":         {nil, http.Header{"Authorization": {"Bearer"}}, 401, "bearer"},
		"two bearers": {nil, http.Header{"Authorization": {"Bearer a", "Bearer b"}}, 401,
			"one bearer"},
		"certificate of another CA":      {newCA(t).issue(t, nil), nil, 401, "unknown authority"},
		"certificate that signed itself": {selfSigned(t), nil, 401, "unknown authority"},
		"expired certificate": {w.ca.issue(t, func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Second)
		}), nil, 401, "expired"},
		"certificate that is not valid yet": {w.ca.issue(t, func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Minute)
		}), nil, 401, "not yet valid"},
		"certificate of a server": {w.ca.issue(t, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), nil, 401, "usage"},
		"expired certificate and a bearer": {w.ca.issue(t, func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Second)
		}), bearer("a"), 400, "not both"},
		"certificate and a bearer":               {agent, bearer("a"), 400, "not both"},
		"certificate and an empty Authorization": {agent, http.Header{"Authorization": {""}}, 400, "not both"},
		"certificate and Impersonate-User":       {agent, plus(nil, "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"certificate and Impersonate-Group": {agent, plus(nil, "Impersonate-Group", "system:masters"), 400,
			"Impersonate-*"},
		"certificate and Impersonate-Uid": {agent, plus(nil, "Impersonate-Uid", "1"), 400, "Impersonate-*"},
		"certificate and Impersonate-Extra": {agent, plus(nil, "Impersonate-Extra-Scopes%2fa", "b"), 400,
			"Impersonate-*"},
		"certificate and impersonate in capitals": {agent, plus(nil, "IMPERSONATE-USER",
			"admin"), 400, "Impersonate-*"},
		"bearer and Impersonate-User": {nil, plus(bearer("a"), "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"Impersonate-User alone":      {nil, plus(nil, "Impersonate-User", "admin"), 400, "Impersonate-*"},
		"administrator":               {w.ca.named(t, "admin", "system:masters"), nil, 403, "admin"},
		"agent who is an administrator too": {w.ca.named(t, agentUser, agentGroup, "system:masters"), nil, 403,
			"system:masters"},
		"group of agents and another user": {w.ca.named(t, "system:kube-controller-manager", agentGroup), nil, 403,
			"system:kube-controller-manager"},
		"node":                               {w.ca.named(t, "system:node:a", "system:nodes"), nil, 403, "system:node:a"},
		"name that only contains the prefix": {w.ca.named(t, "x"+agentUser, agentGroup), nil, 403, "x" + agentUser},
		"no name":                            {w.ca.named(t, "", agentGroup), nil, 403, `""`},
		"group with a space at its end":      {w.ca.named(t, agentUser, agentGroup+" "), nil, 403, "cluster1 "},
		"group with a line break": {w.ca.named(t, agentUser, agentGroup+"\r\nImpersonate-Group: system:masters"),
			nil, 403, "cluster1"},
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
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: agentUser},
		NotAfter: time.Now().Add(time.Hour)}
	return &tls.Certificate{Certificate: [][]byte{c.create(t, template, template, c.key).Raw}, PrivateKey: c.key}
}

func TestServerThatAsksForNoCertificate(t *testing.T) {
	w := newEnvironment(t, nil)
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

// A certificate that expires while its connection lives is refused from then
// on: each request is verified.
func TestCertificateExpiresDuringAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t)
		handler, certificate := newHandler(t, ca, 0), ca.leaf(t)
		for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			if recorder := record(t, handler, certificate); recorder.Code != want {
				t.Errorf("answer %d, not %d: %s", recorder.Code, want, recorder.Body)
			}
			time.Sleep(time.Hour + time.Second) // of fake time
		}
	})
}

// A request counts against its budget until its answer ends.
func TestAnsweredRequestsFreeTheirSlots(t *testing.T) {
	ca := newCA(t)
	handler := newHandler(t, ca, 1)
	for name, tc := range map[string]struct {
		certificates   []*x509.Certificate
		requests, want int
	}{
		"certificate":   {[]*x509.Certificate{ca.leaf(t)}, 2, http.StatusOK},
		"no credential": {nil, 257, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.requests {
				if recorder := record(t, handler, tc.certificates...); recorder.Code != tc.want {
					t.Fatalf("request %d: answer %d, want %d", i+1, recorder.Code, tc.want)
				}
			}
		})
	}
}

// newHandler returns a relay whose hub answers 200.
func newHandler(t *testing.T, ca *ca, maxRequests int) http.Handler {
	t.Helper()
	hub := &rest.Config{Host: "https://hub.example.com", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return okTransport{}
	}}
	handler, err := relay.New(relay.Options{Hub: hub, ClientCAs: ca.pool(), MaxRequests: maxRequests,
		ErrorLog: log.New(io.Discard, "", 0)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// record returns the answer to a request once its handler has returned.
func record(t *testing.T, handler http.Handler, certificates ...*x509.Certificate) *httptest.ResponseRecorder {
	t.Helper()
	recorder, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
	request.TLS = &tls.ConnectionState{PeerCertificates: certificates}
	handler.ServeHTTP(recorder, request)
	return recorder
}

// okTransport is a hub.
type okTransport struct{}

func (okTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
}

func TestNewRefuses(t *testing.T) {
	w := newEnvironment(t, nil)
	for name, c := range map[string]struct {
		change  func(*relay.Options)
		message string
	}{
		"no hub":              {func(o *relay.Options) { o.Hub = nil }, "Hub"},
		"no client CAs":       {func(o *relay.Options) { o.ClientCAs = nil }, "ClientCAs"},
		"hub without TLS":     {func(o *relay.Options) { o.Hub.Host = "http://hub" }, "https"},
		"hub without scheme":  {func(o *relay.Options) { o.Hub.Host = "hub:6443" }, "https"},
		"hub with a path":     {func(o *relay.Options) { o.Hub.Host = "https://hub/k8s/c" }, "https"},
		"hub with a password": {func(o *relay.Options) { o.Hub.Host = "https://a:secret@hub" }, "https"},
		"hub that need not be verified": {func(o *relay.Options) {
			o.Hub.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
		}, "verified"},
		"CA that cannot be read": {func(o *relay.Options) {
			o.Hub.CAData, o.Hub.CAFile = nil, "missing"
		}, "transport"},
	} {
		t.Run(name, func(t *testing.T) {
			o := w.options()
			c.change(&o)
			if _, err := relay.New(o); err == nil || !strings.Contains(err.Error(), c.message) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}
