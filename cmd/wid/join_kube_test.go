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
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

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
	cluster := kubetest.StartNew(t)
	cluster.ControllerManager(t, "csrsigning")
	t.Setenv("KUBECONFIG", cluster.Kubeconfig(t))
	c := regtest.NewClient(t, cluster.Config())
	fails(t, cli.ExitUsage, "no agent to upgrade", "join", "--image=new", "--apply")
	installed := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.AgentName}
	apply(t, printAgent(t, manifests.AgentOptions{Cluster: "$(CLUSTER_NAME)"}))
	for _, more := range [][]string{nil, {"--cluster-name=cluster1", "--force-conflicts"}} {
		fails(t, cli.ExitMisconfigured, "change ?ref= in the overlay",
			append([]string{"join", "--image=new", "--apply"}, more...)...)
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
		out := must(t, "join", "--image=new", "--apply", row.add)
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
	checkRestOfTheAgent(t)
	if err := c.Get(t.Context(),
		client.ObjectKey{Namespace: agent.DefaultAddOnNamespace, Name: "registration-agent-addon"},
		&rbacv1.Role{}); err != nil {
		t.Errorf("the rights of the new flag: %v", err)
	}
	if err := c.Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret},
			Data: map[string][]byte{ocm.SecretKeyClusterName: []byte("cluster1")}}); err != nil {
		t.Fatal(err)
	}
	kubectlAppliesWhatWidHasApplied(t)
	for want, row := range map[string][]string{
		`registered as "cluster1", not as "other"`: {"--cluster-name=other"},
		"--registration-auth":                      {"--registration-auth=ldap"},
	} {
		if _, err := wid(t, "", slices.Concat([]string{"join", "--image=new", "--apply"}, row)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", row, err)
		}
	}
}

// checkRestOfTheAgent upgrades an agent that was scaled and has what join does
// not write.
func checkRestOfTheAgent(t *testing.T) {
	t.Helper()
	namespace := "--namespace=" + agent.DefaultNamespace
	kubectl(t, "", namespace, "scale", "deployment", ocm.AgentName, "--replicas=5")
	must(t, "join", "--image=new", "--replicas=4", "--apply")
	kubectl(t, "", namespace, "patch", "deployment", ocm.AgentName,
		`--patch={"spec":{"template":{"spec":{"containers":[{"name":"registration","command":["/wid-agent"]},{"name":"sidecar","image":"x"}]}}}}`)
	must(t, "join", "--image=newer", "--apply")
	containers := kubectl(t, "", namespace, "get", "deployment", ocm.AgentName,
		"--output=jsonpath={.spec.template.spec.containers[*]['name','command']}")
	if !strings.Contains(containers, "sidecar") || !strings.Contains(containers, "/wid-agent") {
		t.Errorf("join leaves the containers %s", containers)
	}
}

// kubectlAppliesWhatWidHasApplied applies equal manifests, wid first. No field
// conflicts, neither of the hub nor of the agent.
func kubectlAppliesWhatWidHasApplied(t *testing.T) {
	t.Helper()
	hub := []string{"hub", "init", "--image=x", "--addon-registration-auth=csr,token", "--ocm-agents", "--cleanup-image=x",
		"--registration-auth=csr,aws-irsa", "--eks-hub-cluster-arn=" + eksHub}
	must(t, append(hub, "--apply")...)
	apply(t, must(t, hub...))
	// with what other programs wrote
	kubectl(t, "", "--namespace="+agent.DefaultNamespace, "delete", "deployment", ocm.AgentName)
	agent := printAgent(t, manifests.AgentOptions{Cluster: "cluster1", AddOnAuthType: registration.AuthTypeToken})
	apply(t, agent)
	must(t, "join", "--image=old", "--apply")
	apply(t, agent)
}
