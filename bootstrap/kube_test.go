package bootstrap_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kubeadm runs the program that the control plane was built with.
func kubeadm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubeadm"),
		args...).CombinedOutput() //nolint:gosec // a program of our own build
	if err != nil {
		t.Fatalf("kubeadm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// kubeadm publishes and creates a token, and kube-controller-manager signs and
// cleans. This package discovers the cluster and reads the token. The API
// server authenticates a token of this package.
func TestInteropTheirsServesOursDiscovers(t *testing.T) {
	cluster := kubetest.StartNew(t)
	kubeconfig := cluster.Kubeconfig(t)
	cluster.ControllerManager(t, "bootstrapsigner", "tokencleaner")
	const theirs = "abcdef.0123456789abcdef"
	config := filepath.Join(t.TempDir(), "init.yaml")
	version := strings.TrimSpace(kubeadm(t, "version", "-o", "short"))
	if err := os.WriteFile(config, []byte(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.0.1}
bootstrapTokens: [{token: `+theirs+`, ttl: 1h, description: theirs}]
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: `+version+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeadm(t, "init", "phase", "bootstrap-token", "--kubeconfig", kubeconfig, "--config", config)

	published := &bootstrap.ClusterInfo{Server: cluster.Config().Host, CAData: cluster.Config().CAData}
	pins, err := published.Pins()
	if err != nil {
		t.Fatal(err)
	}
	info, err := bootstrap.Discover(t.Context(), []string{cluster.Config().Host}, parse(t, theirs),
		bootstrap.WithPins(pins), bootstrap.WithTimeout(2*time.Minute), bootstrap.WithInterval(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if string(info.CAData) != string(published.CAData) {
		t.Error("another certificate authority")
	}
	if fresh, err := info.Refresh(t.Context()); err != nil || fresh.Server != info.Server {
		t.Errorf("refreshed to %+v, %v", fresh, err)
	}
	var secret corev1.Secret
	if err := cluster.Client().Get(t.Context(),
		client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstrapapi.BootstrapTokenSecretPrefix + "abcdef"},
		&secret); err != nil {
		t.Fatal(err)
	}
	if c, err := bootstrap.ParseSecret(&secret); err != nil || c.Token.Reveal() != theirs || c.Description != "theirs" ||
		!c.Allows(bootstrap.UsageSigning) || time.Until(c.Expires) > time.Hour {
		t.Errorf("their token is %+v, %v", c, err)
	}
	checkOurToken(t, cluster, kubeconfig, info, pins)
	checkMalformedToken(t, cluster.Client())
}

// checkMalformedToken lets Kubernetes sign for a secret half that ParseSecret
// refuses.
func checkMalformedToken(t *testing.T, c client.Client) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
		Name: "bootstrap-token-mal4md"}, Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte("mal4md"), "token-secret": []byte("UPPER"),
			"usage-bootstrap-signing": []byte("true")}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := bootstrap.ParseSecret(secret); err == nil {
		t.Error("it is accepted")
	}
	var info corev1.ConfigMap
	kubetest.Eventually(t, "Kubernetes signs", func() bool {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, &info)
		return err == nil && info.Data["jws-kubeconfig-mal4md"] != ""
	})
}

// checkOurToken has Kubernetes use a token that we made.
func checkOurToken(t *testing.T, cluster *kubetest.Cluster, kubeconfig string, info *bootstrap.ClusterInfo,
	pins bootstrap.PinSet) {
	t.Helper()
	token, err := bootstrap.GenerateToken()
	if err != nil {
		t.Fatal(err)
	}
	ours := bootstrap.TokenConfig{Token: token, Description: "ours", Expires: time.Now().Add(time.Hour),
		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication},
		Groups: []string{"system:bootstrappers:workers"}}
	secret, err := ours.Secret()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if list := kubeadm(t, "token", "list", "--kubeconfig", kubeconfig); !strings.Contains(list, token.Reveal()) ||
		!strings.Contains(list, "system:bootstrappers:workers") {
		t.Errorf("kubeadm does not list our token:\n%s", list)
	}
	if _, err := bootstrap.Discover(t.Context(), []string{info.Server}, token, bootstrap.WithPins(pins),
		bootstrap.WithTimeout(2*time.Minute), bootstrap.WithInterval(50*time.Millisecond)); err != nil {
		t.Errorf("their signature for our token: %v", err)
	}
	config := cluster.Config()
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = nil, nil
	config.BearerToken = token.Reveal()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the API server's watch brings it the token", func() bool {
		err = c.List(t.Context(), &corev1.SecretList{})
		return !apierrors.IsUnauthorized(err)
	})
	if err == nil ||
		!strings.Contains(err.Error(), `User "system:bootstrap:`+token.ID()+`" cannot list resource "secrets"`) {
		t.Errorf("got error %v, want a refusal that names the token's user", err)
	}
}
