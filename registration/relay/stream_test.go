package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/registration/relay"
)

// pipes is a network in memory, for tests with synctest.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
func (p *pipes) Close() error   { p.close.Do(func() { close(p.done) }); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- newQueued(server):
		return newQueued(client), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// queued is one end of a pipe. Write and Close do not wait for the reader, as
// on a socket.
type queued struct {
	net.Conn
	out chan []byte // nil closes
}

func newQueued(c net.Conn) *queued {
	q := &queued{c, make(chan []byte, 1000)}
	go func() {
		defer c.Close()
		for p := range q.out {
			if p == nil {
				return
			}
			if _, err := c.Write(p); err != nil {
				return
			}
		}
	}()
	return q
}

func (q *queued) Write(p []byte) (int, error) {
	q.out <- bytes.Clone(p)
	return len(p), nil
}

func (q *queued) Close() error {
	q.out <- nil
	go func() { _, _ = io.Copy(io.Discard, q.Conn) }() // the other end may be closing too
	return nil
}

func (q *queued) SetWriteDeadline(time.Time) error     { return nil } // TLS sets one in the past before it closes
func (q *queued) SetDeadline(deadline time.Time) error { return q.SetReadDeadline(deadline) }

// pipedEnvironment is an environment inside a synctest bubble. Its servers and
// clients speak HTTP/2 or only HTTP/1.
type pipedEnvironment struct {
	*environment
	front *pipes
	http2 bool
}

// inBubbles runs a test with each version of HTTP.
func inBubbles(t *testing.T, hub http.HandlerFunc, test func(*testing.T, *pipedEnvironment)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &pipedEnvironment{&environment{ca: newCA(t), logged: &syncBuffer{}}, newPipes(), http2}
				w.log = log.New(w.logged, "", 0)
				back := newPipes()
				w.hub = w.serve(back, hub, nil)
				defer w.hub.Close()
				options := w.options()
				options.Hub.Dial = back.dial
				handler, err := relay.New(options)
				if err != nil {
					t.Fatal(err)
				}
				w.relay = w.serve(w.front, handler, relay.TLSConfig(w.ca.pool()))
				defer w.relay.Close()
				test(t, w)
			})
		})
	}
}

func (w *pipedEnvironment) serve(listener *pipes, handler http.Handler, config *tls.Config) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	s.Listener, s.EnableHTTP2, s.TLS = listener, w.http2, config
	s.StartTLS()
	return s
}

func (w *pipedEnvironment) client(t *testing.T, cert *tls.Certificate) *http.Client {
	t.Helper()
	c := w.environment.client(t, cert)
	transport := c.Transport.(*http.Transport) //nolint:forcetypeassert // made above
	transport.DialContext, transport.ForceAttemptHTTP2 = w.front.dial, w.http2
	return c
}

// A hub serves a watch for as long as the client asks, also after denial. The
// relay ends it like a hub does, without an error.
func TestWatchEnds(t *testing.T) {
	var watches atomic.Int64
	hub := func(rw http.ResponseWriter, r *http.Request) {
		watches.Add(1)
		defer watches.Add(-1)
		for range 50 {
			_, _ = fmt.Fprintln(rw, "event")
			rw.(http.Flusher).Flush() //nolint:forcetypeassert // a server's
			select {
			case <-time.After(70 * time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}
	inBubbles(t, hub, func(t *testing.T, w *pipedEnvironment) {
		for name, cert := range map[string]*tls.Certificate{"certificate": w.ca.issue(t, nil), "bearer": nil} {
			started := time.Now()
			answer := w.do(t, w.client(t, cert), http.MethodGet, "/api?watch=1&timeoutSeconds=31536000", nil)
			content, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if took, events := time.Since(started), strings.Count(string(content), "event"); err != nil ||
				took != 10*time.Minute || events != 9 {
				t.Errorf("%s: the watch ends after %s and %d events with error %v", name, took, events, err)
			}
			if synctest.Wait(); watches.Load() != 0 {
				t.Errorf("%s: the hub still serves the watch", name)
			}
		}
		if said := w.logged.String(); said != "" {
			t.Errorf("logged %q", said)
		}
	})
}

// A hub that answers nothing holds the client no longer than a watch, and the
// log says why.
func TestHubThatHangs(t *testing.T) {
	hub := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Hour):
		case <-r.Context().Done():
		}
	}
	inBubbles(t, hub, func(t *testing.T, w *pipedEnvironment) {
		started := time.Now()
		answer := w.do(t, w.client(t, w.ca.issue(t, nil)), http.MethodGet, "/api", nil)
		_ = answer.Body.Close()
		if took := time.Since(started); answer.StatusCode != http.StatusBadGateway || took != 10*time.Minute {
			t.Errorf("answer %d after %s", answer.StatusCode, took)
		}
		if said := w.logged.String(); !strings.Contains(said, "deadline") {
			t.Errorf("logged %q", said)
		}
	})
}

// A body that does not arrive is refused in time. The deadline does not shorten
// a watch on the same connection.
func TestBodyHasADeadline(t *testing.T) {
	hub := func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			time.Sleep(5 * time.Minute) //nolint:forbidigo // in a bubble
		}
	}
	inBubbles(t, hub, func(t *testing.T, w *pipedEnvironment) {
		c := w.client(t, w.ca.issue(t, nil))
		for _, answer := range []*http.Response{w.do(t, c, http.MethodPost, "/api", strings.NewReader("x")),
			w.do(t, c, http.MethodGet, "/api", nil)} {
			if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
				t.Errorf("answer %d", answer.StatusCode)
			}
		}
		started := time.Now()
		never, stop := io.Pipe()
		answer := w.do(t, c, http.MethodPost, "/api", never)
		_, _ = stop.Close(), answer.Body.Close()
		if took := time.Since(started); answer.StatusCode != http.StatusBadRequest || took != 30*time.Second {
			t.Errorf("answer %d after %s", answer.StatusCode, took)
		}
	})
}

// do sends a request, with a token if it goes on connections without a
// certificate. The test closes the answer.
func (w *pipedEnvironment) do(t *testing.T, c *http.Client, method, path string, body io.Reader) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.relay.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := body.(*io.PipeReader); ok {
		request.ContentLength = 10 // announced
	}
	if c.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate == nil { //nolint:forcetypeassert // made above
		request.Header = bearer("a")
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
