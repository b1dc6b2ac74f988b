package relay_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/workloadid/workloadid/registration/relay"
)

// stalled is a client of HTTP/2 whose window is 0: it receives headers and no
// body.
type stalled struct {
	*http2.Framer
	conn net.Conn
}

func stall(t testing.TB, conn net.Conn) *stalled {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &stalled{http2.NewFramer(conn, conn), conn}
	if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	return c
}

// get sends requests, and returns an error of the connection.
func (c *stalled) get(from string, streams int, header ...string) error {
	for i := range streams {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		fields := append([]string{":method", "GET", ":scheme", "https", ":authority", "relay", ":path", "/api"}, header...)
		if from != "" {
			fields = append(fields, "test-address", from)
		}
		for k := 0; k < len(fields); k += 2 {
			_ = encoder.WriteField(hpack.HeaderField{Name: fields[k], Value: fields[k+1]}) // a buffer
		}
		id := uint32(2*i + 1) //nolint:gosec // small
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true,
			EndHeaders: true}); err != nil {
			return err
		}
	}
	return nil
}

// answers reads until n streams have an answer. It returns how many of them are
// complete.
func (c *stalled) answers(n int) (complete int, err error) {
	for n > 0 {
		frame, err := c.ReadFrame()
		if err != nil {
			return complete, err
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			n--
			if h.StreamEnded() {
				complete++
			}
		}
	}
	return complete, nil
}

func (w *environment) dialHTTP2(t testing.TB) net.Conn {
	t.Helper()
	config := w.client(t, nil).Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:forcetypeassert // made there
	config.ServerName, config.NextProtos = "example.com", []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", w.relay.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A client without a credential and with window 0 holds as many requests as its
// address may. The relay refuses the others with headers alone.
func TestStalledRequestsAreBounded(t *testing.T) {
	w := newEnvironment(t, nil)
	complete := 0
	for range 8 {
		c := stall(t, w.dialHTTP2(t))
		if err := c.get("192.0.2.1:1", 100); err != nil {
			t.Fatal(err)
		}
		n, err := c.answers(100)
		if err != nil {
			t.Fatal(err)
		}
		complete += n
	}
	if held := 800 - complete; held != 256 {
		t.Errorf("one address holds %d requests", held)
	}
	h := from("192.0.2.1:2")
	if a := w.get(t, nil, h); a.code != http.StatusTooManyRequests || a.body != "" || a.header.Get("Retry-After") == "" {
		t.Errorf("the same address: %+v", a)
	}
	if a := w.get(t, nil, from("192.0.2.2:1")); a.code != http.StatusOK {
		t.Errorf("another address: %+v", a)
	}
}

// Clients that fill the budget of unproven requests delay no client that has
// joined: neither one with a certificate nor one whose connection is proven.
func TestStalledRequestsDelayNoJoinedAgent(t *testing.T) {
	w := newEnvironment(t, nil)
	get := func(c *http.Client, header http.Header) int {
		t.Helper()
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.relay.URL+"/api", nil)
		request.Header = header.Clone()
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	addOn, token := w.client(t, nil), from("192.0.2.1:1")
	if code := get(addOn, token); code != http.StatusOK {
		t.Fatal(code)
	}
	for address := range 16 {
		for range 3 {
			c := stall(t, w.dialHTTP2(t))
			if err := c.get(fmt.Sprintf("192.0.2.%d:1", address+1), 100); err != nil {
				t.Fatal(err)
			}
			if _, err := c.answers(100); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, row := range map[string]struct {
		client *http.Client
		header http.Header
		want   int
	}{
		"certificate on a new connection": {w.client(t, w.ca.issue(t, nil)), http.Header{testAddress: {"192.0.2.1:1"}},
			http.StatusOK},
		"token on a proven connection": {addOn, token, http.StatusOK},
		"token on a new connection":    {w.client(t, nil), from("192.0.2.99:1"), http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			if code := get(row.client, row.header); code != row.want {
				t.Errorf("answer %d, want %d", code, row.want)
			}
		})
	}
}

// Watches that the hub has accepted leave the share of their address to first
// contacts.
func TestAcceptedWatchesLeaveRoom(t *testing.T) {
	done := make(chan struct{})
	w := newEnvironment(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			_ = http.NewResponseController(rw).Flush() // the test would fail
			<-done
		}
	})
	t.Cleanup(func() { close(done) })
	c := w.client(t, nil)
	for i := range 300 {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprint(w.relay.URL, "/api?watch=", i), nil)
		request.Header = from("192.0.2.1:1")
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, answer.Status)
		}
	}
	if a := w.get(t, nil, from("192.0.2.1:2")); a.code != http.StatusOK {
		t.Errorf("%+v", a)
	}
}

