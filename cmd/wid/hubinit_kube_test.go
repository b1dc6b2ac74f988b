package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/hubcmd"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// initEnvironment is a hub on which wid hub init runs again and again. Its
// program does not run.
type initEnvironment struct {
	*kubetest.Cluster
	admin client.Client
}

// hubInit returns the arguments of an init that applies.
func hubInit(more ...string) []string {
	return append([]string{"hub", "init", "--image=x", "--apply", "--hub-apiserver=https://hub.example"}, more...)
}

func TestHubInitAndToken(t *testing.T) {
	cluster := kubetest.StartNew(t)
	cluster.ControllerManager(t, "csrsigning", "bootstrapsigner")
	t.Setenv("KUBECONFIG", cluster.Kubeconfig(t))
	w := &initEnvironment{cluster, regtest.NewClient(t, cluster.Config())}
	must(t, "bootstrap", "publish")
	t.Run("config/hub and init apply equal manifests", w.testKustomize)
	t.Run("token prints the whole join", w.testToken)
	t.Run("token remembers the address of init", w.testAddress)
	t.Run("init names the flags that it changes", w.testFlags)
	t.Run("init keeps replicas and pull secrets", w.testReplicas)
	t.Run("init installs the relay that the server's version allows", w.testRelay)
	t.Run("init overwrites other programs when asked to", w.testConflicts)
	t.Run("cleanup has the rights that it needs", w.testCleanup)
}

func (w *initEnvironment) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: ocm.HubNamespace, Name: ocm.HubDeployment}, d))
	return d
}

// kubectl runs with the kubeconfig of KUBECONFIG.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	w := &environment{home: t.TempDir()}
	r := w.exec(t, stdin, nil, "kubectl", args...)
	if r.code != 0 {
		t.Fatalf("kubectl %q: %+v", args, r)
	}
	return r.stdout
}

// apply applies manifests with kubectl. A conflict fails it.
func apply(t *testing.T, manifests string) {
	t.Helper()
	kubectl(t, manifests, "apply", "--server-side", "--filename=-")
}

// testKustomize applies equal manifests with kubectl first. No field conflicts.
func (w *initEnvironment) testKustomize(t *testing.T) {
	if out := must(t, "hub", "token"); !strings.Contains(out,
		`there is no Deployment "open-cluster-management-hub/registration-controller"`) {
		t.Errorf("without a hub program token says %s", out)
	}
	config, err := filepath.Abs(filepath.Join("..", "..", "config", "hub"))
	regtest.Must(t, err)
	kubectl(t, "", "apply", "--server-side", "--kustomize="+config)
	if out := must(t, "hub", "token"); !strings.Contains(out, "wid join --hub-token ") ||
		!strings.Contains(out, " --addon-kubeclient-registration-auth token ") {
		t.Errorf("token says %s", out)
	}
	for _, image := range []string{"ghcr.io/workloadid/wid-hub:v0.1.0", "next"} {
		must(t, "hub", "init", "--image="+image, "--addon-registration-auth=csr,token", "--apply")
	}
}

