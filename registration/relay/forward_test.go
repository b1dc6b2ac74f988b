package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/registration/relay"
)

func readAnswer(t testing.TB, w *environment, conn net.Conn, method string) answered {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answered{answer.StatusCode, answer.Header, string(content)}
	a.expectNoSecret(t, w)
	return a
}

// An API server may read an identity from any header that its flags name.
func TestOnlyKnownHeadersReachTheHub(t *testing.T) {
	w := newEnvironment(t, nil)
	const evil = "system:masters"
	header := http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"gzip"},
		"Content-Type": {"application/json"}, "If-None-Match": {"1"}, "User-Agent": {"agent"},
		"X-Remote-User": {evil}, "X-Remote-Group": {evil}, "X-Remote-Uid": {evil}, "X-Remote-Extra-Scopes": {evil},
		"X-Forwarded-For": {evil}, "X-Forwarded-Host": {evil}, "X-Forwarded-Proto": {evil}, "X-Forwarded-Uri": {evil},
		"Forwarded": {"for=" + evil}, "X-Real-Ip": {evil},
		"X-Forwarded-Client-Cert": {evil}, "Ssl-Client-Cert": {evil}, "Cookie": {evil}, "Audit-Id": {evil},
		"Sec-Websocket-Protocol": {evil},
		"Te":                     {"trailers"}, "Keep-Alive": {evil}, "Proxy-Authorization": {evil},
		"Proxy-Connection": {evil},
		"Impersonate":      {evil}, "Impersonate_user": {evil},
		"Connection": {"Impersonate-User, Impersonate-Group, Authorization, Content-Type"}}
	known := []string{"Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "User-Agent", "Authorization"}
	for name, c := range map[string]struct {
		token string
		also  []string
	}{
		"certificate": {"", []string{"Impersonate-User", "Impersonate-Group"}},
		"bearer":      {"a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, cert := header.Clone(), w.ca.issue(t, nil)
			if c.token != "" {
				h.Set("Authorization", "Bearer "+c.token)
				cert = nil
			}
			if a := w.sendHTTP1(t, cert, h); a.code != http.StatusOK {
				t.Fatalf("answer %+v", a)
			}
			got := w.got(t)
			for name, values := range got.Header {
				if !slices.Contains(append(c.also, known...), name) || strings.Contains(strings.Join(values, " "), evil) {
					t.Errorf("the hub got %s: %q", name, values)
				}
			}
			for _, name := range append(c.also, known...) {
				if got.Header.Get(name) == "" {
					t.Errorf("the hub did not get %s", name)
				}
			}
			if got.Host != w.hub.Listener.Addr().String() {
				t.Errorf("the hub got the host %q", got.Host)
			}
		})
	}
}

func TestTargetIsForwardedUnmodifiedOrRefused(t *testing.T) {
	w := newEnvironment(t, nil)
	cert := w.ca.issue(t, nil)
	for target, code := range map[string]int{
		"/": 200, "/api": 200, "/api/v1/namespaces?limit=1&labelSelector=a%3Db,c": 200, "/api?": 200,
		"/api?a=1;b=2&c=%zz":   200,
		"/api/v1/../../secret": 200, "/api/%2e%2e/secret": 200, "/api/..%2fsecret": 200, "/api%2Fv1": 200,
		"//hub.example/api": 200, "/api//v1/": 200, "/a%00b": 200,
		"/apis/rbac/system:open-cluster-management:a": 200,
		"http://other/api":                            400, "https://user:password@other/api": 400, "other:443": 400,
		`/a"b`: 400, "/a#b": 400,
	} {
		t.Run(strings.ReplaceAll(target, "/", "|"), func(t *testing.T) {
			a := w.raw(t, cert, "GET "+target+" HTTP/1.1\r\nHost: relay\r\n\r\n")
			got := w.got(t)
			if a.code != code || (got != nil) != (code == 200) {
				t.Fatalf("answer %+v, the hub got %v", a, got)
			}
			if got != nil && got.RequestURI != target {
				t.Errorf("the hub got %q", got.RequestURI)
			}
		})
	}
	t.Run("CONNECT", func(t *testing.T) {
		w.raw(t, cert, "CONNECT other:443 HTTP/1.1\r\nHost: other\r\n\r\n").expect(t, 400, "exec")
		w.send(t, cert, http.MethodConnect, "", nil, nil).expect(t, 400, "exec") // HTTP/2
		if w.got(t) != nil {
			t.Error("the hub got it")
		}
	})
}

