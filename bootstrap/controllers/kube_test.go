package controllers_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

const controllerUser = "bootstrap-controllers"

// start runs Signer and Cleaner with exactly the rules of rbac.yaml.
func start(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	manifest, err := os.ReadFile("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var user *rest.Config
	for document := range strings.SplitSeq(string(manifest), "---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "Role" {
			user = cluster.User(t, controllerUser, role.Namespace, role.Rules...)
		}
	}
	skip := true
	mgr, err := ctrl.NewManager(user, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		Cache:      cache.Options{ByObject: controllers.ByObject()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, setup := range []func(ctrl.Manager) error{
		(&controllers.Signer{Client: mgr.GetClient()}).SetupWithManager,
		(&controllers.Cleaner{Client: mgr.GetClient()}).SetupWithManager,
	} {
		if err := setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	kubetest.RunManager(t, mgr)
}

func publish(t *testing.T, cluster *kubetest.Cluster) *bootstrap.ClusterInfo {
	t.Helper()
	info := &bootstrap.ClusterInfo{Server: cluster.Config().Host, CAData: cluster.Config().CAData}
	if err := controllers.Publish(t.Context(), cluster.Client(), info); err != nil {
		t.Fatal(err)
	}
	return info
}

// token creates a token that signs.
func token(t *testing.T, c client.Client, expires time.Time, id string) *bootstrap.TokenConfig {
	t.Helper()
	parsed, err := bootstrap.GenerateToken()
	if id != "" {
		parsed, err = bootstrap.ParseToken(id + ".0123456789abcdef")
	}
	if err != nil {
		t.Fatal(err)
	}
	config := &bootstrap.TokenConfig{Token: parsed, Expires: expires,
		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}}
	secret, err := config.Secret()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return config
}

func clusterInfo(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	var configMap corev1.ConfigMap
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"},
		&configMap); err != nil {
		t.Fatal(err)
	}
	return configMap.Data
}

func kubeadm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubeadm"),
		args...).CombinedOutput() //nolint:gosec // a program of our own build
	return string(out), err
}

// kubeadmUntil stops kubeadm after the wanted output, because its next steps
// need a whole cluster.
func kubeadmUntil(t *testing.T, want string, args ...string) (output string, said bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubeadm"),
		args...) //nolint:gosec // a program of our own build
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	var all strings.Builder
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for !said && lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		said = strings.Contains(lines.Text(), want)
	}
	cancel()
	_ = cmd.Wait() // killed
	return all.String(), said
}

// We publish, sign and clean; the real kubeadm discovers, with and without pins
// and from a file, and lists the token.
func TestInteropOursServesTheirsDiscovers(t *testing.T) {
	cluster := kubetest.StartNew(t)
	info := publish(t, cluster)
	start(t, cluster)
	ours := token(t, cluster.Client(), time.Now().Add(time.Hour), "")
	kubetest.Eventually(t, "our token signs cluster-info", func() bool {
		return clusterInfo(t, cluster.Client())[bootstrapapi.JWSSignatureKeyPrefix+ours.Token.ID()] != ""
	})
	kubeconfig := cluster.Kubeconfig(t)
	file := filepath.Join(t.TempDir(), "cluster-info.yaml")
	if err := info.Save(file); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(file))))
	defer web.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	pins, err := info.Pins()
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(info.Server, "https://")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"pinned": {[]string{address, "--token", ours.Token.Reveal(), "--discovery-token-ca-cert-hash", pins[0].String()},
			"Cluster info signature and contents are valid and TLS certificate validates against pinned roots"},
		"unpinned": {[]string{address, "--token", ours.Token.Reveal(), "--discovery-token-unsafe-skip-ca-verification"},
			"Cluster info signature and contents are valid"},
		"by URL": {[]string{"--discovery-file", web.URL + "/cluster-info.yaml", "--tls-bootstrap-token",
			ours.Token.Reveal()}, "Using provided TLSBootstrapToken as authentication credentials for the join process"},
		"by file": {[]string{"--discovery-file", file, "--tls-bootstrap-token", ours.Token.Reveal()},
			"Using provided TLSBootstrapToken as authentication credentials for the join process"},
	} {
		args := append([]string{"join", "phase", "preflight"}, tc.args...)
		args = append(args, "--ignore-preflight-errors=all", "--node-name", "n1", "--cri-socket",
			"unix:///nonexistent.sock", "-v=1")
		if out, ok := kubeadmUntil(t, tc.want, args...); !ok {
			t.Errorf("%s:\n%s", name, out)
		}
	}
	if out, err := kubeadm(t, "token", "list", "--kubeconfig", kubeconfig); err != nil ||
		!strings.Contains(out, ours.Token.Reveal()) {
		t.Errorf("kubeadm token list: %v\n%s", err, out)
	}
	if out, err := kubeadm(t, "token", "delete", ours.Token.ID(), "--kubeconfig", kubeconfig); err != nil {
		t.Errorf("kubeadm token delete: %v\n%s", err, out)
	}
	kubetest.Eventually(t, "the signature of a deleted token goes", func() bool {
		return clusterInfo(t, cluster.Client())[bootstrapapi.JWSSignatureKeyPrefix+ours.Token.ID()] == ""
	})
}

