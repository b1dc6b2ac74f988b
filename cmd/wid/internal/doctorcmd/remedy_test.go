package doctorcmd

import (
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// A pasted command asks and changes the cluster that was examined, not the
// current context of kubectl.
func TestRemediesNameTheCluster(t *testing.T) {
	const flags = " --kubeconfig 'a b/prod.yaml' --context admin@prod"
	named, unnamed := cli.KubeFile{Path: "a b/prod.yaml", Context: "admin@prod"}, cli.KubeFile{}
	for command, want := range map[string]string{
		"kubectl get --raw /openid/v1/jwks":        "kubectl" + flags + " get --raw /openid/v1/jwks",
		"kubectl create role x":                    "kubectl" + flags + " create role x",
		"kubectl config get-contexts":              "kubectl --kubeconfig 'a b/prod.yaml' config get-contexts",
		"kubectl logs a 'kubectl get --raw /x'":    "kubectl" + flags + " logs a 'kubectl get --raw /x'",
		"wid bootstrap publish":                    "wid bootstrap publish" + flags,
		"wid pod-identity trust-policy -n a b":     "wid pod-identity trust-policy -n a b" + flags,
		"wid hub init":                             "wid hub init" + flags,
		"kubectlx":                                 "kubectlx",
		"aws iam get-role --role-name kubectl x":   "aws iam get-role --role-name kubectl x",
		"# as another person: kubectl get pods -A": "# as another person: kubectl get pods -A",
	} {
		if got := named.Kubectl(command); got != want {
			t.Errorf("%q: %q", command, got)
		}
		if got := unnamed.Kubectl(command); got != command {
			t.Errorf("%q: %q", command, got)
		}
	}
	if got := (cli.KubeFile{Path: "-x", Context: "a\nb"}).Kubectl(
		"kubectl get pods"); got != "kubectl --kubeconfig KUBECONFIG --context CONTEXT get pods" {
		t.Errorf("a word that no shell takes: %q", got)
	}
	d := &DoctorFlags{id: &credentials.Identity{Kubeconfig: "prod.yaml"}}
	f := doctor.Failed("", doctor.Do("See:", "kubectl get nodes").OrTrust("Or", "kubectl get nodes"), "x")
	const want = "kubectl --kubeconfig prod.yaml get nodes"
	if d.inTermsOfFlags(&f); f.Remedy.Commands[0] != want || f.Remedy.Or.Commands[0] != want {
		t.Errorf("%+v", f.Remedy)
	}
}
