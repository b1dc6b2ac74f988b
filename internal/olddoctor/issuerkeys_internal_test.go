package doctor

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/workloadid/workloadid/internal/transport"
)

// The issuer's word leads into the own network only where the issuer is there itself.
func TestKeysInTheOwnNetwork(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for name, tt := range map[string]struct {
		issuer, known string
		inside, asked bool
	}{
		"an issuer elsewhere":               {"https://issuer.example", "", false, false},
		"an issuer inside, another server":  {"https://issuer.example", "", true, false},
		"that server, which was outside":    {server.URL, "", false, false},
		"that server":                       {server.URL, "", true, true},
		"known as a private one":            {"https://issuer.internal", "https://issuer.internal", false, true},
		"known as a public one":             {"https://issuer.example", "https://issuer.example", false, false},
		"private, and not the one expected": {"https://issuer.internal", "https://other.internal", false, false},
	} {
		e := &examination{Config: Config{Issuer: tt.known}}
		e.token.claims = &Claims{Issuer: tt.issuer}
		d := &documents{parsed: discovery{JWKSURI: server.URL + "/keys"}}
		d.discovery.inside = tt.inside
		got := e.fetchKeys(t.Context(), d)
		if asked := got.status == http.StatusNotFound; asked != tt.asked || !asked && !errors.Is(got.err, transport.ErrInside) {
			t.Errorf("%s: %d, %v", name, got.status, got.err)
		}
		if f, unseen := notLookedAt(got); !tt.asked && (!unseen || f.Result != Unknown) {
			t.Errorf("%s: %+v", name, f)
		}
		e.pool.CloseIdleConnections()
	}
	e := &examination{}
	defer e.pool.CloseIdleConnections()
	if d := e.fetch(t.Context(), server.URL); !d.inside || d.untrusted == nil || d.tls == nil {
		t.Errorf("%+v", d)
	}
}

func TestSameServer(t *testing.T) {
	for b, want := range map[string]bool{"https://a.example/keys": true, "https://A.example.:443/": true, "https://a.example:8443/": false,
		"http://a.example/": false, "https://b.a.example/": false, "https://a.example.b/": false, "%": false} {
		if sameServer("https://a.example", b) != want {
			t.Error(b)
		}
	}
}
