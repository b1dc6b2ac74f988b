package main

import (
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/internal/doctor"
)

// Without --provider a ServiceAccount that names no cloud is examined like any other.
func TestDoctorWithoutProvider(t *testing.T) {
	w := newKubeWorld(t)
	w.create(t, "bare", nil)
	w.create(t, "misspelt", map[string]string{"eks.amazonaws.com/rolearn": role("tenant-a")})
	w.create(t, "azure", map[string]string{"azure.workload.identity/clientid": azureClient})
	w.create(t, "google", map[string]string{"iam.gke.io/gcp-serviceaccount": "a@b.iam.gserviceaccount.com"})
	for name, tc := range map[string]struct {
		account, class string
		says           []string
	}{
		"no annotation": {w.namespace + "/bare", "IdentityNotConfigured", []string{"eks.amazonaws.com/role-arn", "azure.workload.identity/client-id",
			"gcp.auth.fluxcd.io/workload-identity-provider", "--provider", "--overwrite", "role/ROLE_NAME"}},
		"key misspelt":        {w.namespace + "/misspelt", "IdentityNotConfigured", []string{" → aws", "misspelt annotation", "eks.amazonaws.com/rolearn"}},
		"key of Azure":        {w.namespace + "/azure", "IdentityNotConfigured", []string{" → azure", "misspelt annotation"}},
		"key of Google Cloud": {w.namespace + "/google", "IdentityNotConfigured", []string{" → gcp", "misspelt annotation"}},
		"namespace missing":   {"absent/app", "ServiceAccountNotFound", []string{"Namespace absent does not exist", "A ServiceAccount app exists in"}},
		"account missing":     {w.namespace + "/absent", "ServiceAccountNotFound", []string{"does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"doctor", "--kubeconfig=" + w.kubeconfig, "--service-account=" + tc.account}
			if f := parseReport(t, w.wid(t, "", append(args, "-o=json")...).stdout).Worst(); f.Check != "service-account" || f.Class != tc.class {
				t.Errorf("%+v", f)
			}
			r := w.wid(t, "", args...)
			for _, want := range tc.says {
				if r.code != doctor.ExitFail || !strings.Contains(r.stdout, want) || strings.Count(r.stdout, "\n") > 14 {
					t.Errorf("ends with %d, without %q:\n%s%s", r.code, want, r.stdout, r.stderr)
				}
			}
		})
	}
}

// What cannot be read is the headline, and not what the guessed provider would need.
func TestDoctorWithoutProviderAndCluster(t *testing.T) {
	w := newWorld(t)
	kubeconfig := filepath.Join(w.home, "unreachable.yaml")
	w.write(t, kubeconfig, kubeconfigThrough("https://127.0.0.1:1", ""))
	r := w.wid(t, "", "doctor", "--service-account=tenant-a/app", "--kubeconfig="+kubeconfig, "-o=json")
	if f := parseReport(t, r.stdout).Worst(); r.code != doctor.ExitUncertain || f.Check != "api-server" {
		t.Errorf("ends with %d: %+v", r.code, f)
	}
}

// A ServiceAccount that the login may not read says nothing of its annotations. The missing right is the headline.
func TestDoctorWithoutProviderAndRight(t *testing.T) {
	w := newKubeWorld(t)
	config := w.cluster.User(t, "guesser", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	kubeconfig := filepath.Join(w.home, "guesser.yaml")
	w.write(t, kubeconfig, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
	r := w.wid(t, "", "doctor", "--service-account="+w.namespace+"/app", "--kubeconfig="+kubeconfig, "-o=json")
	f := parseReport(t, r.stdout).Worst()
	if r.code != doctor.ExitFail || f.Check != "service-account" || f.Class != "RightMissing" || !strings.Contains(f.Message, "may not read") || !strings.Contains(f.Remedy.Text, "rights") {
		t.Errorf("ends with %d: %+v", r.code, f)
	}
}