// onlyReader hides the length of what it reads.
type onlyReader struct {
	io.Reader
	read atomic.Int64
}

func (r *onlyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read.Add(int64(n))
	return n, err
}

func TestLargeBodies(t *testing.T) {
	whole := make(chan int, 100)
	w := newEnvironment(t, func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			whole <- len(body)
		}
	})
	const most, large = 3 << 20, 10 << 20
	for name, cert := range map[string]bool{"certificate": true, "bearer": false} {
		t.Run(name, func(t *testing.T) {
			post := func(t *testing.T, body io.Reader) answered {
				if cert {
					return w.send(t, w.ca.issue(t, nil), http.MethodPost, "/api", body, nil)
				}
				return w.send(t, nil, http.MethodPost, "/api", body, bearer("a"))
			}
			for what, body := range map[string]io.Reader{
				"the limit":                   bytes.NewReader(make([]byte, most)),
				"the limit, length not given": &onlyReader{Reader: bytes.NewReader(make([]byte, most))},
			} {
				t.Run(what, func(t *testing.T) {
					if a := post(t, body); a.code != http.StatusOK || <-whole != most {
						t.Errorf("answer %+v", a)
					}
				})
			}
			for what, size := range map[string]int{"one byte more": most + 1, "10 MB": large} {
				t.Run(what, func(t *testing.T) {
					post(t, bytes.NewReader(make([]byte, size))).expect(t, http.StatusRequestEntityTooLarge, "3145728")
				})
				t.Run(what+", length not given", func(t *testing.T) {
					body := &onlyReader{Reader: bytes.NewReader(make([]byte, size))}
					post(t, body).expect(t, http.StatusRequestEntityTooLarge, "3145728")
					if read := body.read.Load(); size == large && read > large/2 {
						t.Errorf("the relay read %d bytes", read)
					}
				})
			}
		})
	}
	t.Run("nothing of a body whose length is too large is read", func(t *testing.T) {
		w.raw(t, w.ca.issue(t, nil), "POST /api HTTP/1.1\r\nHost: relay\r\nContent-Length: 10485760\r\n\r\n").expect(t,
			http.StatusRequestEntityTooLarge, "3145728")
	})
	if len(whole) > 0 {
		t.Errorf("the hub read a body of %d bytes to its end", <-whole)
	}
	if said := w.logged.String(); said != "" {
		t.Errorf("logged %q", said)
	}
}

