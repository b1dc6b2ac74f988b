package transport_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/transport"
)

func TestLeadsInside(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "::", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "10.1.2.3",
		"172.16.0.1", "192.168.0.1",
		"169.254.169.254", "169.254.169.254.", "100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16",
		"192.0.0.192", "198.18.0.1",
		"224.0.0.1", "255.255.255.255", "::1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::7f00:1", "fe80::1",
		"fe80::1%eth0", "2001:db8::1%eth0",
		"fd00:ec2::254", "fc00::1", "fec0::1", "ff02::1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "::ffff:0:a9fe:a9fe",
		"64:ff9b:1::8.8.8.8", "2002:a9fe:a9fe::1", "2001::1",
		"localhost", "localhost.", "LOCALHOST", "x.localhost", "a.localdomain", "printer.local", "a.b.svc",
		"kubernetes.default.svc", "kubernetes.default.svc.",
		"kubernetes.default", "kubernetes", "vault.vault.svc.cluster.local", "metadata", "metadata.google.internal",
		"metadata.google.internal.",
		"METADATA.GOOGLE.INTERNAL", "vault.INTERNAL", "router.home.arpa", "", ".", "a..example", "１２７.0.0.1",
		"loc\u00adalhost.example"} {
		if !transport.LeadsInside(host) {
			t.Errorf("%q is taken for one of the internet", host)
		}
	}
	for _, host := range []string{"issuer.example", "issuer.example.", "oidc.eks.eu-central-1.amazonaws.com", "8.8.8.8",
		"100.63.255.255", "100.128.0.1",
		"172.32.0.1", "169.253.0.1", "2600::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "::ffff:0:808:808", "2002:808:808::1",
		"internal.example", "svc.example", "xn--bcher-kva.example",
		"127.0.0.1.nip.io", "local.k8s.example"} {
		if transport.LeadsInside(host) {
			t.Errorf("%q is taken for one of the own network", host)
		}
	}
}

// A name may lead anywhere: what counts is where it does.
func TestOutside(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	var pool transport.Pool
	defer pool.CloseIdleConnections()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	for _, address := range []string{server.URL, "https://localhost:" + port} {
		outside := transport.Outside(client(t, &pool, nil, ""), address)
		insecure := transport.Derive(outside, func(t *http.Transport) {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // asks a test
		})
		for _, c := range []*http.Client{outside, insecure} {
			if _, err := get(t, c, address); !errors.Is(err, transport.ErrInside) || asked != 0 {
				t.Errorf("%s: %v after %d requests", address, err, asked)
			}
			c.CloseIdleConnections()
		}
	}
}

// With a named proxy there is no other way, and the proxy itself may be in the
// own network.
func TestOutsideByProxy(t *testing.T) {
	var connected []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connected = append(connected, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	var pool transport.Pool
	const address = "https://keys.example/"
	_, err = get(t, transport.Outside(client(t, &pool, at, ""), address), address)
	var refused *transport.ProxyError
	if !errors.As(err, &refused) || len(connected) != 1 || connected[0] != "CONNECT keys.example:443" {
		t.Errorf("%v after %q", err, connected)
	}
}

type opaque struct{ http.RoundTripper }

// Derive refuses foreign transports, and its clients are guarded.
func TestDerive(t *testing.T) {
	unchanged := func(*http.Transport) {}
	if c := transport.Derive(&http.Client{Transport: opaque{http.DefaultTransport}}, unchanged); c != nil {
		t.Errorf("derived %v", c)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
		_, _ = w.Write(make([]byte, transport.MaxBody+1))
	}))
	defer server.Close()
	c := transport.Derive(transport.Guard(&http.Client{}), unchanged)
	defer c.CloseIdleConnections()
	var tooLarge *http.MaxBytesError
	if _, err := get(t, c, server.URL+"/"); !errors.As(err, &tooLarge) {
		t.Errorf("the answer: %v", err)
	}
	if _, err := get(t, c, server.URL+"/elsewhere"); err == nil || !strings.Contains(err.Error(), "redirect") ||
		c.Timeout != transport.RequestTimeout {
		t.Errorf("the redirect: %v", err)
	}
}
