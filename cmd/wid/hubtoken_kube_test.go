package main

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// tokenWorld is a hub that publishes cluster-info.
func tokenWorld(t *testing.T) *kubetest.Cluster {
	t.Helper()
	hub := kubetest.StartNew(t)
	hub.ControllerManager(t, "csrsigning", "bootstrapsigner")
	t.Setenv("KUBECONFIG", hub.Kubeconfig(t))
	must(t, "bootstrap", "publish")
	return hub
}

// The printed command has what the flags of the hub program ask of an agent.
func TestHubTokenPrintsTheWholeJoin(t *testing.T) {
	hub := tokenWorld(t)
	line := func(args ...string) []string {
		out := must(t, append([]string{"hub", "token"}, args...)...)
		_, command, _ := strings.Cut(out, "\n\nwid ")
		return strings.Fields(command)
	}
	before := line()
	out := must(t, "hub", "token")
	if !strings.Contains(out, `there is no Deployment "open-cluster-management-hub/registration-controller"`) {
		t.Errorf("without a hub program token says %s", out)
	}
	for name, tc := range map[string]struct{ init, want []string }{
		"csr":     {nil, nil},
		"add-ons": {[]string{"--addon-registration-auth=csr,token"}, []string{"--addon-kubeclient-registration-auth", "token"}},
		"aws": {[]string{"--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + eksHub},
			[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", eksHub, "--eks-managed-cluster-arn", "MANAGED_CLUSTER_ARN"}},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, append([]string{"hub", "init", "--image=x", "--apply", "--yes"}, tc.init...)...)
			got := line("--cluster-name=managed-1", "--agent-image=registry.example/wid-agent:v1")
			want := slices.Concat([]string{"join", "--hub-token", got[2], "--hub-apiserver", strings.TrimSuffix(hub.Config().Host, "/")}, before[5:7], tc.want,
				[]string{"--cluster-name", "managed-1", "--image", "registry.example/wid-agent:v1", "--context", "CLUSTER_CONTEXT", "--apply"})
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if tokens := must(t, "bootstrap", "list", "--reveal"); !strings.Contains(tokens, got[2]) {
				t.Errorf("the hub has the tokens %s", tokens)
			}
		})
	}
}

// Run again without its flags, init would take them from the hub program.
func TestHubInitNamesTheFlagsThatItChanges(t *testing.T) {
	hub := tokenWorld(t)
	first := []string{"hub", "init", "--image=x", "--apply", "--ocm-agents", "--addon-registration-auth=csr,token"}
	must(t, first...)
	sidecar := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"x","args":["--port=1"]}]}}}}`))
	if err := hub.Client().Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: regname.HubNamespace, Name: regname.HubDeployment}}, sidecar); err != nil {
		t.Fatal(err)
	}
	tokens := must(t, "bootstrap", "list")
	if out := must(t, append(first, "--image=y")...); strings.Contains(out, "other flags") || strings.Contains(out, "--hub-token") || !strings.Contains(out, "wid hub token") {
		t.Errorf("with the same flags init says %s", out)
	}
	if after := must(t, "bootstrap", "list"); strings.Count(after, "\n") != strings.Count(tokens, "\n") {
		t.Errorf("an upgrade creates a token: %s", after)
	}
	again := []string{"hub", "init", "--image=x", "--apply", "--addon-registration-auth=token"}
	changes := "\n  --addon-registration-auth=csr,token becomes --addon-registration-auth=token\n  --ocm-agents is dropped\n"
	out, err := wid(t, "", again...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "--yes") || !strings.Contains(out, changes) || strings.Contains(out, "applied") {
		t.Errorf("init says %s, %v", out, err)
	}
	if out := must(t, append(again, "--yes")...); !strings.Contains(out, changes) || !strings.Contains(out, "applied") {
		t.Errorf("with --yes init says %s", out)
	}
}
