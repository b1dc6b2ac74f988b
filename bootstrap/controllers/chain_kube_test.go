package controllers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kubeadm and Discover accept the same pins of a chain. The API server sends
// its leaf alone.
func TestInteropPinsOfAChain(t *testing.T) {
	root, other := issue(t, "root", nil), issue(t, "other", nil)
	between := issue(t, "between", root)
	leaf := issue(t, "localhost", between)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	key, err := x509.MarshalPKCS8PrivateKey(leaf.key)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		certFile: leaf.pem(), keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster := kubetest.StartNew(t,
		kubetest.Flag{Name: "tls-sni-cert-key", Value: certFile + "," + keyFile + ":localhost"})
	u, err := url.Parse(cluster.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	info := &bootstrap.ClusterInfo{Server: "https://localhost:" + u.Port(),
		CAData: slices.Concat(between.pem(), root.pem())}
	if err := controllers.Publish(t.Context(), cluster.Client(), info); err != nil {
		t.Fatal(err)
	}
	start(t, cluster)
	ours := token(t, cluster.Client(), time.Now().Add(time.Hour), "")
	kubetest.Eventually(t, "our token signs cluster-info", func() bool {
		return clusterInfo(t, cluster.Client())[bootstrapapi.JWSSignatureKeyPrefix+ours.Token.ID()] != ""
	})
	const success = "TLS certificate validates against pinned roots"
	const refusal = "are pinned" // "none of the public keys … are pinned"
	for name, row := range map[string]struct {
		pin  *authority
		want string
	}{
		"root":         {root, success},
		"intermediate": {between, success},
		"another CA":   {other, refusal},
	} {
		t.Run(name, func(t *testing.T) {
			pin := bootstrap.PinOf(row.pin.cert)
			_, err := bootstrap.Discover(t.Context(), []string{info.Server}, ours.Token,
				bootstrap.WithPins(bootstrap.PinSet{pin}), bootstrap.WithTimeout(time.Minute))
			if (err == nil) != (row.want == success) {
				t.Errorf("Discover: %v", err)
			}
			if out, ok := kubeadmUntil(t, row.want, "join", "phase", "preflight", strings.TrimPrefix(info.Server, "https://"),
				"--token", ours.Token.Reveal(), "--discovery-token-ca-cert-hash", pin.String(), "--ignore-preflight-errors=all",
				"--node-name", "n1", "--cri-socket", "unix:///nonexistent.sock", "-v=1"); !ok {
				t.Errorf("kubeadm:\n%s", out)
			}
		})
	}
}

// authority is a certificate with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate that the parent signs, or itself without one. It is
// a CA and a server's certificate for its name.
func issue(t *testing.T, name string, parent *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if name == "localhost" {
		template.IsCA, template.DNSNames = false, []string{name}
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature,
			[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	made := &authority{key: key}
	if parent == nil {
		parent = &authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	if made.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return made
}
