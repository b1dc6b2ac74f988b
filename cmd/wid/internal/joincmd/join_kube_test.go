package joincmd

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// member is a managed cluster on a real API server.
type member struct {
	admin      client.Client
	kubeconfig string
}

func newMember(t *testing.T) *member {
	t.Helper()
	cluster := kubetest.Start(t)
	return &member{regtest.NewClient(t, cluster.Config()), cluster.Kubeconfig(t)}
}

// join applies.
func (w *member) join(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return run(t, NewJoin(), "", append(args, "--apply", "--kubeconfig="+w.kubeconfig)...)
}

// printAgent prints the manifests of an agent.
func printAgent(t *testing.T, options manifests.AgentOptions) string {
	t.Helper()
	options.Image, options.AuthType = "old", registration.AuthTypeCSR
	printed, err := manifests.Agent(options)
	regtest.Must(t, err)
	return printed
}

// An agent is upgraded without a token and without the address of the hub. An
// overlay upgrades its agent itself.
func TestJoinUpgradesAnAgent(t *testing.T) {
	w := newMember(t)
	c := w.admin
	_, err := w.join(t, "--image=new")
	expectFailure(t, err, cli.ExitUsage, "no agent to upgrade")
	installed := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.AgentName}
	regtest.KubectlApply(t, w.kubeconfig, printAgent(t, manifests.AgentOptions{Cluster: "$(CLUSTER_NAME)"}))
	for _, more := range [][]string{nil, {"--cluster-name=cluster1", "--force-conflicts"}} {
		_, err := w.join(t, append(more, "--image=new")...)
		expectFailure(t, err, cli.ExitMisconfigured, "change ?ref= in the overlay")
	}
	d := &appsv1.Deployment{}
	if err := c.Get(t.Context(), installed, d); err != nil || d.Spec.Template.Spec.Containers[0].Image != "old" {
		t.Errorf("an agent of an overlay is changed: %v", err)
	}
	regtest.Must(t, c.Delete(t.Context(), d))
	old,
		err := manifests.Parse(printAgent(t,
		manifests.AgentOptions{Cluster: "cluster1", Replicas: new(int32(3)), ImagePullSecrets: []string{"registry"},
			Hub: &bootstrap.ClusterInfo{Server: "https://hub.example"}, Token: "abcdef.0123456789abcdef",
			ExtraArgs: []string{"--metrics-bind-address=0", "--health-probe-bind-address", ":1"}}))
	regtest.Must(t, err)
	for _, o := range old {
		regtest.Must(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("wid"),
			client.ForceOwnership))
	}
	secret := &corev1.Secret{}
	bootstrapSecret := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: agent.DefaultBootstrapSecret}
	regtest.Must(t, c.Get(t.Context(), bootstrapSecret, secret))
	const before, after = "--cluster-name=cluster1 --registration-auth=csr --leader-elect ",
		"--metrics-bind-address=0 --health-probe-bind-address=:1"
	for _, row := range []struct{ add, args string }{
		{"--image=new", before + after}, // and no more
		{"--addon-kubeclient-registration-auth=token", before + "--addon-kubeclient-registration-auth=token " + after},
		{"--cluster-name=cluster1", before + "--addon-kubeclient-registration-auth=token " + after}, // it keeps its flag
	} {
		out, err := w.join(t, "--image=new", row.add)
		regtest.Must(t, err)
		d := &appsv1.Deployment{}
		regtest.Must(t, c.Get(t.Context(), installed, d))
		pod := d.Spec.Template.Spec
		if got := strings.Join(pod.Containers[0].Args, " "); got != row.args || pod.Containers[0].Image != "new" ||
			*d.Spec.Replicas != 3 || len(pod.ImagePullSecrets) != 1 {
			t.Errorf("%s: image %s, replicas %d, pull secrets %v, args %s", row.add, pod.Containers[0].Image, *d.Spec.Replicas,
				pod.ImagePullSecrets, got)
		}
		after := &corev1.Secret{}
		if err := c.Get(t.Context(), bootstrapSecret, after); err != nil || after.ResourceVersion != secret.ResourceVersion {
			t.Errorf("%s: the bootstrap Secret has changed: %v", row.add, err)
		}
		if !strings.Contains(out, row.args) || !strings.Contains(out, `cluster "cluster1"`) {
			t.Errorf("join says %s", out)
		}
	}
	regtest.ExpectRestricted(t, c, agent.DefaultNamespace)
	w.testRestOfTheAgent(t)
	regtest.Must(t, c.Get(t.Context(),
		client.ObjectKey{Namespace: agent.DefaultAddOnNamespace, Name: "registration-agent-addon"}, &rbacv1.Role{}))
	w.testEqualManifests(t)
	w.testCredential(t)
	operator := metav1.ObjectMeta{Namespace: "open-cluster-management", Name: "klusterlet-0",
		Labels: map[string]string{"app": "klusterlet"}}
	regtest.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operator.Namespace}}))
	regtest.Must(t, c.Create(t.Context(), &corev1.Pod{ObjectMeta: operator,
		Spec: corev1.PodSpec{NodeName: "ends", Containers: []corev1.Container{{Name: "program", Image: "ocm"}}}}))
	_, err = w.join(t, "--image=newer")
	expectFailure(t, err, cli.ExitMisconfigured, "wait --for=delete pod --selector app=klusterlet")
}

