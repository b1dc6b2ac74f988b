package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
)

// kubectl runs kubectl with the kubeconfig of KUBECONFIG.
func kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...) //nolint:gosec // a program of our own build
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kubectl and wid apply equal manifests one after the other. No field conflicts, whichever of them comes first.
func TestKubectlAndWidApplyEqualManifests(t *testing.T) {
	const base = "--image=ghcr.io/workloadid/wid-hub:v0.1.0"
	release := []string{"hub", "init", base, "--addon-registration-auth=csr,token"}
	all := []string{"hub", "init", base, "--addon-registration-auth=csr,token", "--ocm-agents", "--cleanup-image=x", "--registration-auth=csr,aws-irsa",
		"--eks-hub-cluster-arn=arn:aws:eks:eu-central-1:111111111111:cluster/hub"}
	agent, err := manifests.Agent(manifests.AgentOptions{Image: "x", Cluster: "cluster1", AuthType: registration.AuthTypeCSR, AddOnAuthType: registration.AuthTypeToken})
	if err != nil {
		t.Fatal(err)
	}
	applied := func(printed string) func(t *testing.T) {
		return func(t *testing.T) {
			if out, err := kubectl(t, printed, "apply", "--server-side", "--filename=-"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	}
	kustomize := func(t *testing.T) {
		if out, err := kubectl(t, "", "apply", "--server-side", "--kustomize="+filepath.Join("..", "..", "config", "hub")); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	token := func(t *testing.T) {
		if out := must(t, "hub", "token"); !strings.Contains(out, "wid join --hub-token ") || !strings.Contains(out, " --addon-kubeclient-registration-auth token ") {
			t.Errorf("token says %s", out)
		}
	}
	wids := func(args ...string) func(t *testing.T) {
		return func(t *testing.T) { must(t, append(args, "--apply")...) }
	}
	for name, steps := range map[string][]func(*testing.T){
		"config/hub, then init":       {kustomize, token, wids(release...), wids("hub", "init", "--image=next", "--addon-registration-auth=csr,token")},
		"init, then config/hub":       {wids(release...), kustomize},
		"all options, kubectl first":  {applied(must(t, all...)), wids(all...)},
		"all options, wid first":      {wids(all...), applied(must(t, all...))},
		"an agent, then join upgrade": {applied(agent), wids("join", "--image=x"), applied(agent)},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := kubetest.StartNew(t)
			cluster.ControllerManager(t, "csrsigning")
			t.Setenv("KUBECONFIG", cluster.Kubeconfig(t))
			for _, step := range steps {
				step(t)
			}
		})
	}
}
