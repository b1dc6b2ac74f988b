package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/workloadid/workloadid/internal/testing/testca"
)

// rotating is a server whose certificate and bundle change.
type rotating struct {
	*httptest.Server

	mu          sync.Mutex
	certificate tls.Certificate
	bundle      any
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	s := &rotating{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.certificate}}, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *rotating) answer(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"AccessKeyId": "ASIA", "SecretAccessKey": "very-secret", "Token": "t",
		"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "CABundle": s.bundle})
}

func (s *rotating) serve(t *testing.T, signer *testca.CA, bundle any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificate, s.bundle = signer.Issue(t), bundle
}

// proxy returns a proxy with the CAs of its pod, and its log.
func (s *rotating) proxy(t *testing.T, ca string, changes ...func(*Options)) (*Proxy, *strings.Builder) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("pod-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	o := Options{Server: s.URL, CA: []byte(ca), TokenFile: token, Secret: "secret",
		Logger: funcr.New(func(_, line string) { fmt.Fprintln(log, line) }, funcr.Options{})}
	for _, change := range changes {
		change(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, log
}

// ignoring makes the proxy one of a release that does not know CABundle.
func ignoring(o *Options) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(o.CA)
	o.CA, o.Client = nil, &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func mustFetch(t *testing.T, p *Proxy) {
	t.Helper()
	if _, failed := p.fetch(t.Context()); failed != nil {
		t.Fatal(failed)
	}
}

// The CA is replaced twice under a running proxy, and no request fails. A proxy
// of a former release, which keeps the CAs of its pod, gets credentials while
// one of them signs.
func TestCAIsReplacedUnderARunningProxy(t *testing.T) {
	server := newRotating(t)
	a, b, c := testca.New(t, "a"), testca.New(t, "b"), testca.New(t, "c")
	current, _ := server.proxy(t, a.PEM())
	former, _ := server.proxy(t, a.PEM()+b.PEM(), ignoring)
	for _, stage := range []struct {
		name         string
		signer       *testca.CA
		bundle       string
		formerServed bool
	}{
		{"a server that publishes none", a, "", true},
		{"the next CA is published", a, a.PEM() + b.PEM(), true},
		{"it signs", b, a.PEM() + b.PEM(), true},
		{"the first CA is withdrawn", b, b.PEM() + c.PEM(), true},
		{"the third CA signs", c, c.PEM(), false},
	} {
		server.serve(t, stage.signer, stage.bundle)
		for range 3 {
			if _, failed := current.fetch(t.Context()); failed != nil {
				t.Errorf("%s: got %v, want credentials", stage.name, failed)
			}
		}
		if _, failed := former.fetch(t.Context()); (failed == nil) != stage.formerServed {
			t.Errorf("%s, to a former release: got %v, want served: %t", stage.name, failed, stage.formerServed)
		}
	}
	server.serve(t, a, "")
	if _, failed := current.fetch(t.Context()); failed == nil {
		t.Error("a CA that was withdrawn is trusted")
	}
}

// A bundle counts only over a connection that the CAs of the moment verify.
func TestImpostorCannotChangeCAs(t *testing.T) {
	server := newRotating(t)
	ours, impostor := testca.New(t, "ours"), testca.New(t, "impostor")
	p, log := server.proxy(t, ours.PEM())
	server.serve(t, impostor, impostor.PEM()+ours.PEM())
	for range 2 {
		if _, failed := p.fetch(t.Context()); failed == nil || !strings.Contains(failed.Message, "unknown authority") {
			t.Errorf("got %v, want the refusal of an unknown authority", failed)
		}
	}
	server.serve(t, ours, "")
	mustFetch(t, p)
	if log.Len() > 0 {
		t.Errorf("got the log %s, want none", log)
	}
}

// The credentials of an answer are good whatever its bundle is.
func TestBadBundleIsIgnored(t *testing.T) {
	server := newRotating(t)
	ca, stranger := testca.New(t, "ca"), testca.New(t, "stranger")
	for name, test := range map[string]struct {
		bundle any
		want   string
	}{
		"oversized":                   {ca.PEM() + strings.Repeat("\n", 20<<10), "bytes"},
		"too many":                    {strings.Repeat(ca.PEM(), 20), "more than 16"},
		"not PEM":                     {"hostile", "no PEM"},
		"without the server's own CA": {stranger.PEM(), "do not verify the certificate of the server"},
		"a number":                    {1, "no string"},
		"a list of secrets":           {[]string{"very-secret"}, "no string"},
	} {
		t.Run(name, func(t *testing.T) {
			p, log := server.proxy(t, ca.PEM())
			server.serve(t, ca, test.bundle)
			for range 2 {
				mustFetch(t, p)
			}
			if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), test.want) {
				t.Errorf("got %d lines of log, want 2 with %q: %s", lines, test.want, log)
			}
			if strings.Contains(log.String(), "very-secret") || log.Len() > 2000 {
				t.Errorf("the log has %d bytes: %.300s", log.Len(), log)
			}
			server.serve(t, stranger, nil)
			if _, failed := p.fetch(t.Context()); failed == nil {
				t.Error("the bundle counts")
			}
		})
	}
}

// Applications get the four members of their protocol, and the log one line for
// each change.
func TestBundleStaysInTheProxy(t *testing.T) {
	server := newRotating(t)
	ca, next := testca.New(t, "ca"), testca.New(t, "next")
	p, log := server.proxy(t, ca.PEM())
	server.serve(t, ca, ca.PEM()+next.PEM())
	for range 3 {
		fresh, failed := p.fetch(t.Context())
		if failed != nil {
			t.Fatal(failed)
		}
		if strings.Contains(string(fresh.body), "CABundle") {
			t.Errorf("got %s, want no CABundle", fresh.body)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), `"cas"=2`) {
		t.Errorf("got the log %s, want one line with 2 CAs", log)
	}
}