// testToken compares the printed command with what the flags of the hub program
// ask of an agent.
func (w *initEnvironment) testToken(t *testing.T) {
	line := func(args ...string) []string {
		_, command, _ := strings.Cut(must(t, append([]string{"hub", "token"}, args...)...), "\n\nwid ")
		return strings.Fields(command)
	}
	pin := joinVariables(t, must(t, "hub", "token"))[2][len("PIN="):]
	for _, tc := range []struct{ init, want []string }{
		{nil, nil},
		{[]string{"--addon-registration-auth=csr,token"}, []string{"--addon-kubeclient-registration-auth", "token"}},
		{[]string{"--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + eksHub},
			[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", eksHub, "--eks-managed-cluster-arn",
				"MANAGED_CLUSTER_ARN"}},
	} {
		must(t, append([]string{"hub", "init", "--image=x", "--apply", "--yes", "--force-conflicts"}, tc.init...)...)
		got := line("--cluster-name=managed-1", "--agent-image=registry.example/wid-agent:v1")
		want := slices.Concat([]string{"join", "--hub-token", got[2], "--hub-apiserver",
			strings.TrimSuffix(w.Config().Host, "/"), "--ca-cert-hash", pin}, tc.want,
			[]string{"--cluster-name", "managed-1", "--image", "registry.example/wid-agent:v1", "--context", "CLUSTER_CONTEXT",
				"--apply"})
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if tokens := must(t, "bootstrap", "list", "--reveal"); !strings.Contains(tokens, got[2]) {
			t.Errorf("the hub has the tokens %s", tokens)
		}
	}
}

// testAddress lets init be given another address. It stays that of later
// tokens.
func (w *initEnvironment) testAddress(t *testing.T) {
	server := func(args ...string) string {
		var invitation hubcmd.Invitation
		out, err := wid(t, "", append([]string{"hub", "token", "-o=json"}, args...)...)
		if start := strings.Index(out, "{"); err != nil || start < 0 ||
			json.Unmarshal([]byte(out[start:]), &invitation) != nil || len(invitation.Pins) != 1 ||
			!strings.Contains(invitation.Command, "--hub-token "+invitation.Token+" --hub-apiserver "+invitation.Server+" ") {
			t.Fatalf("%v: %s", err, out)
		}
		return invitation.Server
	}
	for _, row := range []struct {
		init, token []string
		want        string
	}{
		{[]string{"--hub-apiserver=https://first.example:6443"}, nil, "https://first.example:6443"},
		{nil, nil, "https://first.example:6443"},
		{nil, []string{"--hub-apiserver=https://other.example"}, "https://other.example"},
		{[]string{"--hub-apiserver=https://moved.example"}, nil, "https://moved.example"},
	} {
		must(t, append([]string{"hub", "init", "--image=x", "--apply", "--yes"}, row.init...)...)
		if got := server(row.token...); got != row.want {
			t.Errorf("after init %q, token %q has the address %q, want %q", row.init, row.token, got, row.want)
		}
	}
}

// testFlags leaves out flags of the hub program that runs.
func (w *initEnvironment) testFlags(t *testing.T) {
	first := hubInit("--ocm-agents", "--addon-registration-auth=csr,token")
	must(t, append(first, "--yes")...)
	sidecar := client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"x","args":["--port=1"]}]}}}}`))
	regtest.Must(t, w.admin.Patch(t.Context(), w.deployment(t), sidecar))
	tokens := must(t, "bootstrap", "list")
	if out := must(t, append(first, "--image=y")...); strings.Contains(out, "other flags") ||
		strings.Contains(out, "--hub-token") || !strings.Contains(out, "wid hub token") {
		t.Errorf("with the same flags init says %s", out)
	}
	if after := must(t, "bootstrap", "list"); strings.Count(after, "\n") != strings.Count(tokens, "\n") {
		t.Errorf("an upgrade creates a token: %s", after)
	}
	again := hubInit("--addon-registration-auth=token")
	changes :=
		"\n  --addon-registration-auth=csr,token becomes --addon-registration-auth=token\n  --ocm-agents is dropped\n"
	out, err := wid(t, "", again...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "--yes") ||
		!strings.Contains(out, changes) || strings.Contains(out, "applied") {
		t.Errorf("init says %s, %v", out, err)
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
		if d := w.deployment(t); *d.Spec.Replicas != replicas || len(d.Spec.Template.Spec.ImagePullSecrets) != secrets {
			t.Errorf("%s: %d replicas, pull secrets %v", step, *d.Spec.Replicas, d.Spec.Template.Spec.ImagePullSecrets)
		}
	}
	installed("the first init", 2, 0)
	must(t, hubInit("--yes", "--image-pull-secret=registry")...)
	installed("with a pull secret", 2, 1)
	namespace := "--namespace=" + ocm.HubNamespace
	kubectl(t, "", namespace, "scale", "deployment", ocm.HubDeployment, "--replicas=3")
	must(t, hubInit()...)
	installed("after kubectl scale", 3, 1)
	must(t, hubInit("--replicas=4")...)
	installed("--replicas after kubectl scale", 4, 1)
	kubectl(t, "", namespace, "scale", "deployment", ocm.HubDeployment, "--replicas=3")
	kubectl(t, "", namespace, "set", "env", "deployment", ocm.HubDeployment, "GOGC=100")
	out, err := wid(t, "", hubInit("--replicas=1")...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "GOGC") ||
		strings.Contains(out, "applied") {
		t.Errorf("init overwrites a field that it was not asked for, or applies some objects: %v\n%s", err, out)
	}
	installed("after a conflict", 3, 1)
	must(t, hubInit("--replicas=1", "--image-pull-secret=none", "--force-conflicts")...)
	installed("with --replicas", 1, 0)
	fails(t, cli.ExitUsage, "--replicas", hubInit("--replicas=-1")...)
}

// testRelay replaces the rights of an older server, as the first init after its
// upgrade does.
func (w *initEnvironment) testRelay(t *testing.T) {
	verb := func(more ...string) string {
		t.Helper()
		must(t, hubInit(more...)...)
		role := &rbacv1.ClusterRole{}
		regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: "open-cluster-management:relay"}, role))
		return role.Rules[0].Verbs[0]
	}
	granted := func() bool {
		return slices.ContainsFunc(w.deployment(t).Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--grant-relay") // another program's container stays before the hub's
		})
	}
	if got := verb("--relay=legacy", "--yes"); got != "impersonate" || granted() {
		t.Errorf("legacy: %q, names: %t", got, granted())
	}
	if got := verb("--relay", "--yes"); got != "impersonate-on:user-info:create" || !granted() {
		t.Errorf("auto: %q, names: %t", got, granted())
	}
	relay := &appsv1.Deployment{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: ocm.RelayNamespace, Name: ocm.RelayName},
		relay); err != nil {
		t.Error(err)
	}
	must(t, hubInit("--yes")...)
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
		regtest.Must(t,
			w.admin.Patch(t.Context(), crd,
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"names":{"shortNames":["mcl"]}}}`))))
	}
	fails(t, cli.ExitDenied, "--force-conflicts", hubInit()...)
	if out := must(t, hubInit("--force-conflicts")...); strings.Count(out, "io\" left as it is") != 2 {
		t.Errorf("init says %s", out)
	}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(role), role); err != nil || len(role.Rules) != 3 {
		t.Errorf("the role has %d rules, %v", len(role.Rules), err)
	}
}

