package azure_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// caFile replaces the CA of the environment by a file, which the returned
// function replaces atomically.
func (w *boundEnvironment) caFile(t *testing.T) (name string, write func(content []byte)) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "ca.crt")
	t.Setenv("AZURE_KUBERNETES_CA_DATA", "")
	t.Setenv("AZURE_KUBERNETES_CA_FILE", name)
	return name, func(content []byte) {
		if err := errors.Join(os.WriteFile(name+".new", content, 0o600), os.Rename(name+".new", name)); err != nil {
			t.Error(err)
		}
	}
}

// A changed file is trusted at once and in place of the old one, for new
// connections too.
func TestIdentityBindingsReadTheCAFileAgain(t *testing.T) {
	w := newBoundEnvironment(t)
	name, write := w.caFile(t)
	p, opened := bound(), 0
	good := func(connections int) {
		t.Helper()
		opened = 0
		if _, err := w.get(traced(t.Context(), &opened), p, "tenant-a"); err != nil || opened != connections {
			t.Fatalf("%v, %d new connections", err, opened)
		}
	}
	bad := func(want ...string) {
		t.Helper()
		_, err := w.get(t.Context(), p, "tenant-a")
		testenv.CheckError(t, err, auth.ErrUnavailable, want...)
	}
	bad("AZURE_KUBERNETES_CA_FILE", name, "no such file")
	write(nil)
	bad("AZURE_KUBERNETES_CA_FILE", name, "empty")
	old := w.proxy.CA()
	write(old)
	good(1)
	write(nil) // under way
	good(0)
	if err := w.proxy.RotateCA(); err != nil {
		t.Fatal(err)
	}
	write(append(old, w.proxy.CA()...))
	good(1)
	write(w.Cloud.CA()) // a wrong one: the open connection is not used
	bad("x509")
	write([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n"))
	bad(name, "PEM")
	write(make([]byte, 2<<20))
	bad(name, "larger than")
	write(w.proxy.CA())
	good(1)
	write(w.proxy.CA())
	good(0)
}

// Every call trusts a whole file, whatever happens to the file meanwhile.
func TestIdentityBindingsWhileTheCAFileIsReplaced(t *testing.T) {
	w := newBoundEnvironment(t)
	_, write := w.caFile(t)
	contents := [][]byte{w.proxy.CA(), nil, append(w.Cloud.CA(), w.proxy.CA()...)}
	write(contents[0])
	p := bound()
	if _, err := w.get(t.Context(), p, "tenant-a"); err != nil {
		t.Fatal(err)
	}
	var callers, writer sync.WaitGroup
	ended := make(chan struct{})
	writer.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			default:
				write(contents[n%len(contents)])
			}
		}
	})
	for range 8 {
		callers.Go(func() {
			for range 5 {
				if _, err := w.get(t.Context(), p, "tenant-b"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	close(ended)
	writer.Wait()
}

// tokenService answers in the place of the proxy, with the server name
// example.com.
func tokenService(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	t.Setenv("AZURE_KUBERNETES_TOKEN_PROXY", server.URL)
	t.Setenv("AZURE_KUBERNETES_SNI_NAME", "example.com")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	t.Setenv("AZURE_KUBERNETES_CA_DATA", string(ca))
	return server
}

// The name of the certificate decides, not the address.
func TestIdentityBindingsCheckTheServerName(t *testing.T) {
	w := newBoundEnvironment(t)
	t.Setenv("AZURE_KUBERNETES_SNI_NAME", "other.example")
	_, err := w.get(t.Context(), bound(), "tenant-a")
	testenv.CheckError(t, err, auth.ErrUnavailable, "tls")
	asked := ""
	tokenService(t, func(rw http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		_, _ = rw.Write([]byte(goodToken))
	})
	if _, err := w.get(t.Context(), bound(), "tenant-a"); err != nil || asked != "/"+tenantID+"/oauth2/v2.0/token" {
		t.Errorf("asked %q: %v", asked, err)
	}
	asked = ""
	t.Setenv("AZURE_KUBERNETES_SNI_NAME", "ests.aks.example")
	_, err = w.get(t.Context(), bound(), "tenant-a")
	testenv.CheckError(t, err, auth.ErrUnavailable, "x509", "ests.aks.example")
	t.Setenv("AZURE_KUBERNETES_SNI_NAME", "example.com")
	t.Setenv("AZURE_KUBERNETES_CA_DATA", "") // the roots of the system do not know it
	_, err = w.get(t.Context(), bound(), "tenant-a")
	testenv.CheckError(t, err, auth.ErrUnavailable, "x509")
	if asked != "" {
		t.Errorf("%s was asked", asked)
	}
}

// A proxy sends the token nowhere else, and its answers put no credential into
// an error.
func TestIdentityBindingsWithAHostileProxy(t *testing.T) {
	w := newBoundEnvironment(t)
	stranger := w.Token(t, "tenant-b", "app", azure.IdentityBindingAudience)
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked", r.Host)
	}))
	defer elsewhere.Close()
	redirect := http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect)
	refusal := `{"error":"` + stranger + `","error_description":"the token ` + stranger + ` of another tenant"}`
	answer := func(status int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("x-ms-request-id", stranger)
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body)) // a client that has gone needs no answer
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		reason provider.Reason
		want   string
	}{
		"redirect":              {redirect.ServeHTTP, auth.ErrUnavailable, "a redirect"},
		"token in an error":     {answer(403, refusal), auth.ErrDenied, "of another tenant"},
		"token as text":         {answer(403, stranger), auth.ErrDenied, "refuses the request"},
		"token in a header":     {answer(401, ""), auth.ErrDenied, "refuses the request"},
		"token as a token type": {answer(200, `{"token_type":"`+stranger+`"}`), auth.ErrUnavailable, "token_type"},
		"endless answer":        {answer(200, strings.Repeat(" ", 4<<20)), auth.ErrUnavailable, "larger than"},
		"no token endpoint":     {answer(404, "page not found"), auth.ErrUnavailable, "HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			tokenService(t, tc.answer)
			_, err := w.get(t.Context(), bound(), "tenant-a")
			testenv.CheckError(t, err, tc.reason, tc.want)
			w.tokenFile(t)
			_, err = get(t, bound())
			if err == nil || strings.Contains(err.Error(), "eyJ") {
				t.Errorf("the controller: %v", err)
			}
		})
	}
}
