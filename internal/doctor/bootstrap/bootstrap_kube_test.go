package bootstrap_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	examine "github.com/workloadid/workloadid/internal/doctor/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kubeadmInit publishes cluster-info, its RBAC and a token as kubeadm does, with the program that the control plane was built with.
func kubeadmInit(t *testing.T, kubeconfig string) {
	t.Helper()
	kubeadm := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubeadm")
	version, err := exec.CommandContext(t.Context(), kubeadm, "version", "-o", "short").Output() //nolint:gosec // built by this module
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "init.yaml")
	config := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 10.0.0.1}\n" +
		"bootstrapTokens: [{token: " + wholeToken + ", ttl: 1h}]\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + string(version)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubeadm, "init", "phase", "bootstrap-token", "--kubeconfig", kubeconfig, "--config", file).CombinedOutput() //nolint:gosec // see above
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// eventually runs the doctor until the API server and kube-controller-manager have done their work.
func eventually(t *testing.T, config examine.Config, done func(*doctor.Report) bool) *doctor.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		report := examine.Run(ctx, config)
		if done(report) || ctx.Err() != nil {
			return report
		}
	}
}

// The cluster-info is that of kubeadm and the signature that of kube-controller-manager.
func TestKubeadm(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartNew(t)
	published := &bootstrap.ClusterInfo{Server: cluster.Config().Host, CAData: cluster.Config().CAData}
	pins, err := published.Pins()
	if err != nil {
		t.Fatal(err)
	}
	config := examine.Config{Server: cluster.Config().Host, Token: wholeToken, Pins: []string{pins[0].String()}, Client: cluster.Client()}
	t.Run("healthy", func(t *testing.T) {
		cluster.ControllerManager(t, "bootstrapsigner", "tokencleaner")
		kubeadmInit(t, cluster.Kubeconfig(t))
		report := eventually(t, config, func(r *doctor.Report) bool { return r.ExitCode() == doctor.ExitPass })
		if report.ExitCode() != doctor.ExitPass || report.Of("cluster").Result != doctor.Pass {
			t.Fatalf("%s", report)
		}
		reporttest.Readable(t, report, secretHalf)
	})
	// The signer has ended with the subtest.
	for _, f := range kubeadmFaults() {
		f.spoil(t, cluster, &config)
		found := func(r *doctor.Report) bool {
			first := r.Worst()
			return first != nil && first.Check == f.check && first.Class == f.class
		}
		report := eventually(t, config, found) // changed rights take a moment
		if !found(report) {
			t.Fatalf("%s: begins with %+v:\n%s", f.name, report.Worst(), report)
		}
		reporttest.Readable(t, report, secretHalf)
	}
}

// kubeFault is spoilt after those before it.
type kubeFault struct {
	name, check, class string
	spoil              func(t *testing.T, cluster *kubetest.Cluster, config *examine.Config)
}

func kubeadmFaults() []kubeFault {
	info := client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}
	return []kubeFault{
		{"wrong pin", "discovery", "CANotPinned", func(t *testing.T, _ *kubetest.Cluster, c *examine.Config) {
			c.Pins = []string{newAuthority(t).pin()}
		}},
		{"token expired, and the cleaner is off", "cluster", "TokenUnusable", func(t *testing.T, cluster *kubetest.Cluster, c *examine.Config) {
			c.Pins, c.WithoutPins = nil, true
			update(t, cluster, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, &corev1.Secret{}, func(s *corev1.Secret) {
				s.Data["expiration"] = []byte("2020-01-01T00:00:00Z")
			})
		}},
		{"cluster-info edited", "discovery", "SignatureWrong", func(t *testing.T, cluster *kubetest.Cluster, c *examine.Config) {
			c.Client = nil
			update(t, cluster, info, &corev1.ConfigMap{}, func(m *corev1.ConfigMap) { m.Data["kubeconfig"] += "\n" })
		}},
		{"cluster-info deleted", "discovery", "NotPublished", func(t *testing.T, cluster *kubetest.Cluster, _ *examine.Config) {
			gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: info.Namespace, Name: info.Name}}
			if err := cluster.Client().Delete(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
		}},
		{"RoleBinding removed", "discovery", "AnonymousForbidden", func(t *testing.T, cluster *kubetest.Cluster, _ *examine.Config) {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "kubeadm:bootstrap-signer-clusterinfo"}}
			if err := cluster.Client().Delete(t.Context(), binding); err != nil {
				t.Fatal(err)
			}
		}},
	}
}

func update[T client.Object](t *testing.T, cluster *kubetest.Cluster, key client.ObjectKey, object T, change func(T)) {
	t.Helper()
	if err := cluster.Client().Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
	change(object)
	if err := cluster.Client().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func TestAnonymousRequestsToOtherPaths(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n  conditions:\n" +
		"  - path: /version\n  - path: /livez\n  - path: /readyz\n  - path: /healthz\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.StartNew(t, kubetest.Flag{Name: "authentication-config", Value: file})
	config := examine.Config{Server: cluster.Config().Host, Token: wholeToken, WithoutPins: true}
	if first := examine.Run(t.Context(), config).Worst(); first == nil || first.Class != "AnonymousRefused" || first.Remedy.Commands[0] != "- path: "+infoPath {
		t.Errorf("%+v", first)
	}
}
