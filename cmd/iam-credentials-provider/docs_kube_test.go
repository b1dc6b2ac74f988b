package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func page(t *testing.T) document.Page { t.Helper(); return document.Read(t, "docs/podidentity.md") }

// documented returns the YAML of the page that is of one of the kinds, of which
// each occurs.
func documented(t *testing.T, kinds ...string) (found []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, block := range page(t).Blocks("yaml") {
		if kind := parse(t, block.Text)[0].GetKind(); slices.Contains(kinds, kind) {
			found, seen[kind] = append(found, block.Text), true
		}
	}
	if len(seen) != len(kinds) {
		t.Fatalf("the page has %v of %q", seen, kinds)
	}
	return found
}

// kustomize builds each overlay of the page.
func TestDocumentedOverlays(t *testing.T) {
	for _, block := range page(t).Blocks("json") {
		if !json.Valid([]byte(block.Text)) {
			t.Errorf("not JSON: %s", block.Text)
		}
	}
	overlays := documented(t, "Kustomization")
	checkOverlay(t, buildOverlay(t, overlays[0]), "ghcr.io/workloadid/")
	private := buildOverlay(t, overlays[0], overlays[1])
	checkOverlay(t, private, "registry.example/")
	checkPrivate(t, private)
	for _, line := range document.Names(page(t).Section("Certificates").Text) {
		if strings.HasPrefix(line, "components:") {
			checkCertManager(t, buildOverlay(t, overlays[0]+line+"\n"))
			return
		}
	}
	t.Error("the page has no line for cert-manager")
}

