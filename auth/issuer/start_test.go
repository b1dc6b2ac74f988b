package issuer_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/auth/provider"
)

// eventLog is an EventRecorder that keeps what it records.
type eventLog struct {
	mu   sync.Mutex
	seen []string
}

func (l *eventLog) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

func (l *eventLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

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

func TestStart(t *testing.T) {
	key, next := es256(t, "key"), es256(t, "next")
	synctest.Test(t, func(t *testing.T) {
		server, store, registry, log := newAPIServer(key), newMemory(), prometheus.NewPedanticRegistry(), &eventLog{}
		p := newPublisher(server, store)
		p.Registerer, p.Events, p.Object = registry, log, &corev1.Pod{}
		start(t, p)
		synctest.Wait()
		if got, want := log.take(), []string{`Normal IssuerPublished keys added: ["key"], removed: []`}; !slices.Equal(got, want) {
			t.Errorf("Events %q, want %q", got, want)
		}

		server.show(next)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := store.published(t); !slices.Equal(got, []string{"key", "next"}) {
			t.Errorf("a minute after a rotation: published %q", got)
		}
		_, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		const want = `
# HELP issuer_published_keys Published keys.
# TYPE issuer_published_keys gauge
issuer_published_keys{issuer="https://oidc.example.com/cluster-1"} 2
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "issuer_published_keys"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(registry, "issuer_leaving_key_expiry_timestamp_seconds", "issuer_last_success_timestamp_seconds"); n != 2 || err != nil {
			t.Errorf("%d series, %v", n, err)
		}
		problems, err := testutil.GatherAndLint(registry)
		if len(problems) > 0 || err != nil {
			t.Errorf("the names of metrics: %v %v", problems, err)
		}
		log.take()

		server.answer(http.StatusForbidden, nil)
		time.Sleep(time.Hour)
		failures := log.take()
		if len(failures) < 50 || len(failures) > 75 || !strings.HasPrefix(failures[0], "Warning IssuerNotPublished ") {
			t.Errorf("%d failures in an hour, want about one a minute: %.300q", len(failures), failures)
		}
		errorsTotal := fmt.Sprintf(`
# HELP issuer_errors_total Looks and publications that failed.
# TYPE issuer_errors_total counter
issuer_errors_total{issuer="https://oidc.example.com/cluster-1"} %d
`, len(failures))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(errorsTotal), "issuer_errors_total"); err != nil {
			t.Error(err)
		}

		server.show(key)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := mustPublish(t, p).Leaving; len(got) != 1 || got["next"].IsZero() {
			t.Errorf("leaving %v", got)
		}
	})
}

func TestStartTriesAgainSoon(t *testing.T) {
	key := es256(t, "key")
	synctest.Test(t, func(t *testing.T) {
		server, store := newAPIServer(key), newMemory()
		var down atomic.Bool
		down.Store(true)
		store.onWrite = func(string) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}
		p := newPublisher(server, store)
		start(t, p)
		synctest.Wait()
		down.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := store.published(t); !slices.Equal(got, []string{"key"}) {
			t.Errorf("published %q", got)
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

func TestTwoPublishersInAProcess(t *testing.T) {
	server, registry := newAPIServer(es256(t, "key")), prometheus.NewPedanticRegistry()
	former, current := newPublisher(server, newMemory()), newPublisher(server, newMemory())
	former.Issuer, former.Registerer, current.Registerer = "https://former.example.com", registry, registry
	mustPublish(t, former)
	mustPublish(t, current)
	same := newPublisher(server, newMemory())
	same.Registerer = registry
	if _, err := same.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("error %v", err)
	}
}

// A look opens a connection of its own, so that a load balancer spreads looks over the API servers.
func TestLooksShareNoConnection(t *testing.T) {
	body := marshalKeys(es256(t, "key"))
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
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

// A host on the network can answer for such an API server, with keys of its own.
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
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
	})
	port := strings.TrimPrefix(plain.URL, "http://127.0.0.1")
	for name, tc := range map[string]struct {
		config rest.Config
		words  string // of the error; none: it is accepted
	}{
		"certificate that is not verified": {rest.Config{Host: secure.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "insecure-skip-tls-verify"},
		"http":                             {rest.Config{Host: "http://10.0.0.1:8080", Transport: remote}, `"http://10.0.0.1:8080"`},
		"no scheme":                        {rest.Config{Host: "10.0.0.1:8080", Transport: remote}, `"http://10.0.0.1:8080"`},
		"look-alike of loopback":           {rest.Config{Host: "http://127.0.0.1.example", Transport: remote}, "https"},
		"loopback of a proxy":              {rest.Config{Host: "http://127.0.0.1:1", Proxy: http.ProxyURL(proxy)}, "https"},
		"password":                         {rest.Config{Host: "http://me:hunter2@10.0.0.1", Transport: remote}, "https"},
		"kubectl proxy":                    {rest.Config{Host: plain.URL}, ""},
		"kubectl proxy by name":            {rest.Config{Host: "http://localhost" + port}, ""},
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
				if !errors.Is(err, provider.ErrMisconfigured) || !strings.Contains(err.Error(), tc.words) || strings.Contains(err.Error(), "hunter2") || asked != 0 {
					t.Errorf("%d requests, %v", asked, err)
				}
			}
		})
	}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
