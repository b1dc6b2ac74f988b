package doctor_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// misbehaviour is what a hostile server does with a connection once it has the request.
type misbehaviour func(conn net.Conn, done <-chan struct{})

const sent = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// drip sends a byte at a time, for ever.
func drip(conn net.Conn, done <-chan struct{}, text string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-done:
			return
		}
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
	}
}

func flood(conn net.Conn, line string) {
	block := []byte(strings.Repeat(line, 1000))
	for {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

func misbehaviours() map[string]misbehaviour {
	return map[string]misbehaviour{
		"never answers":   func(_ net.Conn, done <-chan struct{}) { <-done },
		"a byte at times": func(conn net.Conn, done <-chan struct{}) { drip(conn, done, sent+"X: "+strings.Repeat("x", 10000)) },
		"a slow body": func(conn net.Conn, done <-chan struct{}) {
			_, _ = io.WriteString(conn, sent+"\r\n")
			drip(conn, done, " ")
		},
		"endless headers": func(conn net.Conn, _ <-chan struct{}) {
			_, _ = io.WriteString(conn, sent)
			flood(conn, "X-Header: "+strings.Repeat("x", 100)+"\r\n")
		},
		"an endless body": func(conn net.Conn, _ <-chan struct{}) {
			_, _ = io.WriteString(conn, sent+"\r\n")
			flood(conn, "[[[[[[[[")
		},
		"endless interim answers": func(conn net.Conn, _ <-chan struct{}) { flood(conn, "HTTP/1.1 103 Early Hints\r\n\r\n") },
	}
}

// misbehaving is the address of a server that does so.
func misbehaving(t *testing.T, how misbehaviour) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				defer conn.Close() //nolint:errcheck // is at its end
				if _, err := conn.Read(make([]byte, 1<<16)); err == nil {
					how(conn, ctx.Done())
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// leadingTo has every request, https too, go to an address in the clear.
func leadingTo(t *testing.T, address string) *http.Client {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// realClient talks HTTP to an API server and looks up no kinds.
func realClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.Scheme.AllKnownTypes() {
		scope := meta.RESTScopeRoot
		if kind.Kind == "ServiceAccount" || kind.Kind == "Pod" {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kind, scope)
	}
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Whoever misbehaves, and however: each run ends soon after its time, with a finding for each check and none that passes what was
// not answered.
func TestHostileNetwork(t *testing.T) {
	roles := map[string]struct {
		use    func(t *testing.T, w *world, address string)
		checks []string // that cannot pass
	}{
		"issuer": {func(t *testing.T, w *world, address string) { w.config.IssuerClient = leadingTo(t, address) },
			[]string{"discovery", "keys", "issuer-tls"}},
		"cloud": {func(t *testing.T, w *world, address string) {
			w.config.Options = []auth.Option{auth.WithHTTPClient(leadingTo(t, address)), auth.WithSTSRegion("eu-central-1")}
		}, []string{"exchange", "identity", "registry"}},
		"API server": {func(t *testing.T, w *world, address string) {
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			w.config.RESTConfig = &rest.Config{Host: "http://" + address, Transport: transport}
			w.config.Client = realClient(t, w.config.RESTConfig)
		}, []string{"api-server", "service-account", "pod", "cluster-issuer", "token-review"}},
		"endpoint for credentials": {func(_ *testing.T, w *world, address string) { w.config.Helper = "http://" + address + "/" },
			[]string{"helpers"}},
	}
	for role, r := range roles {
		for name, how := range misbehaviours() {
			t.Run(role+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "aws")
				w.write(w.sign(nil))
				w.config.Pod, w.config.Repository = client.ObjectKey{Namespace: "tenant-a", Name: "app"}, ecrHost+"/app"
				w.config.Annotations = w.account.Annotations
				r.use(t, w, misbehaving(t, how))
				patiently(t, w, func(report *doctor.Report) string {
					if len(report.Findings) != len(doctor.Checks()) || report.ExitCode() == doctor.ExitPass || len(report.String()) > 20000 || strings.Contains(report.String(), "[[[[") {
						t.Errorf("%d findings, exit code %d: %.5000s", len(report.Findings), report.ExitCode(), report)
					}
					for _, id := range r.checks {
						if f := report.Of(id); f.Result == doctor.Pass {
							t.Errorf("%+v", f)
						}
					}
					for _, id := range []string{"token-file", "token-format", "claims", "audience", "subject", "issuer"} {
						if f := report.Of(id); f.Result != doctor.Pass {
							return fmt.Sprintf("needs no network: %+v", f)
						}
					}
					return ""
				})
			})
		}
	}
}

// unanswered hangs until the time of each call is over.
func unanswered(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
}

// When the time is over, whoever has used it is named, and what needs no network is judged all the same.
func TestTimeIsAccountedFor(t *testing.T) {
	w := newWorld(t, "aws")
	synctest.Test(t, func(t *testing.T) { timeIsAccountedFor(t, w) })
}

func timeIsAccountedFor(t *testing.T, w *world) {
	t.Helper()
	w.inBubble(t)
	w.write(w.sign(nil))
	w.config.Client = unanswered(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build())
	w.config.RESTConfig = &rest.Config{Host: "https://api.example:6443", Transport: hanging{}}
	w.config.Annotations = w.account.Annotations
	w.config.Timeout = 200 * time.Millisecond
	w.trust = awsTrust(w.issuer.URL(), goodCondition(w.issuer.URL()))
	report := w.run()
	for _, id := range []string{"source", "token-file", "token-format", "claims", "audience", "subject", "issuer", "identifiers", "trust-anchor", "trust-rule"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("needs no network: %+v", f)
		}
	}
	const who = "waiting for the API server api.example:6443"
	for _, id := range []string{"time", "discovery", "api-server", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Unknown || !strings.Contains(f.Message, who) || f.Remedy == "" {
			t.Errorf("%+v", f)
		}
	}
	if text := report.String(); !strings.Contains(text, "\nNothing has failed. Begin with check") || report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("exit code %d:\n%s", report.ExitCode(), text)
	}
	if c := report.Condition("Ready", 1); c.Status != "Unknown" || !strings.Contains(c.Message, who) || strings.Contains(c.Message, "ms") {
		t.Errorf("%+v", c)
	}
}