// writeOverlays writes overlays to folders, the first one to prod, with the
// manifests of this tree instead of those on GitHub. It returns the last
// folder.
func writeOverlays(t *testing.T, overlays ...string) (last string) {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Abs(configDir)
	if err != nil {
		t.Fatal(err)
	}
	remote := regexp.MustCompile(
		`https://github.com/workloadid/workloadid//config/iam-credentials-provider(\S*)\?ref=v0\.1\.0`)
	for i, overlay := range overlays {
		last = filepath.Join(dir, []string{"prod", "other"}[i])
		relative, err := filepath.Rel(last, base)
		if err != nil {
			t.Fatal(err)
		}
		local := remote.ReplaceAllString(overlay, relative+"$1")
		if local == overlay && i == 0 {
			t.Fatalf("no remote base: %s", overlay)
		}
		if err := errors.Join(os.Mkdir(last, 0o700),
			os.WriteFile(filepath.Join(last, "kustomization.yaml"), []byte(local), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

func buildOverlay(t *testing.T, overlays ...string) []*unstructured.Unstructured {
	t.Helper()
	return build(t, writeOverlays(t, overlays...))
}

func checkPrivate(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for name, deployment := range pick[appsv1.Deployment](t, objects, "Deployment") {
		if secrets := deployment.Spec.Template.Spec.ImagePullSecrets; len(secrets) != 1 {
			t.Errorf("%s: pull Secrets %v", name, secrets)
		}
	}
	for _, settings := range pick[corev1.ConfigMap](t, objects, "ConfigMap") {
		if !strings.HasPrefix(settings.Data["POD_IMAGE"], "registry.example/") {
			t.Errorf("settings %v", settings.Data)
		}
	}
}

func checkOverlay(t *testing.T, objects []*unstructured.Unstructured, registry string) {
	t.Helper()
	for name, policy := range pick[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
		if ingress := policy.Spec.Ingress; name == podscenario.WebhookAccount &&
			(len(ingress[0].From) != 1 || ingress[0].From[0].IPBlock.CIDR != "192.0.2.0/28") {
			t.Errorf("clients of the webhook: %v", ingress)
		}
	}
	for _, settings := range pick[corev1.ConfigMap](t, objects, "ConfigMap") {
		if settings.Data["CLUSTER"] != "prod" || settings.Data["AUDIENCE"] == "" {
			t.Errorf("settings %v", settings.Data)
		}
	}
	for deployment, d := range pick[appsv1.Deployment](t, objects, "Deployment") {
		container := d.Spec.Template.Spec.Containers[0]
		checkArguments(t, objects, container)
		isServer := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "AWS_ROLE_ARN" })
		if !strings.HasPrefix(container.Image, registry) || container.Env[0].Name != "GOMEMLIMIT" ||
			isServer != (deployment == name) {
			t.Errorf("%s: image %q, env %v", deployment, container.Image, container.Env)
		}
	}
}

// administrator runs the commands of the page in the folder of the overlay.
type administrator struct {
	*environment
	dir, kubeconfig string
}

// run runs commands. No node runs here, so it completes the status of the
// Deployments before a command that waits for them. It repeats a command that
// applies a file, because kinds and policies take effect a moment after they
// are applied.
func (a *administrator) run(t *testing.T, commands ...string) (output string) {
	t.Helper()
	for _, command := range commands {
		if strings.Contains(command, "rollout status") {
			a.finishRollout(t)
		}
		var out []byte
		var err error
		try := func() bool {
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
			cmd.Dir = a.dir
			cmd.Env = append(os.Environ(), "KUBECONFIG="+a.kubeconfig, "PATH="+kubetest.Assets(t)+":"+os.Getenv("PATH"))
			out, err = cmd.CombinedOutput()
			return err == nil
		}
		if strings.HasPrefix(command, "kubectl apply -f") {
			kubetest.Eventually(t, "this command succeeds: "+command, try)
		} else if !try() && !strings.HasPrefix(command, "kubectl diff") { // which exits with 1 if anything differs
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		output += string(out)
	}
	return output
}

func (a *administrator) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refuses binds a role without a rule, and gets the message that the page
// shows.
func (a *administrator) refuses(t *testing.T) {
	t.Helper()
	want := strings.Fields(page(t).Block("text", "Error from server")) // the page breaks the line
	a.write(t, "binding.yaml", documented(t, "IAMBinding")[0])
	got := ""
	defer func() {
		if !slices.Equal(strings.Fields(got), want) {
			t.Errorf("kubectl prints %q, want %q as on the page", got, strings.Join(want, " "))
		}
	}()
	kubetest.Eventually(t, "kubectl prints the message of the page", func() bool {
		got = a.run(t, "kubectl apply --dry-run=server -f binding.yaml 2>&1 || true")
		return slices.Equal(strings.Fields(got), want)
	})
}

func (a *administrator) finishRollout(t *testing.T) {
	t.Helper()
	deployments := &appsv1.DeploymentList{}
	if err := a.Admin.List(t.Context(), deployments, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(deployments.Items) != 3 {
		t.Errorf("%d Deployments", len(deployments.Items))
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n,
			ReadyReplicas: n, AvailableReplicas: n}
		if err := a.Admin.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// rotate does the work of the program certificates at a time from now, and
// returns the CAs that the API server trusts.
func (a *administrator) rotate(t *testing.T, later time.Duration) []byte {
	t.Helper()
	r := newRotation(t, a.environment)
	r.at(t, time.Now().Add(later))
	if ca := r.registered(t).Webhooks[0].ClientConfig.CABundle; len(ca) > 0 {
		return ca
	}
	t.Fatal("the API server does not know the CA")
	return nil
}

const tenantsDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: team-a, name: reporting}
spec:
  selector: {matchLabels: {app: reporting}}
  template:
    metadata: {labels: {app: reporting}}
    spec: {containers: [{name: app, image: registry.example/reporting:v1}]}
`

// A pod that was injected, and one that was not.
const tenantsPods = `
apiVersion: v1
kind: Pod
metadata: {namespace: team-a, name: reporting-0}
spec:
  serviceAccountName: reporting
  initContainers: [{name: iam-credentials-proxy, image: x, restartPolicy: Always}]
  containers: [{name: app, image: registry.example/reporting:v1}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: team-a, name: plain}
spec:
  serviceAccountName: reporting
  containers: [{name: app, image: registry.example/reporting:v1}]
`

// The commands of the page install, upgrade, back up, remove and restore, word
// for word. The API server accepts each object.
func TestDocumentedCommands(t *testing.T) {
	a := &administrator{environment: newEnvironment(t, kubetest.StartNew(t))}
	_, kubeconfig, err := a.Cluster.User("admin", "system:masters")
	a.kubeconfig = filepath.Join(a.Dir, "kubeconfig")
	if err := errors.Join(err, os.WriteFile(a.kubeconfig, kubeconfig, 0o600)); err != nil {
		t.Fatal(err)
	}
	stop, err := a.Cluster.ControllerManager("namespace-controller", "serviceaccount-controller")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	a.dir = writeOverlays(t, documented(t, "Kustomization")[0])

	a.write(t, "allowlist.yaml", documented(t, "IAMRoleAllowList")[0])
	a.run(t, page(t).Section("Install").Commands()...)
	before := a.rotate(t, 0)
	if _, err := scenario.Apply(t.Context(), a.Admin, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: team-a, name: reporting}", tenantsDeployment,
		tenantsPods); err != nil {
		t.Fatal(err)
	}
	a.refuses(t)
	for _, file := range documented(t, "IAMRoleAllowList", "Namespace", "IAMBinding", "ClusterRole", "NetworkPolicy") {
		a.run(t, "kubectl apply -f - --validate=strict <<'EOF'\n"+file+"EOF")
	}
	a.run(t, page(t).Section("A private registry").Commands()...)
	a.run(t, page(t).Section("Upgrade").Commands()...)
	if after := a.rotate(t, 0); !bytes.Equal(before, after) {
		t.Error("an upgrade changes the CA or caBundle")
	}
	a.run(t, page(t).Section("Back up").Commands()[:3]...)
	a.remove(t)

	a.run(t, page(t).Section("Back up").Commands()[3:]...)
	if after := a.rotate(t, 0); !bytes.Equal(before, after) {
		t.Error("the restored CA is another one")
	}
	if err := a.Admin.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "reporting"},
		&v1alpha1.IAMBinding{}); err != nil {
		t.Error(err)
	}
	a.run(t, page(t).Section("Certificates").Commands()...)
	if after := a.rotate(t, 0); !bytes.Contains(after, before) || bytes.Equal(after, before) {
		t.Error("the kubelet still mounts certificates of the stolen CA, but the API server does not trust them")
	}
	if after := a.rotate(t, mountDelay+time.Minute); bytes.Contains(after, before) {
		t.Error("the stolen CA is still trusted")
	}
}

// remove runs the commands of the page and looks for what is left.
func (a *administrator) remove(t *testing.T) {
	t.Helper()
	installed := build(t, a.dir)
	if out := a.run(t, page(t).Section("Remove").Commands()...); !strings.Contains(out,
		"team-a/reporting-0 iam-credentials-proxy\n") || strings.Contains(out, "team-a/plain") {
		t.Errorf("pods with a sidecar: %s", out)
	}
	for _, o := range installed {
		left := &unstructured.Unstructured{}
		left.SetGroupVersionKind(o.GroupVersionKind())
		if err := a.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), left); !apierrors.IsNotFound(err) {
			t.Errorf("%s %q is left: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if out := a.run(t, "kubectl get namespace team-a -o jsonpath='{.metadata.labels}'"); strings.Contains(out,
		"iam.aws.k8s.io") {
		t.Errorf("labels %s", out)
	}
}
