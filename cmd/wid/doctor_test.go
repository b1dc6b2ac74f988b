package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctorcmd"
)

// doctorOf runs wid doctor in this process, with an issuer that anonymous
// clients can read.
func (w *environment) doctorOf(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	a := &credentials.App{HTTPClient: w.cloud.Client()}
	root := rootOf(a)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "doctor" {
			root.RemoveCommand(cmd)
		}
	}
	root.AddCommand(doctorcmd.DoctorCommand(a,
		&doctorcmd.DoctorFlags{Config: identitydoctor.Config{IssuerClient: w.issuer.HTTPClient()}}))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"doctor"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		code = cli.ExitCode(t.Context(), err)
	}
	return out.String(), code
}

func parseReport(t *testing.T, stdout string) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(stdout), report); err != nil || len(report.Findings) != len(identitydoctor.Checks()) {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	return report
}

// claimsOf leaves into as it is if there are no claims.
func claimsOf(jwt string, into any) {
	if parts := strings.Split(jwt, "."); len(parts) == 3 {
		if content, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(content, into)
		}
	}
}

func TestDoctorExitCodes(t *testing.T) {
	w := newEnvironment(t)
	w.env = nil
	for _, provider := range []string{"aws", "azure", "gcp"} {
		t.Run(provider, func(t *testing.T) {
			audience := map[string]string{"aws": "sts.amazonaws.com", "azure": azure.DefaultAudience,
				"gcp": "//iam.googleapis.com/" + gcpProvider}[provider]
			flags := append(annotationFlags(), w.tokenFile(t, audience), "--region=eu-central-1", "--provider="+provider)
			stdout, code := w.doctorOf(t, append(flags, "-o=json")...)
			if f := parseReport(t, stdout).Of("exchange"); code != doctor.ExitPass || f.Result != doctor.Pass ||
				strings.Contains(stdout, "eyJ") {
				t.Errorf("without a cluster it ends with %d:\n%s", code, stdout)
			}
			stdout, code = w.doctorOf(t, flags...)
			if lines := strings.Count(stdout, "\n"); code != doctor.ExitPass || provider == "aws" && lines != 2 ||
				!strings.HasPrefix(stdout, "✓ tenant-a/app → "+provider) {
				t.Errorf("healthy: ends with %d, %d lines:\n%s", code, lines, stdout)
			}
		})
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	stdout, code := w.doctorOf(t, append(w.inHand(t), "--provider=aws", "-o=json")...)
	if f := parseReport(t, stdout).Of("exchange"); code != doctor.ExitFail || f.Class != "TrustPolicyRefusesSubject" ||
		f.StatusCode != 403 || f.RequestID == "" || f.Remedy.Text == "" || len(f.Causes) == 0 {
		t.Errorf("ends with %d: %+v", code, f)
	}
}

func TestDoctorOutputs(t *testing.T) {
	w := newEnvironment(t)
	w.env = nil
	flags := append(w.inHand(t), "--provider=aws")
	stdout, _ := w.doctorOf(t, append(flags, "-o=json")...)
	want := parseReport(t, stdout)
	stdout, code := w.doctorOf(t, append(flags, "-o=yaml")...)
	got := &doctor.Report{}
	if err := yaml.UnmarshalStrict([]byte(stdout), got); err != nil || code != 0 || got.Result != want.Result ||
		len(got.Findings) != len(want.Findings) || !strings.HasPrefix(stdout, "findings:\n- check: service-account\n") {
		t.Errorf("%d, %v:\n%s", code, err, stdout)
	}
	stdout, code = w.doctorOf(t, append(flags, "--verbose")...)
	for _, c := range identitydoctor.Checks() {
		if code != 0 || !strings.Contains(stdout, " "+c.ID+" ") {
			t.Errorf("--verbose does not list %s:\n%s", c.ID, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Errorf("colours without a terminal: %q", stdout)
	}
}

// The only cloud in the annotations is the provider.
func TestDoctorSpeaksOfFlags(t *testing.T) {
	w := newEnvironment(t)
	w.env = nil
	t.Setenv("AWS_REGION", "")
	stdout, code := w.doctorOf(t, w.tokenFile(t, "sts.amazonaws.com"), "--verbose", "--annotation=example.com/owner=a",
		"--annotation=eks.amazonaws.com/role-arn="+role("tenant-a"))
	if code != doctor.ExitFail || !strings.Contains(stdout, "tenant-a/app → aws") ||
		!strings.Contains(stdout, "(--region)") || strings.Contains(stdout, "auth.With") {
		t.Errorf("ends with %d:\n%s", code, stdout)
	}
}

// A mistake in the call is reported before anything is asked, with nothing on
// standard output.
func TestDoctorMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	bad := filepath.Join(w.home, "bad")
	w.write(t, bad, "{")
	for name, args := range map[string][]string{
		"no provider":              {},
		"annotations of clouds":    append(annotationFlags(), w.tokenFile(t, azure.DefaultAudience)),
		"annotation of no cloud":   {w.tokenFile(t, azure.DefaultAudience), "--annotation=a=b"},
		"unknown provider":         {"--provider=other"},
		"unknown output":           {"--provider=aws", "-o=table"},
		"unknown flag":             {"--provider=aws", "--nonsense"},
		"pod without namespace":    {"--provider=aws", "--pod=app"},
		"unreadable kubeconfig":    {"--provider=aws", "--kubeconfig=" + bad, "--service-account=a/b"},
		"no cluster":               {"--provider=aws", "--service-account=a/b"},
		"no ServiceAccount":        {"--provider=aws", "--kubeconfig=" + bad},
		"annotation and cluster":   {"--provider=aws", "--kubeconfig=" + bad, "--token-file=" + bad, "--annotation=a=b"},
		"pod without a cluster":    {"--provider=aws", "--pod=a/b"},
		"unknown output of it":     {"pod-identity", "--pod=a/b", "-o=table"},
		"no time":                  {"pod-identity", "--pod=a/b", "--timeout=0s"},
		"an argument":              {"pod-identity", "10.0.0.1:6443"},
		"no cluster name":          {"registration", "--hub-kubeconfig=" + bad},
		"neither hub nor cluster":  {"registration", "--cluster-name=a"},
		"unreadable hub":           {"registration", "--cluster-name=a", "--hub-kubeconfig=" + bad},
		"unknown context":          {"registration", "--cluster-name=a", "--hub-context=none"},
		"neither pod nor account":  {"pod-identity"},
		"pod without a namespace":  {"pod-identity", "--pod=a"},
		"two namespaces":           {"pod-identity", "--pod=a/b", "--service-account=c/d"},
		"unreadable kubeconfig, 2": {"pod-identity", "--pod=a/b", "--kubeconfig=" + bad},
		"unknown target":           {"nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := w.wid(t, "", append([]string{"doctor"}, args...)...); r.code != doctor.ExitUsage || r.stdout != "" ||
				r.stderr == "" {
				t.Errorf("%+v", r)
			}
		})
	}
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

// The program asks AWS with the login that it finds, on request only.
func TestDoctorTrustLive(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	logins := w.logins(t)
	args := append(annotationFlags(), "doctor", w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1",
		"--provider=aws", "--verbose")
	r := w.exec(t, "", logins, "wid", append(args[:len(args):len(args)], "--trust-live")...)
	if !strings.Contains(r.stdout, "✓ trust-rule") || strings.Contains(r.stdout, "✗ trust") ||
		strings.Contains(r.stdout, "eyJ") {
		t.Errorf("%+v", r)
	}
	before := len(w.cloud.Log())
	r = w.exec(t, "", logins, "wid", args...)
	for _, call := range w.cloud.Log()[before:] {
		if call.Service == "iam" {
			t.Errorf("asked without being told to: %+v", call)
		}
	}
	if !strings.Contains(r.stdout, "- trust-rule") || strings.Contains(r.stdout, "read as") {
		t.Errorf("%+v", r)
	}
}

// Without a login, or with one in another account, the report says how to log
// in.
func TestDoctorWithoutLogin(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	elsewhere, secret := w.cloud.AWS().AddUser("210987654321", "engineer")
	for _, tc := range []struct {
		text string
		env  []string
	}{
		{"no usable login for AWS", nil},
		{"not in account " + account, []string{"AWS_ACCESS_KEY_ID=" + elsewhere, "AWS_SECRET_ACCESS_KEY=" + secret}},
		{"aws sso login", []string{"AWS_PROFILE=typo"}},
	} {
		args := append([]string{"doctor", "--provider=aws", "--trust-live", "--region=eu-central-1", "-o=json",
			w.tokenFile(t, aws.DefaultAudience)}, annotationFlags()...)
		r := w.exec(t, "", tc.env, "wid", args...)
		if f := parseReport(t, r.stdout).Of("trust-rule"); f.Result != doctor.Unknown ||
			!strings.Contains(r.stdout, tc.text) || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", tc.text, r)
		}
	}
}

// The role's trust policy explains the refusal. The command that widens it is
// printed on request.
func TestDoctorTrustRule(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	logins := w.logins(t)
	w.cloud.AWS().SetRole(role("tenant-a"),
		cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
	args := append([]string{"doctor", "--provider=aws", "--trust-live"}, w.inHand(t)...)
	r := w.exec(t, "", logins, "wid", args...)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "[trust-rule, TrustPolicyRefusesSubject]") ||
		!strings.Contains(r.stdout, "policy  system:serviceaccount:tenant-b:app\n") ||
		!strings.Contains(r.stdout, "see: wid doctor … --show-policy\n") ||
		strings.Contains(r.stdout, "aws iam update-assume-role-policy") || strings.Count(r.stdout, "\n") > 14 {
		t.Errorf("%+v", r)
	}
	if r = w.exec(t, "", logins, "wid", append(args, "--show-policy")...); !strings.Contains(r.stdout,
		"aws iam update-assume-role-policy") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorTrustLiveMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for _, provider := range []string{"generic", "azure", "gcp"} {
		r := w.wid(t, "", "doctor", "--trust-live", "--provider="+provider)
		if r.code != doctor.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "--trust-live") {
			t.Errorf("%s: %+v", provider, r)
		}
	}
}

