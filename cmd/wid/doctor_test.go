package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
)

func parseReport(t *testing.T, stdout string) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(stdout), report); err != nil || len(report.Findings) != len(identitydoctor.Checks()) {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	return report
}

// Against a real API server, a person without the right to create tokens is
// told which right is missing. Granting it corrects the set-up. A healthy
// report has two lines, with the cluster.
func TestDoctorRemedyOfRBAC(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	examine := func(user string, rules ...rbacv1.PolicyRule) (flags []string, r result, first *doctor.Finding) {
		config, file := w.cluster.User(t, user+" of "+w.namespace, w.namespace, rules...), filepath.Join(w.home, user+".yaml")
		w.write(t, file, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
		flags = append([]string{"--provider=aws", "--kubeconfig=" + file}, w.app()[1:]...)
		r = w.wid(t, "", append([]string{"doctor", "-o=json"}, flags...)...)
		return flags, r, parseReport(t, r.stdout).Worst()
	}
	if _, r, first := examine("stranger"); first.Check != "service-account" || first.Class != "RightMissing" {
		t.Errorf("without any right it ends with %d: %s", r.code, r.stdout)
	}
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}}
	flags, r, first := examine("engineer", reads)
	if r := w.wid(t, "", append([]string{"token"}, flags...)...); r.code != cli.ExitDenied || r.stdout != "" {
		t.Errorf("wid token ends with %d: %s", r.code, r.stderr)
	}
	if r.code != doctor.ExitFail || first.Check != "token-request" || first.Class != "RightMissing" ||
		len(first.Remedy.Commands) == 0 {
		t.Fatalf("ends with %d: %s", r.code, r.stdout)
	}
	for _, command := range first.Remedy.Commands {
		if !strings.HasPrefix(command, "kubectl --kubeconfig ADMIN_KUBECONFIG create ") ||
			!strings.HasPrefix(first.Remedy.Text, "As an administrator: ") {
			t.Errorf("the command uses the login that lacks the right: %s %s", first.Remedy.Text, command)
		}
		kubectl := exec.CommandContext(t.Context(), "bash", "-euc",
			strings.ReplaceAll(command, "ADMIN_KUBECONFIG", w.kubeconfig)) //nolint:gosec // what the doctor says
		kubectl.Env = append(w.env, "HOME="+w.home)
		if out, err := kubectl.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	r = eventually(t, func() result { // the API server learns of rights with a delay
		r := w.wid(t, "", append([]string{"doctor", "-o=json"}, flags...)...)
		if f := parseReport(t, r.stdout).Of("exchange"); f.Result == doctor.Pass {
			r.code = 0
		}
		return r
	})
	report := parseReport(t, r.stdout)
	for id, want := range map[string]doctor.Result{"token-request": doctor.Pass, "exchange": doctor.Pass,
		"trust-rule": doctor.Skip} {
		if f := report.Of(id); f.Result != want {
			t.Errorf("%+v instead of %s", f, want)
		}
	}
	if r = w.wid(t, "", append([]string{"doctor", "--provider=generic", "--audience=vault"},
		w.app()[:2]...)...); r.code != 0 || strings.Count(r.stdout, "\n") != 2 ||
		!strings.Contains(r.stdout, "/app → generic, cluster envtest (https://") {
		t.Errorf("ends with %d:\n%s", r.code, r.stdout)
	}
}

// logins is the environment of an engineer who may read everything in AWS.
func (w *environment) logins(t *testing.T) []string {
	t.Helper()
	id, key := w.cloud.AWS().AddUser(account, "engineer")
	w.write(t, filepath.Join(w.home, ".aws", "credentials"),
		"[engineer]\naws_access_key_id = "+id+"\naws_secret_access_key = "+key+"\n")
	return []string{"AWS_PROFILE=engineer"}
}

// A login that hangs ends with the time of the report, and with the program.
func TestDoctorLeavesALoginThatHangs(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	kubeconfig := filepath.Join(w.home, "login.yaml")
	w.write(t, kubeconfig, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c,
		user: u}}], clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {exec: {
		apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ["9"], interactiveMode: Never}}}]}`)
	r := w.wid(t, "", "doctor", "--provider=aws", "--service-account=tenant-a/app", "--kubeconfig="+kubeconfig,
		"--timeout=200ms")
	if r.code != doctor.ExitUncertain || !strings.HasPrefix(r.stdout, "? ") {
		t.Errorf("got %+v, want a report with code %d", r, doctor.ExitUncertain)
	}
}
