package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

// raw sends bytes to the proxy and returns the bytes of its answer.
func raw(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address) //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // of a test
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func startReady(t *testing.T) (addresses []string) {
	t.Helper()
	addresses = start(t, startServer(t, &issuer{t: t}))
	kubetest.Eventually(t, "credentials are there", func() bool { return get(t, addresses[0]).status == http.StatusOK })
	return addresses
}

// The JavaScript SDK needs the Z, botocore all four fields, and the Go SDK a
// content type without charset.
func TestAnswerOnTheWire(t *testing.T) {
	for _, address := range startReady(t) {
		t.Run(address, func(t *testing.T) {
			for path, authorization := range map[string]string{
				"/v1/credentials":           "Authorization: " + secret + "\r\n",
				"/v1/credentials/" + secret: "", // with AWS_CONTAINER_CREDENTIALS_RELATIVE_URI
			} {
				got := raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: "+address+"\r\nAccept: */*\r\n"+authorization+
					"Connection: close\r\n\r\n")
				want := regexp.MustCompile(
					`^HTTP/1\.1 200 OK\r\n(?:[^\r]+\r\n)*Content-Type: application/json\r\n(?:[^\r]+\r\n)*\r\n` +
						`\{"AccessKeyId":"ASIA1","SecretAccessKey":"very/secret\+1","Token":"session1==","Expiration":"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}$`)
				if !want.MatchString(got) {
					t.Errorf("%s: got %q, want %s", path, got, want)
				}
				if strings.Contains(strings.ToLower(got), "access-control") {
					t.Errorf("a web page may read the answer: %q", got)
				}
			}
		})
	}
}

func TestErrorOnTheWire(t *testing.T) {
	refused := refusing(t, http.StatusForbidden, "Conflict", "two IAMBindings")
	address := start(t, startServer(t, refused))[0]
	kubetest.Eventually(t, "the server has refused", func() bool { return get(t, address).status == http.StatusForbidden })
	got := raw(t, address, "GET /v1/credentials HTTP/1.1\r\nHost: "+address+"\r\nAuthorization: "+secret+
		"\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "\r\nContent-Type: application/json\r\n") ||
		!strings.HasSuffix(got, "\r\n\r\n"+`{"Code":"Conflict","Message":"two IAMBindings"}`) {
		t.Errorf("got %q, want the 403 of the server", got)
	}
}

func TestForgedRequestsGetNothing(t *testing.T) {
	address := startReady(t)[0]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	const authorized = "Authorization: " + secret + "\r\n"
	for name, test := range map[string]struct{ method, path, host, headers, status string }{
		"other Host":               {host: "attacker.example"},
		"other Host, our port":     {host: "attacker.example:" + port},
		"Host localhost":           {host: "localhost:" + port},
		"Host without the port":    {host: "127.0.0.1"},
		"Host of the other family": {host: "[::1]:" + port},
		"absolute URL of another":  {path: "http://attacker.example/v1/credentials"},
		"no Authorization":         {headers: "X-Nothing: here\r\n", status: "401"},
		"empty Authorization":      {headers: "Authorization: \r\n", status: "401"},
		"wrong Authorization":      {headers: "Authorization: " + secret + "x\r\n", status: "401"},
		"two Authorizations":       {headers: authorized + authorized, status: "401"},
		"secret in two parts": {headers: "Authorization: " + secret[:5] + "\r\nAuthorization: " + secret[5:] + "\r\n",
			status: "401"},
		"secret in the query": {path: "/v1/credentials?Authorization=" + secret, headers: "A: b\r\n", status: "401"},
		"POST":                {method: "POST", status: "405"},
		"HEAD":                {method: "HEAD", status: "405"},
		"PUT":                 {method: "PUT", status: "405"},
		"OPTIONS of a preflight": {method: "OPTIONS", headers: authorized + "Origin: http://a.example\r\n",
			status: "405"},
		"OPTIONS of the whole server": {method: "OPTIONS", path: "*", status: "405"},
		"CONNECT":                     {method: "CONNECT", path: "127.0.0.1:" + port, status: "405"},
		"X-Forwarded-For":             {headers: authorized + "X-Forwarded-For: 127.0.0.1\r\n"},
		"empty X-Forwarded-For":       {headers: authorized + "X-Forwarded-For: \r\n"},
		"x-forwarded-for":             {headers: authorized + "x-forwarded-for: 127.0.0.1\r\n"},
		"Forwarded":                   {headers: authorized + "Forwarded: for=127.0.0.1\r\n"},
		"Via":                         {headers: authorized + "Via: 1.1 squid\r\n"},
		"other path":                  {path: "/", status: "404"},
		"longer path":                 {path: "/v1/credentials/", status: "404"},
		"path with a wrong secret":    {path: "/v1/credentials/" + secret + "x", status: "404"},
		"path that could be cleaned":  {path: "//v1/credentials", status: "404"},
		"large headers":               {headers: authorized + "X: " + strings.Repeat("x", 30<<10) + "\r\n", status: "431"},
	} {
		t.Run(name, func(t *testing.T) {
			fill := func(value *string, otherwise string) {
				if *value == "" {
					*value = otherwise
				}
			}
			fill(&test.method, "GET")
			fill(&test.path, "/v1/credentials")
			fill(&test.host, address)
			fill(&test.headers, authorized)
			fill(&test.status, "403")
			got := raw(t, address, test.method+" "+test.path+" HTTP/1.1\r\nHost: "+test.host+"\r\n"+test.headers+
				"Connection: close\r\n\r\n")
			if !strings.HasPrefix(got, "HTTP/1.1 "+test.status+" ") {
				t.Errorf("got %.200q, want status %s", got, test.status)
			}
			for _, part := range []string{"ASIA1", "very/secret", "session1", secret} {
				if strings.Contains(got, part) {
					t.Errorf("the answer holds %s: %q", part, got)
				}
			}
		})
	}
}

func TestRequestsFromAnotherAddressGetNothing(t *testing.T) {
	p := running(t, &issuer{t: t})
	kubetest.Eventually(t, "the proxy has credentials", func() bool { return ask(t, p).status == http.StatusOK })
	for name, test := range map[string]struct {
		local, remote, host string
		status              int
	}{
		"loopback":                          {"127.0.0.1:2020", "127.0.0.1:40000", "127.0.0.1:2020", 200},
		"loopback, IPv6":                    {"[::1]:2020", "[::1]:40000", "[::1]:2020", 200},
		"link-local address from itself":    {"169.254.170.2:80", "169.254.170.2:40000", "169.254.170.2", 200},
		"link-local address from loopback":  {"169.254.170.2:80", "127.0.0.1:40000", "169.254.170.2:80", 200},
		"link-local address by a neighbour": {"169.254.170.2:80", "10.0.0.9:40000", "169.254.170.2", 403},
		"metadata address as the peer":      {"169.254.170.2:80", "169.254.169.254:40000", "169.254.170.2", 403},
		"address of the pod by a neighbour": {"10.0.0.8:2020", "10.0.0.9:40000", "10.0.0.8:2020", 403},
		"port 80 left out for another port": {"169.254.170.2:8080", "169.254.170.2:40000", "169.254.170.2", 403},
		"peer that is no address":           {"127.0.0.1:2020", "@", "127.0.0.1:2020", 403},
		"connection without an address":     {"", "127.0.0.1:40000", "127.0.0.1:2020", 403},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if test.local != "" {
				local, err := net.ResolveTCPAddr("tcp", test.local)
				if err != nil {
					t.Fatal(err)
				}
				ctx = context.WithValue(ctx, http.LocalAddrContextKey, local)
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/credentials", nil)
			r.Host, r.RemoteAddr = test.host, test.remote
			r.Header.Set("Authorization", secret)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if w.Code != test.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, test.status)
			}
		})
	}
}

func TestListensOnlyWhereNoOtherPodReaches(t *testing.T) {
	for _, address := range []string{"", "0.0.0.0:2020", "[::]:2020", ":2020", "10.0.0.8:2020", "169.254.169.254:80",
		"localhost:2020", "127.0.0.1"} {
		t.Run(fmt.Sprintf("%q", address), func(t *testing.T) {
			if listeners, err := proxy.Listen(t.Context(), address); err == nil ||
				!strings.Contains(err.Error(), "use 127.0.0.1:port") {
				t.Errorf("got %v and error %v, want a refusal with the remedy", listeners, err)
			}
		})
	}
}

func TestListensOnTheLoopbackOfBothFamilies(t *testing.T) {
	want := []string{"127.0.0.1"}
	if six, err := net.Listen("tcp", "[::1]:0"); err == nil { //nolint:noctx // of a test
		_ = six.Close()
		want = append(want, "[::1]")
	}
	listeners, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listeners[0].Addr().String())
	var got []string
	for _, l := range listeners {
		got = append(got, strings.TrimSuffix(l.Addr().String(), ":"+port))
		_ = l.Close()
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestListenFailsOnAPortThatIsTaken(t *testing.T) {
	listeners, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listeners[0].Addr().String()
	for i, l := range listeners {
		t.Run(l.Addr().Network()+" "+l.Addr().String(), func(t *testing.T) {
			if _, err := proxy.Listen(t.Context(), address); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("got error %v, want %v", err, syscall.EADDRINUSE)
			}
		})
		_ = listeners[i].Close() // then only the other family has the port
	}
}

// A listener that ends takes the others with it: a proxy of one family would
// look healthy.
func TestServeFailsWithAListener(t *testing.T) {
	listeners, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- proxy.Serve(t.Context(), http.NotFoundHandler(), listeners) }()
	_ = listeners[len(listeners)-1].Close()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}