// testRestOfTheAgent upgrades an agent that was scaled and has what join does
// not write.
func (w *member) testRestOfTheAgent(t *testing.T) {
	t.Helper()
	kubectl := func(args ...string) string {
		t.Helper()
		return regtest.Kubectl(t, w.kubeconfig, "", append([]string{"--namespace=" + agent.DefaultNamespace}, args...)...)
	}
	kubectl("scale", "deployment", ocm.AgentName, "--replicas=5")
	_, err := w.join(t, "--image=new", "--replicas=4")
	regtest.Must(t, err)
	kubectl("patch", "deployment", ocm.AgentName,
		`--patch={"spec":{"template":{"spec":{"containers":[{"name":"registration","command":["/wid-agent"]},{"name":"sidecar","image":"x"}]}}}}`)
	_, err = w.join(t, "--image=newer")
	regtest.Must(t, err)
	containers := kubectl("get", "deployment", ocm.AgentName,
		"--output=jsonpath={.spec.template.spec.containers[*]['name','command']}")
	if !strings.Contains(containers, "sidecar") || !strings.Contains(containers, "/wid-agent") {
		t.Errorf("join leaves the containers %s", containers)
	}
}

// testEqualManifests applies equal manifests, kubectl first, then wid. No field
// conflicts.
func (w *member) testEqualManifests(t *testing.T) {
	t.Helper()
	// with what other programs wrote
	regtest.Kubectl(t, w.kubeconfig, "", "--namespace="+agent.DefaultNamespace, "delete", "deployment", ocm.AgentName)
	printed := printAgent(t, manifests.AgentOptions{Cluster: "cluster1", AddOnAuthType: registration.AuthTypeToken})
	regtest.KubectlApply(t, w.kubeconfig, printed)
	_, err := w.join(t, "--image=old")
	regtest.Must(t, err)
	regtest.KubectlApply(t, w.kubeconfig, printed)
}

// testCredential joins a cluster that has a credential of its own. The agent
// keeps it, unless the hub has no ManagedCluster any more.
func (w *member) testCredential(t *testing.T) {
	t.Helper()
	hub, _ := newHub(t, http.StatusNotFound)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace,
		Name: ocm.HubKubeconfigSecret}, Data: map[string][]byte{ocm.SecretKeyClusterName: []byte("cluster1"),
		"kubeconfig": []byte(`{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: "` + hub.URL + `"}}]}`)}}
	regtest.Must(t, w.admin.Create(t.Context(), own))
	for want, flag := range map[string]string{
		`registered this cluster as "cluster1" at the hub "` + hub.URL + `", not as "other"`: "--cluster-name=other",
		"--registration-auth": "--registration-auth=ldap"} {
		if _, err := w.join(t, "--image=new", flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", flag, err, want)
		}
	}
	out, err := w.join(t, arriving(t, hub, "--force-conflicts")...)
	if err != nil || !strings.Contains(out, `no ManagedCluster "cluster1": its agent's credential`) {
		t.Errorf("join says %s, %v", out, err)
	}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(own), own); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret is still there: %v", err)
	}
	present, _ := newHub(t, http.StatusOK)
	own.ResourceVersion = ""
	own.Data["kubeconfig"] = []byte(strings.ReplaceAll(string(own.Data["kubeconfig"]), hub.URL, present.URL))
	regtest.Must(t, w.admin.Create(t.Context(), own))
	if out, err := w.join(t, arriving(t, present, "--force-conflicts", "--wait", "--timeout=1m")...); err != nil {
		t.Errorf("join says %s, %v", out, err)
	}
	regtest.Must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(own), own))
}
