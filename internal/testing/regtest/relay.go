package regtest

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/relay"
)

// goCommand is found before a test replaces PATH. It is empty without a go
// command.
var goCommand, _ = exec.LookPath("go")

// Relay starts a relay with a credential of the hub, and returns its address
// and CA as a client knows them.
func (w *Environment) Relay(config *rest.Config) *rest.Config {
	w.T.Helper()
	authorities, err := os.ReadFile(w.Hub.ClientCA())
	Must(w.T, err)
	clientCAs := x509.NewCertPool()
	clientCAs.AppendCertsFromPEM(authorities)
	handler, err := relay.New(relay.Options{Hub: config, ClientCAs: clientCAs, ErrorLog: log.New(w.T.Output(), "", 0)})
	Must(w.T, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS, server.EnableHTTP2 = relay.TLSConfig(clientCAs), true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.T.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// RelayRights applies the manifests of a relay with one kind of impersonation,
// and returns the relay's own credential.
func (w *Environment) RelayRights(impersonation string) *rest.Config {
	w.T.Helper()
	w.Apply(w.Admin, manifests.RelayRBAC())
	w.Apply(w.Admin, impersonation)
	return WithToken(w.Hub.Config(), w.Token(w.Admin, ocm.RelayNamespace, ocm.RelayName))
}

// RunRelay runs the program until the whole test ends. RelayRights comes first.
func (w *Environment) RunRelay() *rest.Config {
	w.T.Helper()
	cert, key := ServingCertificate(w.T, w.whole.TempDir())
	return RunRelay(w.whole, w.Hub, cert, key)
}

// RunRelay runs the program wid-hub relay as its ServiceAccount on a hub until
// the test ends. It returns the relay's address and CA as a client knows them.
func RunRelay(t *testing.T, hub *kubetest.Cluster, cert, key string) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	//nolint:gosec // arguments of this test
	build := exec.CommandContext(t.Context(), goCommand, "build", "-ldflags=-w", "-o", dir,
		"github.com/workloadid/workloadid/cmd/wid-hub")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, stop := context.WithCancel(context.Background())
	//nolint:gosec // the program that was just built
	program := exec.CommandContext(ctx, filepath.Join(dir, "wid-hub"), "relay", "--bind-address=127.0.0.1:0",
		"--tls-cert-file="+cert, "--tls-private-key-file="+key, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	program.Env = append(os.Environ(), "KUBECONFIG="+hub.AccountKubeconfig(t, ocm.RelayNamespace, ocm.RelayName))
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	log, err := program.StderrPipe()
	if err == nil {
		err = program.Start()
	}
	Must(t, err)
	address, ended := make(chan string, 1), make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		defer close(address)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if serves := regexp.MustCompile(`The relay serves.* address=(\S+)`).FindStringSubmatch(lines.Text()); serves != nil {
				address <- serves[1]
			}
			_, _ = t.Output().Write(append(lines.Bytes(), '\n'))
		}
		_ = program.Wait() // it was told to stop
	}()
	host, ok := <-address
	ca, err := os.ReadFile(cert) //nolint:gosec // a file of this test
	if !ok || err != nil {
		t.Fatalf("the relay does not serve, its log says why: %v", err)
	}
	return &rest.Config{Host: "https://" + host, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// ServingCertificate writes the certificate of net/http/httptest for 127.0.0.1,
// which is its own CA, to relay.crt and relay.key.
func ServingCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	Must(t, err)
	cert, key = filepath.Join(dir, "relay.crt"), filepath.Join(dir, "relay.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		key: {Type: "PRIVATE KEY", Bytes: der}} {
		Must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}
