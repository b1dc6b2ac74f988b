package relay_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/registration/relay"
)

// For all headers and targets, a request reaches the hub as the agent of its
// certificate, with its own token, or not at all.
func FuzzRequest(f *testing.F) {
	for _, header := range []string{"", "Authorization: Bearer a", "Authorization: Bearer a\r\nAuthorization: Bearer b",
		"Impersonate-User: admin", "impersonate-group : system:masters",
		"Connection: Impersonate-User, Authorization", "X-Remote-User: admin", "Upgrade: websocket\r\nConnection: Upgrade",
		"Transfer-Encoding: chunked", "Host: other"} {
		f.Add("GET", "/api/v1/namespaces?watch=1", header, true)
		f.Add("POST", "/api/../%2e%2e//a", header, false)
	}
	f.Add("CONNECT", "other:443", "", true)
	f.Add("GET", "http://other/", "Authorization: Basic a", false)
	w := newEnvironment(f, nil)
	handler, err := relay.New(w.options())
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(w.ca.issue(f, nil).Certificate[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, header string, cert bool) {
		request,
			err := http.ReadRequest(
			bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: relay\r\n" + header + "\r\n\r\n")))
		if err != nil {
			return
		}
		request.TLS = &tls.ConnectionState{}
		if cert {
			request.TLS.PeerCertificates = []*x509.Certificate{leaf}
		}
		sent := request.Header.Values("Authorization")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request.WithContext(t.Context()))
		answered{recorder.Code, recorder.Header(), recorder.Body.String()}.expectNoSecret(t, w)
		if got := w.got(t); got != nil {
			expectIdentity(t, got.Header, cert, sent)
			if got.RequestURI != target {
				t.Errorf("the hub got %q instead of %q", got.RequestURI, target)
			}
		}
	})
}

func expectIdentity(t *testing.T, got http.Header, cert bool, sent []string) {
	t.Helper()
	want := http.Header{"Authorization": sent}
	if cert {
		want = http.Header{"Authorization": {"Bearer " + ownToken}, "Impersonate-User": {agentUser},
			"Impersonate-Group": {agentGroup, allAgents}}
	}
	for name, values := range got {
		allowed := slices.Contains([]string{"Accept", "Accept-Encoding", "Content-Type", "Content-Length", "If-None-Match",
			"User-Agent"}, name)
		if !allowed && !slices.Equal(values, want[name]) {
			t.Errorf("the hub got %s: %q", name, values)
		}
	}
	for name := range want {
		if len(got.Values(name)) == 0 {
			t.Errorf("the hub did not get %s", name)
		}
	}
}
