package doctorcmd

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestVerdicts(t *testing.T) {
	w := newEnvironment(t)
	for provider, audience := range map[string]string{"aws": aws.DefaultAudience, "azure": azure.DefaultAudience,
		"gcp": "//iam.googleapis.com/" + gcpProvider} {
		r := w.run(append(w.inHand(audience), "--provider="+provider)...)
		if r.code != doctor.ExitPass || !strings.HasPrefix(r.stdout, "✓ tenant-a/app → "+provider) ||
			strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: got %+v, want success", provider, r)
		}
	}
	w.cloud.AWS().RemoveRole(roleARN)
	report, r := w.report(append(w.inHand(aws.DefaultAudience), "--provider=aws")...)
	if f := report.Of("exchange"); r.code != doctor.ExitFail || f.Class != "TrustPolicyRefusesSubject" ||
		f.StatusCode != 403 || f.RequestID == "" || f.Remedy.Text == "" || len(f.Causes) == 0 {
		t.Errorf("got code %d and %+v, want TrustPolicyRefusesSubject", r.code, f)
	}
}

func TestOutputs(t *testing.T) {
	w := newEnvironment(t)
	flags := append(w.inHand(aws.DefaultAudience), "--provider=aws")
	want, _ := w.report(flags...)
	r, got := w.run(append(flags, "-o=yaml")...), &doctor.Report{}
	if err := yaml.UnmarshalStrict([]byte(r.stdout), got); err != nil || r.code != 0 || got.Result != want.Result ||
		len(got.Findings) != len(want.Findings) || !strings.HasPrefix(r.stdout, "findings:\n- check: service-account\n") {
		t.Errorf("got %+v, %v; want the report as YAML", r, err)
	}
	r = w.run(append(flags, "--verbose")...)
	for _, c := range identitydoctor.Checks() {
		if r.code != 0 || !strings.Contains(r.stdout, " "+c.ID+" ") {
			t.Errorf("got\n%s\nwant the check %s", r.stdout, c.ID)
		}
	}
	if r = w.run(flags...); strings.Count(r.stdout, "\n") != 2 || strings.Contains(r.stdout, "\x1b") {
		t.Errorf("got %q, want two lines without colours", r.stdout)
	}
	// A remedy names flags, not Go options.
	r = w.run(w.tokenFile(aws.DefaultAudience), "--verbose", "--annotation="+aws.RoleARNAnnotation+"="+roleARN)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "(--region)") || strings.Contains(r.stdout, "auth.With") {
		t.Errorf("got %+v, want the flag --region", r)
	}
}

