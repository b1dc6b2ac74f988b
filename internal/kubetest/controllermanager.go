package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ControllerManager starts kube-controller-manager with exactly the named controllers, such as "csrsigning", and ends it with
// the test. The API server trusts the client certificates that it signs.
func (c *Cluster) ControllerManager(t testing.TB, controllers ...string) {
	t.Helper()
	dir := t.TempDir()
	signingCA(t, dir)
	c.trustClients(t, filepath.Join(dir, "ca.crt"))
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := &strings.Builder{}
	cmd := exec.CommandContext(ctx, filepath.Join(assets(t), "kube-controller-manager"), //nolint:gosec // a program of our own build
		"--kubeconfig="+c.Kubeconfig(t),
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--cluster-signing-cert-file="+filepath.Join(dir, "ca.crt"),
		"--cluster-signing-key-file="+filepath.Join(dir, "ca.key"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+filepath.Join(c.env.ControlPlane.GetAPIServer().CertDir, "sa-signer.key"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Log(log.String())
		}
	})
	waitHealthy(t, "https://127.0.0.1:"+port+"/healthz")
}

// Kubeconfig writes a file with a cluster administrator's credentials and returns its path.
func (c *Cluster) Kubeconfig(t testing.TB) string {
	t.Helper()
	admin, err := c.env.AddUser(envtest.User{Name: "kubetest-admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, content)
	return path
}

// waitHealthy polls a server whose certificate nobody vouches for.
func waitHealthy(t testing.TB, url string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // asks for health only
	defer transport.CloseIdleConnections()
	poll := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := poll.Do(req); err == nil {
			_ = resp.Body.Close() // the status is all that counts
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("kube-controller-manager does not become healthy")
		}
	}
}

// clientCA is the file with the authorities of client certificates. The API server reads it again when it changes.
func (c *Cluster) clientCA() string {
	return filepath.Join(c.env.ControlPlane.GetAPIServer().CertDir, "client-cert-auth-ca.crt")
}

// trustClients adds an authority of client certificates.
func (c *Cluster) trustClients(t testing.TB, path string) {
	t.Helper()
	write(t, c.clientCA(), append(read(t, c.clientCA()), read(t, path)...))
}

// signingCA writes ca.crt and ca.key.
func signingCA(t testing.TB, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubetest signing"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, filepath.Join(dir, "ca.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // a path of our own
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
