package main

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// An agent is upgraded without a token and without the address of the hub.
func TestJoinUpgradesAnAgent(t *testing.T) {
	cluster := kubetest.StartNew(t)
	t.Setenv("KUBECONFIG", cluster.Kubeconfig(t))
	c, err := cli.NewRegistrationClient(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := wid(t, "", "join", "--image=new", "--apply"); err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage || !strings.Contains(err.Error(), "no agent to upgrade") {
		t.Errorf("without an agent: %v\n%s", err, out)
	}
	printed, err := manifests.Agent(manifests.AgentOptions{Image: "old", Cluster: "cluster1", AuthType: registration.AuthTypeCSR, Replicas: new(int32(3)), ImagePullSecrets: []string{"registry"},
		Hub: &bootstrap.ClusterInfo{Server: "https://hub.example"}, Token: "abcdef.0123456789abcdef", ExtraArgs: []string{"--metrics-bind-address=0", "--health-probe-bind-address", ":1"}})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("wid")); err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{}
	bootstrapSecret := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: agent.DefaultBootstrapSecret}
	if err := c.Get(t.Context(), bootstrapSecret, secret); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		add  []string
		args string
	}{
		{"image", nil, "--cluster-name=cluster1 --registration-auth=csr --leader-elect --metrics-bind-address=0 --health-probe-bind-address=:1"},
		{"image and a flag", []string{"--addon-kubeclient-registration-auth=token"},
			"--cluster-name=cluster1 --registration-auth=csr --leader-elect --addon-kubeclient-registration-auth=token --metrics-bind-address=0 --health-probe-bind-address=:1"},
		{"again", []string{"--cluster-name=cluster1"},
			"--cluster-name=cluster1 --registration-auth=csr --leader-elect --addon-kubeclient-registration-auth=token --metrics-bind-address=0 --health-probe-bind-address=:1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := must(t, append([]string{"join", "--image=new", "--apply"}, row.add...)...)
			d := &appsv1.Deployment{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: regname.AgentName}, d); err != nil {
				t.Fatal(err)
			}
			pod := d.Spec.Template.Spec
			if got := strings.Join(pod.Containers[0].Args, " "); got != row.args || pod.Containers[0].Image != "new" || *d.Spec.Replicas != 3 || len(pod.ImagePullSecrets) != 1 {
				t.Errorf("image %s, replicas %d, pull secrets %v, args %s", pod.Containers[0].Image, *d.Spec.Replicas, pod.ImagePullSecrets, got)
			}
			after := &corev1.Secret{}
			if err := c.Get(t.Context(), bootstrapSecret, after); err != nil || after.ResourceVersion != secret.ResourceVersion {
				t.Errorf("the bootstrap Secret has changed: %v", err)
			}
			if !strings.Contains(out, row.args) || !strings.Contains(out, `cluster "cluster1"`) {
				t.Errorf("join says %s", out)
			}
		})
	}
	checkRestOfTheAgent(t)
	role := &rbacv1.Role{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultAddOnNamespace, Name: "registration-agent-addon"}, role); err != nil {
		t.Errorf("the rights of the new flag: %v", err)
	}
	if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret},
		Data: map[string][]byte{regname.SecretKeyClusterName: []byte("cluster1")}}); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][]string{
		`registered as "cluster1", not as "other"`: {"--cluster-name=other"},
		"--registration-auth":                      {"--registration-auth=ldap"},
	} {
		if _, err := wid(t, "", slices.Concat([]string{"join", "--image=new", "--apply"}, row)...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", row, err)
		}
	}
}

// checkRestOfTheAgent upgrades an agent that was scaled and has what join does not write.
func checkRestOfTheAgent(t *testing.T) {
	t.Helper()
	if out, err := kubectl(t, "", "--namespace="+agent.DefaultNamespace, "scale", "deployment", regname.AgentName, "--replicas=5"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, "join", "--image=new", "--replicas=4", "--apply")
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"registration","command":["/wid-agent"]},{"name":"sidecar","image":"x"}]}}}}`
	if out, err := kubectl(t, "", "--namespace="+agent.DefaultNamespace, "patch", "deployment", regname.AgentName, "--patch="+patch); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out := must(t, "join", "--image=newer", "--apply"); strings.Count(out, `container "sidecar"`) != 1 || !strings.Contains(out, `command ["/wid-agent"]`) {
		t.Errorf("join says %s", out)
	}
}

// An agent of an overlay is upgraded by the overlay. Nothing is applied.
func TestJoinUpgradesNoAgentOfAnOverlay(t *testing.T) {
	t.Setenv("KUBECONFIG", kubetest.StartNew(t).Kubeconfig(t))
	printed, err := manifests.Agent(manifests.AgentOptions{Image: "old", Cluster: "$(CLUSTER_NAME)", AuthType: registration.AuthTypeCSR})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, printed, "apply", "--server-side", "--filename=-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, more := range [][]string{nil, {"--cluster-name=cluster1", "--force-conflicts"}} {
		out, err := wid(t, "", append([]string{"join", "--image=new", "--apply"}, more...)...)
		if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitMisconfigured || !strings.Contains(err.Error(), "change ?ref= in the overlay") || strings.Contains(out, "applied") {
			t.Errorf("with %q: %v\n%s", more, err, out)
		}
	}
}
