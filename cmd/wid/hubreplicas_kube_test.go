package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration/manifests"
)

// Another init leaves replicas and pull secrets alone that it was not asked for, whoever set them.
func TestHubInitKeepsReplicasAndPullSecrets(t *testing.T) {
	cluster := kubetest.StartNew(t)
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
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: manifests.HubNamespace, Name: manifests.HubDeployment}, d); err != nil {
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
	scale := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), //nolint:gosec // a program of our own build
		"--namespace="+manifests.HubNamespace, "scale", "deployment", manifests.HubDeployment, "--replicas=3")
	if out, err := scale.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, initHub()...)
	installed("after kubectl scale", 3, "registry")
	if out, err := wid(t, "", initHub("--replicas=1")...); err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied {
		t.Errorf("init overwrites what kubectl scale set: %v\n%s", err, out)
	}
	must(t, initHub("--replicas=1", "--image-pull-secret=", "--force-conflicts")...)
	installed("with --replicas", 1)
	if _, err := wid(t, "", initHub("--replicas=-1")...); err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage {
		t.Errorf("--replicas=-1: %v", err)
	}
}