// An API server that is down: each check says what to do about that, and none asks for a right.
func TestAPIServerDown(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.RESTConfig = &rest.Config{Host: "https://127.0.0.1:1"}
	w.config.Client = realClient(t, w.config.RESTConfig)
	w.config.Pod = client.ObjectKeyFromObject(&corev1.Pod{ObjectMeta: w.account.ObjectMeta})
	report := w.run()
	for _, id := range []string{"api-server", "service-account", "pod"} {
		f := report.Of(id)
		if f.Result != doctor.Unknown || !strings.Contains(f.Message, "connection refused") || strings.Contains(f.Remedy, "grant") || !strings.Contains(f.Remedy, "kubectl get --raw /version") {
			t.Errorf("%+v", f)
		}
	}
	if want := fmt.Sprintf("Nothing has failed. Begin with check 13 (api-server): %s\n", report.Of("api-server").Message); !strings.HasSuffix(report.String(), want) ||
		report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
	}
}

// Whoever hangs may have a name that a shell obeys, and an API server may echo what it was sent in lines that are no headers.
func TestHostileNames(t *testing.T) {
	w := newWorld(t, "aws")
	synctest.Test(t, func(t *testing.T) {
		w.inBubble(t)
		w.withoutCluster, w.config.RESTConfig = true, nil
		w.config.Annotations, w.config.Timeout = w.account.Annotations, 200*time.Millisecond
		w.write(w.sign(func(c map[string]any) { c["iss"] = "https://x;touch$IFS$9owned;echo" }))
		w.config.IssuerClient = &http.Client{Transport: hanging{}}
		report := w.run()
		if f := report.Of("exchange"); f.Result != doctor.Unknown || !strings.Contains(f.Message, "waiting for the issuer at") {
			t.Errorf("%+v", f)
		}
		harmless(t, report)
	})

	const bearer = "bearer-of-the-administrator-1234"
	config := &rest.Config{BearerToken: bearer, Host: "http://" + misbehaving(t, func(conn net.Conn, _ <-chan struct{}) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nBearer "+bearer+"\x01\r\n\r\n")
	})}
	hub := newHubWorld(t)
	hub.config.Hub, hub.config.HubRESTConfig = newClient(t, config), config
	boot := newBootWorld(t)
	boot.config.Client, boot.config.RESTConfig = realClient(t, config), config
	w = newWorld(t, "aws")
	w.config.Client, w.config.RESTConfig = realClient(t, config), config
	boot.data = nil // otherwise the token itself shows that it is good
	for _, report := range []*doctor.Report{hub.run(), boot.run(), w.run()} {
		if text := fmt.Sprintf("%s%+v", report, report.Findings); strings.Contains(text, bearer) || !strings.Contains(text, "malformed MIME header") {
			t.Errorf("%s", text)
		}
	}
}
