package hubcmd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// initEnvironment is a hub on which wid hub init runs again and again. Its
// program does not run.
type initEnvironment struct {
	*kubetest.Cluster
	admin      client.Client
	kubeconfig string
}

// init returns the arguments of an init that applies.
func (w *initEnvironment) init(more ...string) []string {
	return append([]string{"init", "--kubeconfig=" + w.kubeconfig, "--image=x", "--apply",
		"--hub-apiserver=https://hub.example"}, more...)
}

func TestHubInit(t *testing.T) {
	cluster := kubetest.Start(t)
	cluster.ControllerManager(t, "csrsigning")
	w := &initEnvironment{cluster, regtest.NewClient(t, cluster.Config()), cluster.Kubeconfig(t)}
	t.Run("config/hub and init apply equal manifests", w.testKustomize)
	t.Run("init names the flags that it changes", w.testFlags)
	t.Run("init keeps replicas and pull secrets", w.testReplicas)
	t.Run("init installs the relay that the server's version allows", w.testRelay)
	t.Run("init overwrites other programs when asked to", w.testConflicts)
	t.Run("cleanup has the rights that it needs", w.testCleanup)
	t.Run("uninstall leaves what clusters are stored in", w.testUninstall)
}

func (w *initEnvironment) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: ocm.HubNamespace, Name: ocm.HubDeployment}, d))
	return d
}

// testKustomize applies equal manifests with kubectl and with init, each one
// first. No field conflicts.
func (w *initEnvironment) testKustomize(t *testing.T) {
	config, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "config", "hub"))
	regtest.Must(t, err)
	regtest.Kubectl(t, w.kubeconfig, "", "apply", "--server-side", "--kustomize="+config)
	flags := []string{"--addon-registration-auth=csr,token", "--image=ghcr.io/workloadid/wid-hub:v0.1.0"}
	must(t, w.init(flags...)...)
	uninstall := []string{"init", "--kubeconfig=" + w.kubeconfig, "--uninstall"} // kubectl owns fields
	must(t, uninstall...)
	flags = []string{"init", "--image=x", "--addon-registration-auth=csr,token", "--ocm-agents", "--cleanup-image=x",
		"--registration-auth=csr,aws-irsa", "--eks-hub-cluster-arn=" + eksHub, "--hub-apiserver=https://hub.example"}
	must(t, w.init(flags[1:]...)...)
	regtest.KubectlApply(t, w.kubeconfig, must(t, flags...))
	must(t, uninstall...)
}

// tokens counts the bootstrap tokens of the hub.
func (w *initEnvironment) tokens(t *testing.T) int {
	t.Helper()
	list := &corev1.SecretList{}
	regtest.Must(t, w.admin.List(t.Context(), list, client.InNamespace("kube-system"),
		client.MatchingFields{"type": "bootstrap.kubernetes.io/token"}))
	return len(list.Items)
}

// testFlags leaves out flags of the hub program that runs.
func (w *initEnvironment) testFlags(t *testing.T) {
	first := w.init("--ocm-agents", "--addon-registration-auth=csr,token")
	must(t, append(first, "--yes")...)
	sidecar := client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"x","args":["--port=1"],`+
			`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}}}`))
	regtest.Must(t, w.admin.Patch(t.Context(), w.deployment(t), sidecar))
	before := w.tokens(t)
	if out := must(t, append(first, "--image=y")...); strings.Contains(out, "other flags") ||
		strings.Contains(out, "--hub-token") || !strings.Contains(out, "wid hub token") {
		t.Errorf("with the same flags init says %s", out)
	}
	if after := w.tokens(t); after != before {
		t.Errorf("after an upgrade there are %d tokens, want %d", after, before)
	}
	again := w.init("--addon-registration-auth=token")
	changes :=
		"\n  --addon-registration-auth=csr,token becomes --addon-registration-auth=token\n  --ocm-agents is dropped\n"
	out, err := widHub(t, again...)
	expectFailure(t, err, cli.ExitDenied, "--yes")
	if !strings.Contains(out+"\n", changes) || strings.Contains(out, "applied") {
		t.Errorf("init says %s, want %s and nothing applied", out, changes)
	}
	if out := must(t, append(again, "--yes")...); !strings.Contains(out, changes) || !strings.Contains(out, "applied") {
		t.Errorf("with --yes init says %s", out)
	}
}

// testReplicas has init leave alone what it was not asked for. It takes
// replicas that it was asked for, whatever set them.
func (w *initEnvironment) testReplicas(t *testing.T) {
	installed := func(step string, replicas int32, secrets int) {
		t.Helper()
		d := w.deployment(t)
		if n := len(d.Spec.Template.Spec.ImagePullSecrets); *d.Spec.Replicas != replicas || n != secrets {
			t.Errorf("%s: %d replicas and %d pull secrets, want %d and %d", step, *d.Spec.Replicas, n, replicas, secrets)
		}
	}
	kubectl := func(args ...string) {
		t.Helper()
		regtest.Kubectl(t, w.kubeconfig, "", append([]string{"--namespace=" + ocm.HubNamespace}, args...)...)
	}
	installed("the first init", 2, 0)
	must(t, w.init("--yes", "--image-pull-secret=registry")...)
	installed("with a pull secret", 2, 1)
	kubectl("scale", "deployment", ocm.HubDeployment, "--replicas=3")
	must(t, w.init()...)
	installed("after kubectl scale", 3, 1)
	must(t, w.init("--replicas=4")...)
	installed("--replicas after kubectl scale", 4, 1)
	kubectl("scale", "deployment", ocm.HubDeployment, "--replicas=3")
	kubectl("set", "env", "deployment", ocm.HubDeployment, "GOGC=100")
	out, err := widHub(t, w.init("--replicas=1")...)
	expectFailure(t, err, cli.ExitDenied, "GOGC")
	if strings.Contains(out, "applied") {
		t.Errorf("init applies some objects before the conflict:\n%s", out)
	}
	installed("after a conflict", 3, 1)
	must(t, w.init("--replicas=1", "--image-pull-secret=none", "--force-conflicts")...)
	installed("with --replicas", 1, 0)
	fails(t, cli.ExitUsage, "--replicas", w.init("--replicas=-1")...)
}

// testRelay replaces the rights of an older server, as the first init after its
// upgrade does.
func (w *initEnvironment) testRelay(t *testing.T) {
	for _, row := range []struct {
		flag, verb string
		names      bool
	}{
		{"--relay=legacy", "impersonate", false},
		{"--relay", "impersonate-on:user-info:create", true},
	} {
		must(t, w.init(row.flag, "--yes")...)
		role := &rbacv1.ClusterRole{}
		regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: "open-cluster-management:relay"}, role))
		names := slices.ContainsFunc(w.deployment(t).Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--grant-relay") // another program's container stays before the hub's
		})
		if got := role.Rules[0].Verbs[0]; got != row.verb || names != row.names {
			t.Errorf("%s: the verb is %q, want %q; the hub program names users: %t", row.flag, got, row.verb, names)
		}
	}
	regtest.ExpectRestricted(t, w.admin, ocm.RelayNamespace)
	must(t, w.init("--yes")...)
}

// testConflicts lets another program change what init has applied.
// CustomResourceDefinitions stay as they are.
func (w *initEnvironment) testConflicts(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: ocm.BootstrapRole}, role))
	role.Rules = role.Rules[:1]
	regtest.Must(t, w.admin.Update(t.Context(), role))
	for _, name := range []string{"managedclusters.cluster.open-cluster-management.io",
		"managedclusteraddons.addon.open-cluster-management.io"} {
		crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
			"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name}}}
		regtest.Must(t, w.admin.Patch(t.Context(), crd,
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"names":{"shortNames":["mcl"]}}}`))))
	}
	fails(t, cli.ExitDenied, "--force-conflicts", w.init()...)
	if out := must(t, w.init("--force-conflicts")...); strings.Count(out, "io\" left as it is") != 2 {
		t.Errorf("init says %s, want two definitions left as they are", out)
	}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	if len(role.Rules) != 3 {
		t.Errorf("the role has %d rules, want 3", len(role.Rules))
	}
}