// With HTTP/2 on both sides, a proxy that streams bodies hangs here within the
// first 100 requests.
func TestHubAnswersBeforeItReadsTheBody(t *testing.T) {
	w := newEnvironment(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		rw.(http.Flusher).Flush() //nolint:forcetypeassert // a server's
		_, _ = io.WriteString(rw, "no")
	})
	c := w.client(t, w.ca.issue(t, nil))
	c.Timeout = time.Minute
	for i := range 500 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.relay.URL+"/api",
			bytes.NewReader(make([]byte, 300+i)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || string(content) != "no" {
			t.Fatalf("answer %d, %q, %v", i, content, err)
		}
	}
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	w := newEnvironment(t, nil)
	cert := w.ca.issue(t, nil)
	for name, request := range map[string]string{
		"length not kept":  "POST /api HTTP/1.1\r\nHost: relay\r\nContent-Length: 10\r\n\r\nabc",
		"chunks not ended": "POST /api HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"garbage chunks":   "POST /api HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w.rawThenEOF(t, cert, request).expect(t, http.StatusBadRequest, "did not arrive")
			if got := w.got(t); got != nil {
				t.Errorf("the hub got %q", got.Header)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	next, left := make(chan string), make(chan struct{})
	w := newEnvironment(t, func(rw http.ResponseWriter, r *http.Request) {
		for {
			select {
			case line := <-next:
				_, _ = fmt.Fprintln(rw, line)
				rw.(http.Flusher).Flush() //nolint:forcetypeassert // a server's
			case <-r.Context().Done():
				close(left)
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.relay.URL+"/api?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan *http.Response)
	go func() {
		answer, err := w.client(t, w.ca.issue(t, nil)).Do(request)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	next <- "first"
	answer := <-answers
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{"first", "second", "third"} {
		if want != "first" {
			next <- want
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("line %q, %v", lines.Text(), lines.Err())
		}
	}
	cancel()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the hub still serves a client that has left")
	}
}

func TestAnswersOfTheHub(t *testing.T) {
	var code atomic.Int64
	w := newEnvironment(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", "https://"+rw.Header().Get("Date")+"inner.example/")
		rw.Header().Set("ETag", "1")
		rw.WriteHeader(int(code.Load()))
	})
	for _, c := range []struct {
		hub, certificate, bearer int
	}{
		{200, 200, 200}, {201, 201, 201}, {304, 304, 304}, {403, 403, 403}, {404, 404, 404}, {409, 409, 409}, {429, 429, 429},
		{500, 500, 500}, {503, 503, 503},
		{301, 502, 502}, {302, 502, 502}, {307, 502, 502}, {308, 502, 502},
		{401, 502, 401}, // an agent would throw its certificate away
	} {
		t.Run(http.StatusText(c.hub), func(t *testing.T) {
			code.Store(int64(c.hub))
			for want, a := range map[*int]answered{&c.certificate: w.get(t, w.ca.issue(t, nil), nil),
				&c.bearer: w.get(t, nil, bearer("a"))} {
				if a.code != *want {
					t.Errorf("answer %+v instead of %d", a, *want)
				}
				if *want == http.StatusBadGateway {
					a.expect(t, http.StatusBadGateway, "its log says why")
					if a.header.Get("Location") != "" {
						t.Errorf("Location %q", a.header.Get("Location"))
					}
				}
			}
			w.mu.Lock()
			w.seen = nil
			w.mu.Unlock()
		})
	}
	if said := w.logged.String(); !strings.Contains(said, "relay's own credential") ||
		!strings.Contains(said, "redirect") {
		t.Errorf("logged %q", said)
	}
}

func TestHubThatCannotBeReached(t *testing.T) {
	t.Run("not its certificate", func(t *testing.T) {
		w := newEnvironment(t, nil)
		o := w.options()
		o.Hub.CAData = nil
		w.start(t, o, relay.TLSConfig(w.ca.pool()))
		w.get(t, nil, bearer("a")).expect(t, http.StatusBadGateway, "its log says why")
		w.get(t, w.ca.issue(t, nil), nil).expect(t, http.StatusBadGateway, "its log says why")
		if w.got(t) != nil {
			t.Error("the hub got it")
		}
	})
	t.Run("down", func(t *testing.T) {
		w := newEnvironment(t, nil)
		w.hub.Close()
		w.get(t, nil, bearer("a")).expect(t, http.StatusBadGateway, "its log says why")
		w.get(t, w.ca.issue(t, nil), nil).expect(t, http.StatusBadGateway, "its log says why")
		if said := w.logged.String(); !strings.Contains(said, w.hub.Listener.Addr().String()) {
			t.Errorf("the log %q does not name the hub", said)
		}
	})
}
