package issuer_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/issuer"
)

func start(t *testing.T, p *issuer.Publisher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStartFollowsARotation(t *testing.T) {
	key, next := es256(t, "key"), es256(t, "next")
	synctest.Test(t, func(t *testing.T) {
		server, store := newAPIServer(key), newMemory()
		start(t, newPublisher(server, store))
		synctest.Wait()
		server.show(next)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if got := store.published(t); !slices.Equal(got, []string{"key", "next"}) {
			t.Errorf("a minute after a rotation: published %q", got)
		}
		server.answer(http.StatusForbidden, nil)
		server.takeLooks()
		time.Sleep(time.Hour)
		if looks := server.takeLooks(); looks < 50 || looks > 60 {
			t.Errorf("%d looks in an hour of failures, want about one a minute", looks)
		}
		server.show(next, key)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if leaving := mustPublish(t, newPublisher(server, store)).Leaving; len(leaving) != 0 {
			t.Errorf("after the failures: leaving %v", leaving)
		}
	})
}

func TestStartRefusesWrongFields(t *testing.T) {
	p := newPublisher(newAPIServer(), newMemory())
	p.Issuer = "http://x"
	if err := p.Start(t.Context()); err == nil {
		t.Error("no error")
	}
}

// A look opens a connection of its own, so that a load balancer spreads looks
// over the API servers.
func TestLooksShareNoConnection(t *testing.T) {
	body := marshalKeys(es256(t, "key"))
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body)
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p := newPublisher(newAPIServer(), newMemory())
	p.Cluster = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	manager, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(p.Cluster)) // shares client-go's connections
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := manager.Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		mustPublish(t, p)
	}
	if n := connections.Load(); n != 4 {
		t.Errorf("%d connections for 3 looks and one client", n)
	}
}

// A host on the network can answer for such an API server, with keys of its
// own.
func TestUnverifiedAPIServers(t *testing.T) {
	body := marshalKeys(es256(t, "key"))
	asked := 0
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; _, _ = w.Write(body) })
	secure, plain := httptest.NewTLSServer(answer), httptest.NewServer(answer)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	proxy, err := url.Parse(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	remote := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked++
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)),
			Request: r}, nil
	})
	port := strings.TrimPrefix(plain.URL, "http://127.0.0.1")
	for name, tc := range map[string]struct {
		config rest.Config
		words  string // of the error; none: it is accepted
	}{
		"certificate that is not verified": {rest.Config{Host: secure.URL,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "insecure-skip-tls-verify"},
		"http": {rest.Config{Host: "http://10.0.0.1:8080", Transport: remote},
			`"http://10.0.0.1:8080"`},
		"no scheme":              {rest.Config{Host: "10.0.0.1:8080", Transport: remote}, `"http://10.0.0.1:8080"`},
		"look-alike of loopback": {rest.Config{Host: "http://127.0.0.1.example", Transport: remote}, "https"},
		"loopback of a proxy":    {rest.Config{Host: "http://127.0.0.1:1", Proxy: http.ProxyURL(proxy)}, "https"},
		"password":               {rest.Config{Host: "http://me:hunter2@10.0.0.1", Transport: remote}, "https"},
		"kubectl proxy":          {rest.Config{Host: plain.URL}, ""},
		"kubectl proxy by name":  {rest.Config{Host: "http://localhost" + port}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			p := newPublisher(newAPIServer(), newMemory())
			p.Cluster = &tc.config
			_, published := p.Publish(t.Context())
			if tc.words == "" {
				if published != nil {
					t.Error(published)
				}
				return
			}
			_, verified := issuer.Verify(t.Context(), issuer.Verification{Cluster: &tc.config, Issuer: issuerURL})
			_, named := issuer.Verification{Cluster: &tc.config}.IssuerOfTokens(t.Context())
			for _, err := range []error{published, verified, named} {
				if !errors.Is(err, provider.ErrMisconfigured) || !strings.Contains(err.Error(), tc.words) ||
					strings.Contains(err.Error(), "hunter2") || asked != 0 {
					t.Errorf("%d requests, %v", asked, err)
				}
			}
		})
	}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