// limitConnections starts the relay anew, with at most four connections.
func (w *environment) limitConnections(t *testing.T) {
	t.Helper()
	handler, err := relay.New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	w.relay = httptest.NewUnstartedServer(handler)
	w.relay.Listener = relay.LimitListener(w.relay.Listener, 4, 4)
	w.relay.TLS, w.relay.EnableHTTP2 = relay.TLSConfig(nil), true
	w.relay.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.relay.StartTLS()
	t.Cleanup(w.relay.Close)
}

// A flood of connections without a credential displaces no client that the
// relay or the hub has accepted.
func TestAcceptedConnectionsStay(t *testing.T) {
	for name, token := range map[string]bool{"certificate": false, "token": true} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, nil)
			w.limitConnections(t)
			cert, header := w.ca.issue(t, nil), http.Header(nil)
			if token {
				cert, header = nil, bearer("accepted")
			}
			c, reused := w.client(t, cert), false
			get := func() {
				t.Helper()
				trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
				request, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet,
					w.relay.URL+"/api", nil)
				request.Header = header.Clone()
				answer, err := c.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Fatal(answer.Status)
				}
			}
			get()
			for range 8 {
				defer w.dial(t, nil).Close()
			}
			if get(); !reused {
				t.Error("the relay has closed the connection")
			}
		})
	}
}

// A token that the hub refuses proves nothing, so its connection goes before
// others.
func TestRefusedTokenProvesNoConnection(t *testing.T) {
	w := newEnvironment(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnauthorized) })
	w.limitConnections(t)
	get := "GET /api HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer made-up\r\n\r\n"
	conn := w.dial(t, nil)
	defer conn.Close() //nolint:errcheck // the relay closes it
	if _, err := io.WriteString(conn, get); err != nil {
		t.Fatal(err)
	}
	if a := readAnswer(t, w, conn, http.MethodGet); a.code != http.StatusUnauthorized {
		t.Fatalf("answer %d, want the hub's 401", a.code)
	}
	for range 8 {
		defer w.dial(t, nil).Close()
	}
	_, err := io.WriteString(conn, get)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil {
		t.Error("the connection of a refused token displaces others")
	}
}

// The relay resets the stream of a client that does not read, after 30 s.
func TestWritesHaveADeadline(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	synctest.Test(t, func(t *testing.T) {
		w := &environment{hub: certificate, ca: newCA(t)}
		handler, err := relay.New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		inner := &addressed{conns: make(chan net.Conn, 1)}
		server := &http.Server{Handler: handler, TLSConfig: relay.TLSConfig(nil), ErrorLog: log.New(io.Discard, "", 0)}
		server.TLSConfig.Certificates = certificate.TLS.Certificates
		served := make(chan error)
		go func() { served <- server.ServeTLS(relay.LimitListener(inner, 10, 10), "", "") }()
		ours, theirs := net.Pipe()
		inner.conns <- remote{theirs, "192.0.2.1:1"}
		conn := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // a pipe
		start, frames := time.Now(), make(chan http2.Frame, 100)
		c := &stalled{}
		ready := make(chan struct{})
		go func() {
			defer close(frames)
			<-ready
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				frames <- f
			}
		}()
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Framer = http2.NewFramer(conn, conn)
		close(ready)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		if err := c.get("", 1); err != nil {
			t.Fatal(err)
		}
		for f := range frames {
			if _, ok := f.(*http2.RSTStreamFrame); ok {
				break
			}
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("the stream ends after %s", took)
		}
		_ = conn.Close()
		close(inner.conns)
		<-served
		_ = server.Close()
		for range frames { //nolint:revive // until the reader has returned
		}
	})
}

// addressed is a listener whose connections come from chosen addresses.
type addressed struct {
	conns chan net.Conn
}

func (l *addressed) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (*addressed) Close() error   { return nil }
func (*addressed) Addr() net.Addr { return textAddr("test") }

type remote struct {
	net.Conn
	address string
}

func (c remote) RemoteAddr() net.Addr { return textAddr(c.address) }

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }
