package testenv

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// RefusingProxy starts a proxy that answers every request with status 403. It
// returns the proxy's address and a function that lists what the proxy was
// asked, each as method and host.
func RefusingProxy(t testing.TB) (address *url.URL, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// Alias starts a server and returns its address with a host name in place of
// 127.0.0.1. Until the test ends, names that this process looks up lead to
// 127.0.0.1, so the test must not run beside others.
func Alias(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	resolveNames(t)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://alias.example:" + port
}

// resolveNames makes every name lead to 127.0.0.1 until the test ends, but
// those below the domain invalid, which do not exist.
func resolveNames(t testing.TB) {
	t.Helper()
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, nameserver := net.Pipe()
		go answerNames(nameserver)
		return client, nil
	}}
}

// answerNames speaks DNS over a stream (RFC 1035, section 4.2.2) until the
// client closes it.
func answerNames(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nothing is lost
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer := addressAnswer(query)
		answer = append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), //nolint:gosec // less than 300 bytes
			answer...)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// addressAnswer answers a query for IPv4 addresses with 127.0.0.1, and others
// with no records.
func addressAnswer(query []byte) []byte {
	const header, afterName = 12, 5
	question := query[header:]
	question = question[:bytes.IndexByte(question, 0)+afterName]
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	switch {
	case bytes.Contains(question, []byte("\ainvalid\x00")):
		answer[3] |= 3 // no such name
	case question[len(question)-3] == 1: // type A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return answer
}

// CheckProxyErrors makes calls through proxies that give no answer, each in its
// own way, and checks that the errors tell them apart by nothing but the
// address that the call named. It needs get to make an https request. The
// proxies in except are left out.
func CheckProxyErrors(t *testing.T, get func(ctx context.Context, proxy auth.Option) error, except ...string) {
	t.Helper()
	resolveNames(t)
	proxies := hostileProxies(t)
	for _, name := range except {
		delete(proxies, name)
	}
	errs := map[string]error{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for name, proxy := range proxies {
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "silent" {
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			err := get(ctx, auth.WithProxyURL(*proxy))
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	calls.Wait()
	neutral := func(name string) string {
		return strings.ReplaceAll(errs[name].Error(), proxies[name].Host, "PROXY")
	}
	for name, err := range errs {
		t.Run("proxy that is "+name, func(t *testing.T) {
			CheckError(t, err, auth.ErrUnavailable, "no answer through the proxy")
			if got, want := neutral(name), neutral("refusing to listen"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// hostileProxies returns proxies that connect to no server.
func hostileProxies(t *testing.T) map[string]*url.URL {
	t.Helper()
	forbidding, _ := RefusingProxy(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	unknown := httptest.NewUnstartedServer(nil)
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0)
	unknown.StartTLS()
	t.Cleanup(unknown.Close)
	at := func(scheme, host string) *url.URL {
		return &url.URL{Scheme: scheme, Host: host, User: url.UserPassword("u", "hunter2")}
	}
	return map[string]*url.URL{
		"refusing to listen":        at("http", closed.Listener.Addr().String()),
		"a name without an address": at("http", "vault.invalid:8200"),
		"a web server":              forbidding,
		"an SSH server":             at("http", talker(t, "SSH-2.0-OpenSSH_9.6\r\n")),
		"a mail server":             at("socks5", talker(t, "220 mail.internal ESMTP\r\n")),
		"a server without TLS":      at("https", talker(t, "+PONG\r\n")),
		"another server with TLS":   at("https", unknown.Listener.Addr().String()),
		"connecting elsewhere":      at("http", talker(t, "HTTP/1.1 200 OK\r\n\r\nSSH-2.0-OpenSSH_9.6\r\n")),
		"asking for a password":     at("http", talker(t, "HTTP/1.1 407 vault.internal\r\nContent-Length: 0\r\n\r\n")),
		"closing":                   at("http", talker(t, "")),
		"silent":                    at("http", talker(t, "wait")),
	}
}

// talker starts a server that says the same to every client; one that says
// "wait" says nothing.
func talker(t *testing.T, says string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() }) // ends Accept
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close() //nolint:errcheck // nothing is lost
				if says == "wait" {
					<-t.Context().Done()
					return
				}
				_, _ = conn.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(conn, says)
			})
		}
	})
	return listener.Addr().String()
}
