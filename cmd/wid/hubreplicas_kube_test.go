package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// Another init leaves replicas and pull secrets alone that it was not asked for. It takes replicas that it was asked for, whatever set them.
func TestHubInitKeepsReplicasAndPullSecrets(t *testing.T) {
	cluster := kubetest.StartNew(t)
	cluster.ControllerManager(t, "csrsigning")
	t.Setenv("KUBECONFIG", cluster.Kubeconfig(t))
	c, err := cli.NewRegistrationClient(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	initHub := func(more ...string) []string {
		return append([]string{"hub", "init", "--image=x", "--apply", "--hub-apiserver=https://hub.example"}, more...)
	}
	installed := func(step string, replicas int32, secrets ...string) {
		t.Helper()
		d := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: regname.HubNamespace, Name: regname.HubDeployment}, d); err != nil {
			t.Fatal(err)
		}
		if *d.Spec.Replicas != replicas || len(d.Spec.Template.Spec.ImagePullSecrets) != len(secrets) {
			t.Errorf("%s: %d replicas, pull secrets %v", step, *d.Spec.Replicas, d.Spec.Template.Spec.ImagePullSecrets)
		}
	}
	must(t, initHub()...)
	installed("the first init", 2)
	must(t, initHub("--image-pull-secret=registry")...)
	installed("with a pull secret", 2, "registry")
	scale := func(namespace, name string) {
		t.Helper()
		if out, err := kubectl(t, "", "--namespace="+namespace, "scale", "deployment", name, "--replicas=3"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	scale(regname.HubNamespace, regname.HubDeployment)
	must(t, initHub()...)
	installed("after kubectl scale", 3, "registry")
	must(t, initHub("--replicas=4")...)
	installed("--replicas after kubectl scale", 4, "registry")
	scale(regname.HubNamespace, regname.HubDeployment)
	if out, err := kubectl(t, "", "--namespace="+regname.HubNamespace, "set", "env", "deployment", regname.HubDeployment, "GOGC=100"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := wid(t, "", initHub("--replicas=1")...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "GOGC") || strings.Contains(out, "applied") {
		t.Errorf("init overwrites a field that it was not asked for, or applies some objects: %v\n%s", err, out)
	}
	installed("after a conflict", 3, "registry")
	must(t, initHub("--replicas=1", "--image-pull-secret=", "--force-conflicts")...)
	installed("with --replicas", 1)
	if _, err := wid(t, "", initHub("--replicas=-1")...); err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage {
		t.Errorf("--replicas=-1: %v", err)
	}
}
