package cloudtest_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// A program reaches the services by its environment alone, and no other host.
func TestProxy(t *testing.T) {
	cloud := testenv.Cloud(t)
	dir := t.TempDir()
	env, err := cloud.ProxyEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimPrefix(env[0], "HTTPS_PROXY="))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "cloud-ca.pem"))
	if err != nil || !slices.Contains(env, "SSL_CERT_FILE="+filepath.Join(dir, "cloud-ca.pem")) {
		t.Fatalf("the environment is %q, %v, want SSL_CERT_FILE in it", env, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{Proxy: http.ProxyURL(u),
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	get := func(address string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if status,
		err := get("https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"); err != nil ||
		status != http.StatusForbidden || cloud.Calls("sts", "") != 1 {
		t.Errorf("status %d after %d calls, %v", status, cloud.Calls("sts", ""), err)
	}
	if _, err := get("https://example.com/"); err == nil || !strings.Contains(err.Error(), "Bad Gateway") {
		t.Errorf("a host that is no service: %v", err)
	}
	if status, err := get("http://sts.eu-central-1.amazonaws.com/"); err != nil || status != http.StatusMethodNotAllowed {
		t.Errorf("without TLS: %d, %v", status, err)
	}
}
