package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ControllerManager starts kube-controller-manager with exactly the named
// controllers, such as "csrsigning". The API server trusts the client
// certificates that it signs. The caller stops it before the cluster; stop
// returns its log.
func (c *Cluster) ControllerManager(controllers ...string) (stop func() (log string), err error) {
	dir, err := os.MkdirTemp(c.dir, "controller-manager-")
	if err != nil {
		return nil, err
	}
	_, kubeconfig, err := c.User("kube-controller-manager", "system:masters")
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600), signingCA(dir))
	}
	if err == nil {
		err = c.trustClients(filepath.Join(dir, "ca.crt"))
	}
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := &strings.Builder{}
	//nolint:gosec // a program of our own build
	cmd := exec.CommandContext(ctx, filepath.Join(c.assets, "kube-controller-manager"),
		"--kubeconfig="+filepath.Join(dir, "kubeconfig"),
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--cluster-signing-cert-file="+filepath.Join(dir, "ca.crt"),
		"--cluster-signing-key-file="+filepath.Join(dir, "ca.key"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+filepath.Join(c.APIServer().CertDir, "sa-signer.key"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop = func() string {
		cancel()
		_ = cmd.Wait() // killed
		return log.String()
	}
	if err := waitHealthy("https://127.0.0.1:" + port + "/healthz"); err != nil {
		return nil, errors.Join(err, errors.New(stop()))
	}
	return stop, nil
}

// waitHealthy polls a server with a self-signed certificate.
func waitHealthy(url string) error {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // asks for health only
	defer transport.CloseIdleConnections()
	poll := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return until("kube-controller-manager does not become healthy", func(ctx context.Context) (bool, error) {
		return isOK(ctx, poll, url)
	})
}

// ClientCA is the file with the authorities of client certificates. The API
// server reads it again when it changes.
func (c *Cluster) ClientCA() string {
	return filepath.Join(c.APIServer().CertDir, "client-cert-auth-ca.crt")
}

// trustClients adds an authority of client certificates.
func (c *Cluster) trustClients(path string) error {
	trusted, err := os.ReadFile(c.ClientCA())
	if err != nil {
		return err
	}
	added, err := os.ReadFile(path) //nolint:gosec // a path of our own
	if err != nil {
		return err
	}
	return os.WriteFile(c.ClientCA(), append(trusted, added...), 0o600) //nolint:gosec // a path of our own
}

// signingCA writes ca.crt and ca.key.
func signingCA(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubetest signing"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
			0o600))
}
