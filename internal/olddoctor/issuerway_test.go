package doctor_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// tunnel is a proxy that connects to a server, whatever it is asked for.
func tunnel(t *testing.T, server string) (*url.URL, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Method+" "+r.Host)
		mu.Unlock()
		out, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", server)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		in, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
}

// An issuer with a certificate that is not trusted is looked at by the way that was named, and by no other.
func TestUntrustedIssuerBehindAProxy(t *testing.T) {
	issuer := httptest.NewTLSServer(http.NotFoundHandler())
	defer issuer.Close()
	proxy, seen := tunnel(t, issuer.Listener.Addr().String())
	w := newWorld(t, "aws")
	w.config.Token = w.sign(func(c map[string]any) { c["iss"] = "https://issuer.corp.test" })
	w.config.Options = append(w.config.Options, auth.WithProxyURL(*proxy))
	w.config.Skip = []string{"exchange"}
	w.config.Getenv = func(string) string { return "" }
	report := doctor.Run(t.Context(), w.config)
	if f := report.Of("discovery"); f.Result != doctor.Fail || !strings.Contains(f.Message, "404") {
		t.Errorf("%+v", f)
	}
	if f := report.Of("issuer-tls"); f.Result != doctor.Warn || f.Class != "A7" {
		t.Errorf("%+v", f)
	}
	want := []string{"CONNECT issuer.corp.test:443", "CONNECT issuer.corp.test:443"}
	if got := seen(); !slices.Equal(got, want) {
		t.Errorf("the proxy saw %q", got)
	}
}

// A way that is the caller's secret is not guessed; the certificate is known nevertheless, and so it is if the second try fails.
func TestUntrustedIssuerByAnotherWay(t *testing.T) {
	issuer := httptest.NewTLSServer(http.NotFoundHandler())
	defer issuer.Close()
	trusting := func() *http.Transport {
		return &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	}
	first := true
	once := trusting()
	once.DialContext = nil
	once.Proxy = func(*http.Request) (*url.URL, error) {
		if !first {
			return nil, errors.New("only once")
		}
		first = false
		return nil, nil //nolint:nilnil // no proxy
	}
	hidden := trusting()
	for name, way := range map[string]http.RoundTripper{"hidden": roundTrip(hidden.RoundTrip), "once": once} {
		w := newWorld(t, "aws")
		w.config.Token = w.sign(func(c map[string]any) { c["iss"] = issuer.URL })
		w.config.IssuerClient = &http.Client{Transport: way}
		w.config.Skip = []string{"exchange"}
		report := w.run()
		if f := report.Of("discovery"); f.Result != doctor.Unknown || !strings.Contains(f.Message, "certificate") {
			t.Errorf("%s: %+v", name, f)
		}
		if f := report.Of("issuer-tls"); f.Result != doctor.Warn || f.Class != "A7" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