// denied creates a cluster that the hub has denied.
func (w *initEnvironment) denied(t *testing.T, name string) {
	t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	regtest.Must(t, w.admin.Create(t.Context(), cluster))
	cluster.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: ocm.ReasonHubDenied, LastTransitionTime: metav1.Now()}}
	regtest.Must(t, w.admin.Status().Update(t.Context(), cluster))
}

// testCleanup runs the CronJob, which starts where the Restricted Pod Security
// Standard is enforced, with the rights of its ServiceAccount.
func (w *initEnvironment) testCleanup(t *testing.T) {
	must(t, hubInit("--cleanup-image=registry.example/wid:v1")...)
	jobs := &batchv1.CronJobList{}
	if err := w.admin.List(t.Context(), jobs, client.InNamespace(ocm.HubNamespace)); err != nil || len(jobs.Items) != 1 {
		t.Fatalf("%d CronJobs, %v", len(jobs.Items), err)
	}
	template := jobs.Items[0].Spec.JobTemplate.Spec.Template
	checkRestricted(t, w.admin, ocm.HubNamespace, template)
	job := "--kubeconfig=" + w.AccountKubeconfig(t, ocm.HubNamespace, template.Spec.ServiceAccountName)
	user := "system:serviceaccount:" + ocm.HubNamespace + ":" + template.Spec.ServiceAccountName
	may := func(verb string) bool {
		attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: ocm.GroupVersion.Group,
			Resource: "managedclusters"}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: attributes}}
		regtest.Must(t, w.admin.Create(t.Context(), review))
		return review.Status.Allowed
	}
	regtest.Eventually(t, "the job may list and delete", func() bool { return may("list") && may("delete") })
	w.denied(t, "managed-0")
	regtest.Must(t, w.admin.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "pending"}}))
	for _, row := range []struct {
		flag, want string
		left       bool
	}{
		{"--older-than=1h", "none denied for 1h", true},
		{"--dry-run", `cluster "managed-0" would be deleted`, true},
		{"--dry-run=false", `cluster "managed-0" deleted: denied since 20`, false},
	} {
		args := []string{"hub", "cleanup", job, "--older-than=0", row.flag}
		if out := must(t, args...); !strings.HasPrefix(out, row.want) || strings.Contains(out, "pending") ||
			regtest.HasCluster(t, w.admin, "managed-0") != row.left {
			t.Errorf("%q says %s", args, out)
		}
	}
	if !regtest.HasCluster(t, w.admin, "pending") {
		t.Error("the pending cluster is deleted")
	}
	w.denied(t, "managed-2")
	role := &rbacv1.ClusterRole{}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: "open-cluster-management:hub:cleanup"}, role))
	for verb, rest := range map[string]string{"list": "delete", "delete": "list"} {
		role.Rules[0].Verbs = []string{rest}
		regtest.Must(t, w.admin.Update(t.Context(), role))
		regtest.Eventually(t, "the job may not "+verb, func() bool { return may(rest) && !may(verb) })
		fails(t, cli.ExitDenied, verb, "hub", "cleanup", job, "--older-than=0")
	}
	if !regtest.HasCluster(t, w.admin, "managed-2") {
		t.Error("deleted without the right to it")
	}
}
