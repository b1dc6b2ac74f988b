package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// byOCM returns what the agent of Open Cluster Management reads or writes, for
// one hub.
func byOCM(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "kubeconfig", "testdata", name))
	regtest.Must(t, err)
	return string(content)
}

// certificate returns a certificate with its key, in PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	regtest.Must(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	regtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// Both agents write the same bytes for the same bootstrap kubeconfig, so that
// neither asks for a new certificate when the other one has run. Names of an
// earlier version of ours are replaced without one too.
func TestAgentWritesTheBytesOfOCMsAgent(t *testing.T) {
	for name, stored := range map[string]func(string) string{
		"as OCM's agent left it": func(s string) string { return s },
		"as an earlier agent left it": strings.NewReplacer("hub-of-example", "hub", "default-context", "hub", "default-auth",
			"agent").Replace,
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			cert, key := certificate(t)
			want := map[string]string{"kubeconfig": byOCM(t, "ocm.yaml"), "cluster-name": "cluster1",
				"agent-name": "agent-of-ocm"}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: ocm.HubKubeconfigSecret},
				Data: map[string][]byte{
					"kubeconfig": []byte(stored(want["kubeconfig"])), "cluster-name": []byte("cluster1"),
					"agent-name": []byte(want["agent-name"]), "tls.crt": cert, "tls.key": key}}
			regtest.Must(t, w.local.Create(t.Context(), secret))
			regtest.Must(t, w.hub.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}))
			w.accept(metav1.ConditionTrue)
			w.writeBootstrap(byOCM(t, "bootstrap.yaml"))
			w.opts.Driver = fixedDriver{name: "csr"} // brings no credential
			w.restart()
			w.mustReconcile()
			w.mustReconcile()
			if !w.joined() {
				t.Error("the certificate is not used")
			}
			for key, content := range want {
				if got := string(w.secret().Data[key]); got != content {
					t.Errorf("%s is %q, want %q", key, got, content)
				}
			}
			if string(w.secret().Data["tls.crt"]) != string(cert) {
				t.Error("the certificate is replaced")
			}
		})
	}
}