// testCleanup runs the CronJob's command with the rights of its ServiceAccount,
// then without each of them.
func (w *initEnvironment) testCleanup(t *testing.T) {
	must(t, w.init("--cleanup-image=registry.example/wid:v1", "--yes")...)
	regtest.ExpectRestricted(t, w.admin, ocm.HubNamespace)
	jobs := &batchv1.CronJobList{}
	regtest.Must(t, w.admin.List(t.Context(), jobs, client.InNamespace(ocm.HubNamespace)))
	if len(jobs.Items) != 1 {
		t.Fatalf("there are %d CronJobs, want 1", len(jobs.Items))
	}
	account := jobs.Items[0].Spec.JobTemplate.Spec.Template.Spec.ServiceAccountName
	cleanup := []string{"cleanup", "--kubeconfig=" + w.AccountKubeconfig(t, ocm.HubNamespace, account), "--older-than=0"}
	for name, denies := range map[string]bool{"managed-0": true, "pending": false} {
		c := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		regtest.Must(t, w.admin.Create(t.Context(), c))
		if denies {
			c.Status.Conditions = []metav1.Condition{denied(0)}
			regtest.Must(t, w.admin.Status().Update(t.Context(), c))
		}
	}
	kubetest.Eventually(t, "the job may list the clusters", func() bool {
		out, err := widHub(t, append(cleanup, "--dry-run")...)
		return err == nil && strings.Contains(out, `cluster "managed-0" would be deleted`)
	})
	role := &rbacv1.ClusterRole{}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: "open-cluster-management:hub:cleanup"}, role))
	verbs := role.Rules[0].Verbs
	for verb, rest := range map[string]string{"list": "delete", "delete": "list"} {
		role.Rules[0].Verbs = []string{rest}
		regtest.Must(t, w.admin.Update(t.Context(), role))
		kubetest.Eventually(t, "the job may not "+verb, func() bool {
			_, err := widHub(t, cleanup...)
			return err != nil && cli.ExitCode(t.Context(), err) == cli.ExitDenied && strings.Contains(err.Error(), verb)
		})
	}
	role.Rules[0].Verbs = verbs
	regtest.Must(t, w.admin.Update(t.Context(), role))
	kubetest.Eventually(t, "the job deletes the denied cluster", func() bool {
		_, err := widHub(t, cleanup...)
		return err == nil && !regtest.HasCluster(t, w.admin, "managed-0")
	})
	if !regtest.HasCluster(t, w.admin, "pending") {
		t.Error("the pending cluster is deleted")
	}
}

func (w *initEnvironment) testUninstall(t *testing.T) {
	must(t, w.init("--relay", "--yes")...)
	must(t, "init", "--kubeconfig="+w.kubeconfig, "--uninstall")
	left := &rbacv1.ClusterRoleList{}
	regtest.Must(t, w.admin.List(t.Context(), left))
	for _, role := range left.Items {
		if strings.HasSuffix(role.Name, ":relay") || strings.HasPrefix(role.Name, "open-cluster-management:hub") {
			t.Errorf("left is the ClusterRole %q", role.Name)
		}
	}
	if !regtest.HasCluster(t, w.admin, "pending") {
		t.Error("the clusters are gone")
	}
}
