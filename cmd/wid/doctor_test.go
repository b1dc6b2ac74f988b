package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// doctorOf runs wid doctor in this process, with an issuer that strangers can read.
func (w *world) doctorOf(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	a := &app{httpClient: w.cloud.Client()}
	root := a.newRoot()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "doctor" {
			root.RemoveCommand(cmd)
		}
	}
	root.AddCommand(a.doctorCommand(&doctorFlags{issuerClient: w.issuer.HTTPClient()}))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"doctor"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		code = exitCode(t.Context(), err)
	}
	return out.String(), code
}

func parseReport(t *testing.T, stdout string) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(stdout), report); err != nil || len(report.Findings) != len(doctor.Checks()) {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	return report
}

// The three verdicts, and the codes that programs see.
func TestDoctorExitCodes(t *testing.T) {
	w := newWorld(t)
	w.env = nil
	for _, provider := range []string{"aws", "azure", "gcp"} {
		audience := map[string]string{"aws": "sts.amazonaws.com", "azure": azure.DefaultAudience, "gcp": "//iam.googleapis.com/" + gcpProvider}[provider]
		flags := append(annotationFlags(), w.tokenFile(t, audience), "--region=eu-central-1", "--provider="+provider)
		// Without a cluster and without rights in the cloud something is unknown.
		stdout, code := w.doctorOf(t, flags...)
		if code != doctor.ExitUncertain || !strings.Contains(stdout, "21 PASS    exchange") || strings.Contains(stdout, "eyJ") {
			t.Errorf("%s ends with %d:\n%s", provider, code, stdout)
		}
		stdout, code = w.doctorOf(t, append(flags, "--skip=issuer-tls,api-server,service-account,cluster-issuer,token-review,trust-anchor,trust-rule,identity")...)
		if code != doctor.ExitPass {
			t.Errorf("%s ends with %d:\n%s", provider, code, stdout)
		}
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	stdout, code := w.doctorOf(t, append(w.inHand(t), "--provider=aws", "-o=json")...)
	report := parseReport(t, stdout)
	if f := report.Of("exchange"); code != doctor.ExitFail || f.Class != "A1" || f.StatusCode != 403 || f.RequestID == "" || f.Remedy == "" || len(f.Causes) == 0 {
		t.Errorf("ends with %d: %+v", code, f)
	}
}

// Findings speak of flags, not of options of Go.
func TestDoctorSpeaksOfFlags(t *testing.T) {
	w := newWorld(t)
	w.env = nil
	t.Setenv("AWS_REGION", "")
	stdout, code := w.doctorOf(t, append(annotationFlags(), w.tokenFile(t, "sts.amazonaws.com"), "--provider=aws")...)
	if code != doctor.ExitFail || !strings.Contains(stdout, "--region") || strings.Contains(stdout, "WithSTSRegion") {
		t.Errorf("ends with %d:\n%s", code, stdout)
	}
}

// What is wrong with the call itself is said before anything is asked, with nothing on standard output.
func TestDoctorMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := filepath.Join(w.home, "bad")
	w.write(t, bad, "{")
	for name, args := range map[string][]string{
		"no provider":           {},
		"unknown provider":      {"--provider=other"},
		"unknown output":        {"--provider=aws", "-o=yaml"},
		"unknown flag":          {"--provider=aws", "--nonsense"},
		"unknown check":         {"--provider=aws", "--skip=nonsense"},
		"pod without namespace": {"--provider=aws", "--pod=app"},
		"container without pod": {"--provider=aws", "--container=app"},
		"unreadable kubeconfig": {"--provider=aws", "--kubeconfig=" + bad, "--service-account=a/b"},
		"no cluster":            {"--provider=aws", "--service-account=a/b"},
		"nobody":                {"--provider=aws", "--kubeconfig=" + bad},
		"annotation, cluster":   {"--provider=aws", "--kubeconfig=" + bad, "--token-file=" + bad, "--annotation=a=b"},
		"a pod of no cluster":   {"--provider=aws", "--pod=a/b"},
		"no trust file":         {"--provider=aws", "--trust-file=" + bad + "x"},
		"bad trust file":        {"--provider=aws", "--trust-file=" + bad},
		"no key file":           {"--provider=aws", "--jwks-file=" + bad + "x"},
	} {
		if r := w.wid(t, "", append([]string{"doctor"}, args...)...); r.code != doctor.ExitUsage || r.stdout != "" || r.stderr == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// From a workstation, against a real API server: who lacks a right is told which, and applying what is told mends it.
func TestDoctorRemedyOfRBAC(t *testing.T) {
	w := newKubeWorld(t)
	config := w.cluster.User(t, "diagnoser", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}})
	kubeconfig := filepath.Join(w.home, "diagnoser.yaml")
	w.write(t, kubeconfig, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
	args := []string{"doctor", "--provider=aws", "--kubeconfig=" + kubeconfig, "--service-account=" + w.namespace + "/app", "--region=eu-central-1", "-o=json"}
	r := w.wid(t, "", args...)
	report := parseReport(t, r.stdout)
	first := report.Worst()
	if r.code != doctor.ExitFail || first.ID != "token-request" || first.Class != "K1" {
		t.Fatalf("%+v\n%s", first, r.stdout)
	}
	if !strings.HasPrefix(first.Remedy, "if it is you who creates its tokens") {
		t.Errorf("it does not say for whom the Role is: %s", first.Remedy)
	}
	for line := range strings.SplitSeq(first.Remedy, "\n") {
		if !strings.HasPrefix(line, "kubectl ") {
			continue
		}
		kubectl := exec.CommandContext(t.Context(), "bash", "-euc", line) //nolint:gosec // what the doctor says
		kubectl.Env = append(w.env, "KUBECONFIG="+w.kubeconfig)
		if out, err := kubectl.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	r = w.wid(t, "", args...)
	report = parseReport(t, r.stdout)
	for id, want := range map[string]doctor.Result{"token-request": doctor.Pass, "exchange": doctor.Pass, "identity": doctor.Pass,
		"api-server": doctor.Pass, "discovery": doctor.Pass, "keys": doctor.Pass, "token-review": doctor.Unknown, "trust-rule": doctor.Skip} {
		if f := report.Of(id); f.Result != want {
			t.Errorf("%+v instead of %s", f, want)
		}
	}
	if r.code != doctor.ExitUncertain {
		t.Errorf("ends with %d", r.code)
	}
}
