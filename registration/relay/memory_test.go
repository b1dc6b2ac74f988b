package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const (
	bodyLimit   = 3 << 20
	allInFlight = 21 // bodies of 3 MB, in 64 MB
	addOnUser   = "system:open-cluster-management:cluster:cluster1:addon:metrics:agent:agent1"
)

// A body that was announced and does not arrive takes no memory from other
// agents, and none from its own cluster.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	for name, c := range map[string]struct {
		announcer, neighbour func(*environment) (*tls.Certificate, http.Header)
	}{
		"certificates": {
			func(w *environment) (*tls.Certificate, http.Header) { return w.ca.issue(t, nil), nil },
			func(w *environment) (*tls.Certificate, http.Header) {
				return w.ca.named(t, agentOf("cluster2"), allAgents), nil
			},
		},
		"bearers": {
			func(*environment) (*tls.Certificate, http.Header) { return nil, from("192.0.2.1:1") },
			func(*environment) (*tls.Certificate, http.Header) { return nil, from("192.0.2.2:1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, nil)
			cert, header := c.announcer(w)
			for range 64 {
				w.announce(t, cert, header)
			}
			for _, identity := range []func(*environment) (*tls.Certificate, http.Header){c.announcer, c.neighbour} {
				cert, header := identity(w)
				if a := w.post(t, cert, header, bodyLimit); a.code != http.StatusOK {
					t.Errorf("answer %+v", a)
				}
			}
		})
	}
}

func agentOf(cluster string) string { return "system:open-cluster-management:" + cluster + ":agent1" }

// from returns the headers of a request with a made-up token. The relay of an
// environment sees the address.
func from(address string) http.Header {
	h := bearer("made-up")
	h.Set(testAddress, address)
	return h
}

func (w *environment) post(t testing.TB, cert *tls.Certificate, header http.Header, size int) answered {
	t.Helper()
	return w.send(t, cert, http.MethodPost, "/api", strings.NewReader(strings.Repeat("x", size)), header)
}

// announce sends the headers of a request with a body of 1 MB, and returns when
// the relay reads it.
func (w *environment) announce(t *testing.T, cert *tls.Certificate, header http.Header) {
	t.Helper()
	conn := w.dial(t, cert)
	t.Cleanup(func() { _ = conn.Close() })
	var request strings.Builder
	request.WriteString("POST /api HTTP/1.1\r\nHost: relay\r\nContent-Length: 1048576\r\nExpect: 100-continue\r\n")
	_ = header.Write(&request)
	if _, err := io.WriteString(conn, request.String()+"\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("answer %q, %v", line, err)
	}
}

// busyHub is a hub that answers nothing until it is released, so that the relay
// holds bodies.
type busyHub struct {
	t       *testing.T
	w       *environment
	got     chan struct{}
	release context.CancelFunc
	all     sync.WaitGroup
}

func newBusyHub(t *testing.T) *busyHub {
	t.Helper()
	ctx, release := context.WithCancel(t.Context())
	h := &busyHub{t: t, got: make(chan struct{}, 1000), release: release}
	h.w = newEnvironment(t, func(http.ResponseWriter, *http.Request) { h.got <- struct{}{}; <-ctx.Done() })
	return h
}

// end lets the hub answer, and waits for the clients.
func (h *busyHub) end() {
	h.release()
	h.all.Wait()
}

// send sends a body of 3 MB. It returns the answer of the relay, or nil once
// the hub has the request.
func (h *busyHub) send(t *testing.T, cert *tls.Certificate, header http.Header) *answered {
	t.Helper()
	answers := make(chan answered, 1)
	h.all.Go(func() { answers <- h.w.post(h.t, cert, header, bodyLimit) })
	select {
	case <-h.got:
		return nil
	case a := <-answers:
		return &a
	}
}

func (h *busyHub) hold(t *testing.T, cert *tls.Certificate, header http.Header) {
	t.Helper()
	if a := h.send(t, cert, header); a != nil {
		t.Fatalf("answer %+v", a)
	}
}

