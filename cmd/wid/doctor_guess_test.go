package main

import (
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// Without --provider the annotations name the cloud. If there are none, or if they cannot be read, nothing is examined.
func TestDoctorWithoutProvider(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t)
	w.create(t, "bare", nil)
	w.create(t, "named", map[string]string{"eks.amazonaws.com/role-arn": role("tenant-a")})
	r := w.wid(t, "", "doctor", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/named")
	if !strings.Contains(r.stdout, w.namespace+"/named → aws") {
		t.Errorf("%+v", r)
	}
	config := w.cluster.User(t, "guesser", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	forbidden, unreachable := filepath.Join(w.home, "guesser.yaml"), filepath.Join(w.home, "unreachable.yaml")
	w.write(t, forbidden, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
	w.write(t, unreachable, kubeconfigThrough("https://127.0.0.1:1", ""))
	for name, tc := range map[string]struct{ account, kubeconfig, says string }{
		"no annotation":       {w.namespace + "/bare", w.kubeconfig, "has no annotations: annotate it, or name the provider with --provider"},
		"no ServiceAccount":   {w.namespace + "/absent", w.kubeconfig, `serviceaccounts "absent" not found`},
		"no right to read it": {w.namespace + "/app", forbidden, "cannot get resource"},
		"no answer":           {"tenant-a/app", unreachable, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", "doctor", "--kubeconfig="+tc.kubeconfig, "--service-account="+tc.account)
			if r.code != doctor.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, tc.says) || !strings.Contains(r.stderr, "--provider") {
				t.Errorf("%+v", r)
			}
		})
	}
}
