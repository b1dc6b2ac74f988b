package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A document is read over https alone, also behind redirects.
func TestFetchStaysOnHTTPS(t *testing.T) {
	document := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusFound)
		}
	})
	plain, secure := httptest.NewServer(document), httptest.NewTLSServer(document)
	defer plain.Close()
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	for name, tc := range map[string]struct {
		to      string
		refused bool
	}{
		"https":   {secure.URL, false},
		"http":    {plain.URL, true},
		"endless": {secure.URL + "/loop", true},
	} {
		t.Run(name, func(t *testing.T) {
			first := httptest.NewUnstartedServer(http.RedirectHandler(tc.to, http.StatusFound))
			first.TLS = &tls.Config{Certificates: secure.TLS.Certificates}
			first.StartTLS()
			defer first.Close()
			_, _, err := fetch(t.Context(), first.URL, config, stayOnHTTPS, maxClusterInfo)
			var refused *redirectError
			if errors.As(err, &refused) != tc.refused || !tc.refused && err != nil {
				t.Errorf("got %v, want a refused redirect: %t", err, tc.refused)
			}
		})
	}
}
