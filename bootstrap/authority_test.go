package bootstrap_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
)

// ca is a certificate authority.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t testing.TB) ca {
	t.Helper()
	return issueCA(t, nil)
}

// issueCA makes a CA that the parent signs. Nil: it signs itself.
func issueCA(t testing.TB, parent *ca) ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	issuer, signer := template, key
	if parent != nil {
		template.Subject.CommonName = "intermediate"
		issuer, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return ca{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (c ca) pin() bootstrap.DiscoverOption {
	return bootstrap.WithPins(bootstrap.PinSet{bootstrap.PinOf(c.cert)})
}

// server is an API server, or an impostor, with a certificate of the CA.
func (c ca) server(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	return c.serverWith(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, handler)
}

// serverWith has a certificate for the names of the template, and as long as
// that says, otherwise for now.
func (c ca) serverWith(t *testing.T, template *x509.Certificate, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.ExtKeyUsage = big.NewInt(2), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = quiet()
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// configMap answers with a cluster-info.
func configMap(data map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" {
			_, _ = io.WriteString(w, "no ConfigMap: that ends the discovery")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "data": data})
	}
}

func signedInfo(t *testing.T, token string, caData []byte) map[string]string {
	t.Helper()
	return signed(t, token, &bootstrap.ClusterInfo{Server: "https://10.0.0.1:6443", CAData: caData})
}

func signed(t *testing.T, token string, info *bootstrap.ClusterInfo) map[string]string {
	t.Helper()
	content, err := info.Encode()
	if err != nil {
		t.Fatal(err)
	}
	tok := parse(t, token)
	return map[string]string{"kubeconfig": string(content), "jws-kubeconfig-" + tok.ID(): bootstrap.Sign(content, tok)}
}