// Tokens expire on time, and nothing else is touched.
func TestExpiry(t *testing.T) {
	cluster := kubetest.StartNew(t)
	publish(t, cluster)
	start(t, cluster)
	c := cluster.Client()
	long := token(t, c, time.Time{}, "")
	other := &corev1.Secret{}
	other.Namespace, other.Name = metav1.NamespaceSystem, "bootstrap-token-zzzzzz"
	other.Data = map[string][]byte{"expiration": []byte("2020-01-01T00:00:00Z"), "token-id": []byte("zzzzzz")}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	has := func(config *bootstrap.TokenConfig) bool {
		return clusterInfo(t, c)[bootstrapapi.JWSSignatureKeyPrefix+config.Token.ID()] != ""
	}
	kubetest.Eventually(t, "a token without an end signs", func() bool { return has(long) })
	short, signed := &bootstrap.TokenConfig{}, false
	// on a busy machine the first may end before anybody looks
	for life := 3 * time.Second; !signed && life < time.Minute; life *= 2 {
		short = token(t, c, time.Now().Add(life).Truncate(time.Second), "")
		kubetest.Eventually(t, "the token signs, or ends", func() bool {
			signed = has(short)
			return signed || time.Now().After(short.Expires)
		})
	}
	if !signed {
		t.Error("a token with an end does not sign")
	}
	gone := func() bool {
		var s corev1.Secret
		return apierrors.IsNotFound(
			c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem,
				Name: bootstrapapi.BootstrapTokenSecretPrefix + short.Token.ID()}, &s))
	}
	if gone() && time.Now().Before(short.Expires) {
		t.Error("deleted before its end")
	}
	kubetest.Eventually(t, "the token is deleted and its signature gone", func() bool { return gone() && !has(short) })
	t.Logf("acted on %s after the token's end", time.Since(short.Expires).Round(time.Millisecond))
	if !has(long) {
		t.Error("another token lost its signature")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("a Secret that is no token's: %v", err)
	}
}

// With the configuration that the documentation shows, anonymous clients can
// read cluster-info and nothing else.
func TestAnonymousAccessLimitedToClusterInfo(t *testing.T) {
	config := document.Read(t, "docs/bootstrap.md").Block("yaml", "apiVersion: apiserver.config.k8s.io/v1\n")
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.StartNew(t, kubetest.Flag{Name: "authentication-config", Value: path})
	info := publish(t, cluster)
	start(t, cluster)
	ours := token(t, cluster.Client(), time.Now().Add(time.Hour), "")
	pins, err := info.Pins()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bootstrap.Discover(t.Context(), []string{info.Server}, ours.Token, bootstrap.WithPins(pins),
		bootstrap.WithTimeout(2*time.Minute)); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]int{"/api/v1/namespaces/kube-public/configmaps/cluster-info": 200, "/version": 401,
		"/api/v1/namespaces/kube-public/configmaps": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(info.Server, "/")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cluster.IssuerClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // the status is all that counts
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// RBAC gives anonymous clients cluster-info, and no other ConfigMap.
func TestPublishGrantsClusterInfoAlone(t *testing.T) {
	cluster := kubetest.StartNew(t)
	info := publish(t, cluster)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "other"}}
	if err := cluster.Client().Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/cluster-info": 200, "/other": 403, "": 403} {
		t.Run(path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				strings.TrimSuffix(info.Server, "/")+"/api/v1/namespaces/kube-public/configmaps"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := cluster.IssuerClient(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // the status is all that counts
			if resp.StatusCode != want {
				t.Errorf("got %d, want %d", resp.StatusCode, want)
			}
		})
	}
}

func TestPublishRefuses(t *testing.T) {
	if err := controllers.Publish(t.Context(), nil, nil); err == nil {
		t.Error("nothing was published")
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("hunter2")})
	for want, info := range map[string]*bootstrap.ClusterInfo{
		"https://":      {Server: "http://a"},
		"PRIVATE KEY":   {Server: "https://a", CAData: key},
		"no PEM certif": {Server: "https://a", CAData: []byte("garbage")},
	} {
		if err := controllers.Publish(t.Context(), nil, info); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