func (h *busyHub) expectRefused(t *testing.T, cert *tls.Certificate, header http.Header) {
	t.Helper()
	a := h.send(t, cert, header)
	if a == nil {
		t.Fatal("the hub got the request")
	}
	a.expect(t, http.StatusTooManyRequests, "try again later")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A cluster renews its certificate at will, and its add-ons have certificates
// of their own. All of them share.
func TestClusterSharesItsMemory(t *testing.T) {
	h := newBusyHub(t)
	defer h.end()
	ca := h.w.ca
	h.hold(t, ca.issue(t, nil), nil)
	for name, user := range map[string]string{"renewed certificate": agentUser,
		"another agent": "system:open-cluster-management:cluster1:agent2", "add-on": addOnUser,
		"user without agent": agentGroup} {
		t.Run(name, func(t *testing.T) { h.expectRefused(t, ca.named(t, user, allAgents), nil) })
	}
	for name, user := range map[string]string{"name that begins alike": agentOf("cluster10"),
		"add-on of another cluster": strings.Replace(addOnUser, "cluster1", "cluster2", 1)} {
		t.Run(name, func(t *testing.T) { h.hold(t, ca.named(t, user, allAgents), nil) })
	}
	h.hold(t, nil, bearer("a"))
}

// A client without any credential makes up tokens, so they share by address.
func TestAddressSharesItsMemory(t *testing.T) {
	for name, c := range map[string]struct{ holder, same, other string }{
		"IPv4": {"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"},
		// a client has a whole /64
		"IPv6":                     {"[2001:db8::1]:1", "[2001:db8::ffff:1]:1", "[2001:db8:0:1::1]:1"},
		"IPv4 on a socket of IPv6": {"192.0.2.1:1", "[::ffff:192.0.2.1]:2", "[::ffff:192.0.2.2]:1"},
		"socket of Unix":           {"@", "@", "192.0.2.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newBusyHub(t)
			defer h.end()
			h.hold(t, nil, from(c.holder))
			h.expectRefused(t, nil, from(c.same))
			h.hold(t, nil, from(c.other))
		})
	}
}

// All clusters together fill 64 MB. Tokens have another 64 MB.
func TestBodiesOfAllClustersAreBounded(t *testing.T) {
	h := newBusyHub(t)
	defer h.end()
	for i := range allInFlight {
		h.hold(t, h.w.ca.named(t, agentOf(fmt.Sprint("c", i)), allAgents), nil)
	}
	h.expectRefused(t, h.w.ca.issue(t, nil), nil)
	for i := range allInFlight {
		h.hold(t, nil, from(fmt.Sprintf("192.0.2.%d:1", i)))
	}
	h.expectRefused(t, nil, from("198.51.100.1:1"))
	h.end()
	for _, cert := range []*tls.Certificate{nil, h.w.ca.issue(t, nil)} {
		header := bearer("a")
		if cert != nil {
			header = nil
		}
		if a := h.w.post(t, cert, header, bodyLimit); a.code != http.StatusOK {
			t.Errorf("the memory of requests that ended is still taken: %+v", a)
		}
	}
}

// unfinished is a body whose last byte never comes.
type unfinished struct {
	content io.Reader
	stop    <-chan struct{}
}

func (u *unfinished) Read(p []byte) (int, error) {
	n, err := u.content.Read(p)
	if err == io.EOF {
		<-u.stop
	}
	return n, err
}

// A made-up token reaches no hub before its body is complete. All but one of
// 100 bodies are refused while they arrive.
func TestUnknownClientHoldsLittleMemory(t *testing.T) {
	w := newEnvironment(t, nil)
	c := w.client(t, nil)
	w.get(t, nil, bearer("made-up"))
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	content, answers, all := bytes.Repeat([]byte("x"), bodyLimit-10), make(chan int, 100), sync.WaitGroup{}
	for range cap(answers) {
		all.Go(func() {
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.relay.URL+"/api",
				&unfinished{bytes.NewReader(content), ctx.Done()})
			request.Header = bearer("made-up")
			answer, err := c.Do(request)
			if err == nil {
				answers <- answer.StatusCode
				_ = answer.Body.Close() // waits for the client's own body
			}
		})
	}
	for range cap(answers) - 1 {
		if code := <-answers; code != http.StatusTooManyRequests {
			t.Errorf("answer %d", code)
		}
	}
	if grew := heap() - before; grew > 40 {
		t.Errorf("one connection without a valid credential holds %d MB", grew)
	}
	if a := w.post(t, w.ca.issue(t, nil), nil, bodyLimit); a.code != http.StatusOK {
		t.Errorf("an agent with a certificate: %+v", a)
	}
	cancel()
	all.Wait()
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse) >> 20
}

// The budget is free again after each answer, also that to a body which is
// refused.
func TestBodiesAreCountedOnlyInFlight(t *testing.T) {
	w := newEnvironment(t, nil)
	for range 3 { // a cluster or an address holds one
		if a := w.post(t, nil, bearer("a"), bodyLimit); a.code != http.StatusOK {
			t.Fatalf("answer %+v", a)
		}
		body := io.LimitReader(neverEnding{}, bodyLimit+1) // of unknown length
		w.send(t, nil, http.MethodPost, "/api", body, bearer("a")).expect(t, http.StatusRequestEntityTooLarge, "limit")
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// A watch would hold its body for as long as it lasts.
func TestWatchWithABodyIsRefused(t *testing.T) {
	w := newEnvironment(t, nil)
	cert := w.ca.issue(t, nil)
	for name, body := range map[string]io.Reader{"known length": strings.NewReader("x"),
		"unknown length": io.LimitReader(neverEnding{}, 1)} {
		t.Run(name, func(t *testing.T) {
			w.send(t, cert, http.MethodGet, "/api?watch=1", body, nil).expect(t, http.StatusBadRequest, "no body")
			if w.got(t) != nil {
				t.Error("the hub got it")
			}
		})
	}
}