// The doctor calls a service by its name, and the service's own words are the
// headline.
func TestDoctorOfServices(t *testing.T) {
	w := newEnvironment(t)
	w.env = nil // the doctor runs in this process
	for name, tc := range map[string]struct {
		fake       cloudtest.FederationService
		flags      []string
		parameters map[string]string
	}{
		"Vault": {cloudtest.FederationVault,
			[]string{"--service=vault", "--service-address=https://vault.example",
				"--annotation=" + exchange.VaultRoleAnnotation + "=app"},
			map[string]string{"role": "app"}},
		"OpenAI": {cloudtest.FederationOpenAI, []string{"--service=openai", "--service-parameter=identity_provider_id=idp-1",
			"--annotation=" + exchange.OpenAIServiceAccountAnnotation + "=sa-1"},
			map[string]string{"identity_provider_id": "idp-1", "service_account_id": "sa-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := w.cloud.Federation(tc.fake)
			fake.AddIssuer(w.issuer.URL(), w.issuer.HTTPClient())
			flags := append(tc.flags, "--audience=ours", w.tokenFile(t, "ours"))
			stdout, code := w.doctorOf(t, flags...)
			if code != doctor.ExitFail || !strings.Contains(stdout, "tenant-a/app → "+name+"\n") ||
				!strings.Contains(stdout, "  "+name+" refuses: no rule matches the subject") ||
				strings.Contains(stdout, "exchange.") {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
			end := w.cloud.AddFault(cloudtest.Fault{Service: string(tc.fake), Status: 503, Message: "sealed"})
			if stdout, code = w.doctorOf(t, flags...); code != doctor.ExitUncertain ||
				!strings.Contains(stdout, name+" fails (HTTP 503") {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
			end()
			fake.AddRule(cloudtest.FederationRule{Issuer: w.issuer.URL(), Subject: subjectOfApp, Audience: "ours",
				Parameters: tc.parameters})
			if stdout, code = w.doctorOf(t, flags...); code != doctor.ExitPass ||
				!strings.HasPrefix(stdout, "✓ tenant-a/app → "+name) {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
		})
	}
}