// A mistake in the call is reported before anything is asked, with nothing on
// standard output.
func TestMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	w := newEnvironment(t)
	bad, unverified := w.write("bad", "{"), w.write("http", kubeconfigThrough("http://10.0.0.1:8080", ""))
	for name, args := range map[string][]string{
		"no provider":            {},
		"annotations of clouds":  w.inHand(azure.DefaultAudience),
		"annotation of no cloud": {w.tokenFile(azure.DefaultAudience), "--annotation=a=b"},
		"unknown provider":       {"--provider=other"},
		"unknown output":         {"--provider=aws", "-o=table"},
		"pod without namespace":  {"--provider=aws", "--pod=app"},
		"unreadable kubeconfig":  {"--provider=aws", "--kubeconfig=" + bad, "--service-account=a/b"},
		"no cluster":             {"--provider=aws", "--service-account=a/b"},
		"no ServiceAccount":      {"--provider=aws", "--kubeconfig=" + bad},
		"annotation and cluster": {"--provider=aws", "--kubeconfig=" + bad, "--token-file=" + bad, "--annotation=a=b"},
		"pod without a cluster":  {"--provider=aws", "--pod=a/b"},
		"malformed --resolve":    append(w.inHand(aws.DefaultAudience), "--provider=aws", "--resolve=example.com:1"),
		"policies of a stranger": {"--provider=aws", "--kubeconfig=" + unverified, "--service-account=a/b",
			"--show-policy"},
		"what generic trusts":      {"--trust-live", "--provider=generic"},
		"what Azure trusts":        {"--trust-live", "--provider=azure"},
		"unknown output of pods":   {"pod-identity", "--pod=a/b", "-o=table"},
		"no time":                  {"pod-identity", "--pod=a/b", "--timeout=0s"},
		"an argument":              {"pod-identity", "10.0.0.1:6443"},
		"no cluster name":          {"registration", "--hub-kubeconfig=" + bad},
		"neither hub nor cluster":  {"registration", "--cluster-name=a"},
		"unreadable hub":           {"registration", "--cluster-name=a", "--hub-kubeconfig=" + bad},
		"unknown context":          {"registration", "--cluster-name=a", "--hub-context=none"},
		"neither pod nor account":  {"pod-identity"},
		"a bare pod":               {"pod-identity", "--pod=a"},
		"two namespaces":           {"pod-identity", "--pod=a/b", "--service-account=c/d"},
		"unreadable kubeconfig, 2": {"pod-identity", "--pod=a/b", "--kubeconfig=" + bad},
		"unknown target":           {"nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(credentials.DepthVariable, "")
			if r := w.run(args...); r.code != doctor.ExitUsage || r.stdout != "" || r.err == "" {
				t.Errorf("got %+v, want code %d", r, doctor.ExitUsage)
			}
		})
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// The program asks AWS with the login that it finds, on request only. The
// command that widens the trust policy is printed on request.
func TestTrustLive(t *testing.T) {
	w := newEnvironment(t)
	id, key := w.cloud.AWS().AddUser(account, "engineer")
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", key)
	args := append(w.inHand(aws.DefaultAudience), "--provider=aws", "--verbose")
	if r := w.run(append(args, "--trust-live")...); !strings.Contains(r.stdout, "✓ trust-rule") || r.code != 0 {
		t.Errorf("got %+v, want that the rule is read", r)
	}
	before := len(w.cloud.Log())
	r := w.run(args...)
	for _, call := range w.cloud.Log()[before:] {
		if call.Service == "iam" {
			t.Errorf("it asks without being told to: %+v", call)
		}
	}
	if !strings.Contains(r.stdout, "- trust-rule") {
		t.Errorf("got %+v, want that the rule is not read", r)
	}
	w.cloud.AWS().SetRole(roleARN,
		cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
	for flag, want := range map[string]bool{"--show-policy": true, "--show-policy=false": false} {
		r := w.run(append(args, "--trust-live", flag)...)
		if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "[trust-rule, TrustPolicyRefusesSubject]") ||
			strings.Contains(r.stdout, "aws iam update-assume-role-policy") != want {
			t.Errorf("with %s: got %+v, want the command: %t", flag, r, want)
		}
	}
}

// The doctor calls a service by its name, and the service's own words are the
// headline.
func TestServices(t *testing.T) {
	w := newEnvironment(t)
	fake := w.cloud.Federation(cloudtest.FederationVault)
	fake.AddIssuer(w.issuer.URL(), w.issuer.HTTPClient())
	flags := []string{"--service=vault", "--service-address=https://vault.example", "--audience=ours",
		"--annotation=" + exchange.VaultRoleAnnotation + "=app", w.tokenFile("ours")}
	check := func(code int, want string) {
		t.Helper()
		if r := w.run(flags...); r.code != code || !strings.Contains(r.stdout, want) ||
			strings.Contains(r.stdout, "exchange.") {
			t.Errorf("got %+v, want code %d and %q", r, code, want)
		}
	}
	check(doctor.ExitFail, "  Vault refuses: no rule matches the subject")
	end := w.cloud.AddFault(cloudtest.Fault{Service: string(cloudtest.FederationVault), Status: 503, Message: "sealed"})
	check(doctor.ExitUncertain, "Vault fails (HTTP 503")
	end()
	fake.AddRule(cloudtest.FederationRule{Issuer: w.issuer.URL(), Subject: subjectOfApp, Audience: "ours",
		Parameters: map[string]string{"role": "app"}})
	check(doctor.ExitPass, "✓ tenant-a/app → Vault")
}

// A token in hand and a cluster: the ServiceAccount is read, and no token asked
// for.
func TestTokenAndCluster(t *testing.T) {
	w := newEnvironment(t)
	kubeconfig := w.cluster(apiServer(w.app))
	report, _ := w.report("--provider=aws", "--region=eu-central-1", w.tokenFile(aws.DefaultAudience),
		"--kubeconfig="+kubeconfig)
	for _, id := range []string{"service-account", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("got %+v, want %s", f, doctor.Pass)
		}
	}
}

