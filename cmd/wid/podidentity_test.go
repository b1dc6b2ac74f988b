package main

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

const (
	podServerRole = "arn:aws:iam::123456789012:role/iam-credentials-provider"
	podRole       = "arn:aws:iam::123456789012:role/team-a/reporting"
)

const podBinding = `
apiVersion: iam.aws.k8s.io/v1alpha1
kind: IAMBinding
metadata: {namespace: default, name: reporting}
spec:
  aws: {roleArn: "` + podRole + `", externalID: ext-1}
  serviceAccountRef: {name: app}
`

func wantedTrustPolicy(t *testing.T) string {
	t.Helper()
	b := &v1alpha1.IAMBinding{}
	if err := yaml.UnmarshalStrict([]byte(podBinding), b); err != nil {
		t.Fatal(err)
	}
	policy, err := server.TrustPolicy("prod", podServerRole, b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(policy))
}

func TestTrustPolicyOfBinding(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	args := []string{"pod-identity", "trust-policy", "--kubeconfig=" + w.kubeconfig, "--cluster=prod",
		"--server-role=" + podServerRole}
	if r := w.exec(t, "", nil, "wid", append(args, "reporting")...); r.code != cli.ExitMisconfigured ||
		!strings.Contains(r.stderr, "has no IAMBindings") {
		t.Errorf("without the CustomResourceDefinition: %+v", r)
	}
	crd, object := filepath.Join(w.home, "crd.yaml"), filepath.Join(w.home, "binding.yaml")
	w.write(t, crd, v1alpha1.BindingCRD())
	w.write(t, object, podBinding)
	// TestDoctorPodIdentity needs a cluster without
	t.Cleanup(func() { kubetest.Delete(t, w.cluster.Client(), v1alpha1.BindingCRD()) })
	kubectl := []string{args[2], "create", "-f"}
	if r := w.exec(t, "", nil, "kubectl", append(kubectl, crd)...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := eventually(t, func() result {
		return w.exec(t, "", nil, "kubectl", append(kubectl, object)...)
	}); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := w.exec(t, "", nil, "wid", append(args, "-n", "default", "reporting")...); r.code != 0 ||
		strings.TrimSpace(r.stdout) != wantedTrustPolicy(t) {
		t.Errorf("%+v", r)
	}
}