// Without --provider the annotations name the cloud. If they name none, or if
// they cannot be read, that is the report.
func TestWithoutProvider(t *testing.T) {
	w := newEnvironment(t)
	account := func(name string, annotations ...string) *corev1.ServiceAccount {
		return testenv.ServiceAccount("tenant-a", name, annotations...)
	}
	kubeconfig := w.cluster(apiServer(account("bare"), account("named", aws.RoleARNAnnotation, roleARN),
		account("typo", "eks.amazonaws.com/rolearn", roleARN),
		account("empty", azure.ClientIDAnnotation, "", "team", "a"),
		account("both", aws.RoleARNAnnotation, roleARN, azure.ClientIDAnnotation, "x")))
	forbidden := w.write("forbidden.yaml", "")
	unreachable := w.write("unreachable.yaml", kubeconfigThrough("https://127.0.0.1:1", ""))
	expired := w.write("expired.yaml", strings.Replace(kubeconfigThrough("https://127.0.0.1:1", ""), `"token":"secret"`,
		`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"false","interactiveMode":"Never"}`, 1))
	for name, tc := range map[string]struct {
		flag, kubeconfig string
		code             int
		class            string
		says             []string
	}{
		"no annotation": {"--service-account=tenant-a/bare", kubeconfig, doctor.ExitFail, "IdentityNotConfigured",
			[]string{"{annotations none}", "eks.amazonaws.com/role-arn=arn:", "azure.workload.identity/client-id=",
				"workload-identity-provider=", "--provider"}},
		"a misspelt annotation": {"--service-account=tenant-a/typo", kubeconfig, doctor.ExitFail, "IdentityNotConfigured",
			[]string{`"eks.amazonaws.com/rolearn": "` + roleARN,
				fmt.Sprintf("kubectl --kubeconfig %s annotate sa -n tenant-a typo --overwrite ", kubeconfig)}},
		"an empty annotation": {"--service-account=tenant-a/empty", kubeconfig, doctor.ExitFail, "IdentityNotConfigured",
			[]string{`"azure.workload.identity/client-id": ""`, `"team": "a"`, "azure.workload.identity/client-id=CLIENT_ID"}},
		"no ServiceAccount": {"--service-account=tenant-a/absent", kubeconfig, doctor.ExitFail, "ServiceAccountNotFound",
			[]string{"ServiceAccount tenant-a/absent does not exist", "config get-contexts"}},
		"no pod": {"--pod=tenant-a/absent", kubeconfig, doctor.ExitFail, "IdentityNotConfigured",
			[]string{"Pod tenant-a/absent does not exist", "get pods -n tenant-a"}},
		"no right to read it": {"--service-account=tenant-a/app", forbidden, doctor.ExitFail, "RightMissing",
			[]string{"cannot get resource", "create rolebinding"}},
		"no answer": {"--service-account=tenant-a/app", unreachable, doctor.ExitUncertain, "",
			[]string{"connection refused", "get sa -n tenant-a app"}},
		"a login that has expired": {"--service-account=tenant-a/app", expired, doctor.ExitUncertain, "",
			[]string{"exit code 1", "kubectl --kubeconfig " + expired + " get sa -n tenant-a app"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &environment{t: t, cloud: w.cloud, issuer: w.issuer, app: w.app, dir: t.TempDir()}
			t.Setenv(credentials.DepthVariable, "")
			if tc.kubeconfig == forbidden {
				tc.kubeconfig = w.cluster(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					refuse(rw, http.StatusForbidden, "Forbidden",
						`serviceaccounts "app" is forbidden: User "jane" cannot get resource "serviceaccounts"`)
				}))
			}
			report, r := w.report("--kubeconfig="+tc.kubeconfig, tc.flag)
			f := report.Worst()
			if r.code != tc.code || f.Class != tc.class || f.Check != "service-account" {
				t.Errorf("got code %d and %+v, want code %d and %q", r.code, f, tc.code, tc.class)
			}
			for _, want := range tc.says {
				if text := fmt.Sprint(f.Message, f.Observed, f.Expected, f.Details, f.Remedy.Text,
					f.Remedy.Commands); !strings.Contains(text, want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
		})
	}
	if r := w.run("--kubeconfig="+kubeconfig, "--service-account=tenant-a/named"); !strings.Contains(r.stdout,
		"tenant-a/named → aws") {
		t.Errorf("got %+v, want the provider aws", r)
	}
	if r := w.run("--kubeconfig="+kubeconfig, "--service-account=tenant-a/both"); r.code != doctor.ExitUsage ||
		r.stdout != "" || !strings.Contains(r.err, "pick one with --provider") {
		t.Errorf("got %+v, want --provider", r)
	}
}

// A pod names its ServiceAccount.
func TestPodNamesItsServiceAccount(t *testing.T) {
	w := newEnvironment(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app-0"},
		Spec: corev1.PodSpec{ServiceAccountName: "app"}}
	report, _ := w.report("--provider=aws", "--region=eu-central-1", "--pod=tenant-a/app-0",
		"--kubeconfig="+w.cluster(apiServer(w.app, pod)))
	if f := report.Of("service-account"); f.Result != doctor.Pass || !strings.Contains(report.Subject, "tenant-a/app") {
		t.Errorf("got %+v of %s, want tenant-a/app", f, report.Subject)
	}
}

// silent accepts connections and never answers.
func silent(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// When the time is over there is a report. The root command has a login that
// hangs, because it stays behind in this process.
func TestOutOfTime(t *testing.T) {
	w := newEnvironment(t)
	kubeconfig := w.write("silent.yaml", kubeconfigThrough("https://"+silent(t), ""))
	for name, args := range map[string][]string{
		"cluster": {"--provider=aws", "--service-account=tenant-a/app", "--kubeconfig=" + kubeconfig},
		"registration": {"registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + kubeconfig,
			"--kubeconfig=" + kubeconfig},
		"pod identity": {"pod-identity", "--service-account=tenant-a/app", "--kubeconfig=" + kubeconfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(credentials.DepthVariable, "")
			start := time.Now()
			r := w.run(append(args, "--timeout=200ms")...)
			if took := time.Since(start); r.code != doctor.ExitUncertain || !strings.HasPrefix(r.stdout, "? ") ||
				took > 30*time.Second {
				t.Errorf("got %+v after %s, want a report with code %d", r, took, doctor.ExitUncertain)
			}
		})
	}
}

// No report holds what a plugin of a kubeconfig prints, or a user's password,
// although the API server repeats it.
func TestReportsKeepWhatIsEchoed(t *testing.T) {
	const secret, password = "exec-secret-token-0123456789abcdef", "hunter2-pass1"
	w := newEnvironment(t)
	for name, user := range map[string]string{
		"token": `"token":"` + secret + `"`,
		"plugin": `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"echo","interactiveMode":"Never","args":["` +
			`{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"` +
			secret + `\"}}"]}`,
		"password": `"username":"joe","password":"` + password + `"`,
	} {
		for target, args := range map[string][]string{
			"identity":     {"--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app", "--pod=tenant-a/p"},
			"pod identity": {"pod-identity", "--service-account=tenant-a/app"},
			"registration": {"registration", "--cluster-name=cluster1"},
		} {
			for _, output := range []string{"text", "json"} {
				t.Run(name+", "+target+", "+output, func(t *testing.T) {
					w := &environment{t: t, cloud: w.cloud, issuer: w.issuer, dir: t.TempDir()}
					path := w.cluster(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						refuse(rw, http.StatusForbidden, "Forbidden", "you sent "+r.Header.Get("Authorization"))
					}))
					writeKubeconfig(t, path, strings.Replace(read(t, path), `"token":"secret"`, user, 1))
					if target == "registration" {
						args = append(args, "--hub-kubeconfig="+path)
					}
					r := w.run(append(args, "--kubeconfig="+path, "--output="+output, "--verbose")...)
					all := r.stdout + r.stderr + r.err
					if strings.Contains(all, secret[:18]) || strings.Contains(all, password) || r.stdout == "" ||
						strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("joe:" + password))[:12]) {
						t.Errorf("got %+v, want a report without the login", r)
					}
					if target == "identity" && !strings.Contains(all, "[redacted]") {
						t.Errorf("got %+v, want the server's words", r)
					}
				})
			}
		}
	}
}
