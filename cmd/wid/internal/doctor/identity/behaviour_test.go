package identity_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
)

// expect is what a report says of one check.
type expect struct {
	name, provider string
	setUp          func(w *environment)
	check          string
	result         doctor.Result
	says           string
	exit           int
}

func TestFindings(t *testing.T) {
	noEnv := func(_ *environment, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }
	for _, tt := range []expect{
		{"pod as the webhook leaves it", "aws", withPod(func(*environment, *corev1.Pod) {}), "pod", doctor.Pass,
			"the identity", 0},
		{"pod of Azure as the webhook leaves it", "azure", withPod(func(*environment, *corev1.Pod) {}), "pod", doctor.Pass,
			"the identity", 0},
		{"pod alone names the ServiceAccount", "aws", withPod(func(w *environment, _ *corev1.Pod) {
			w.config.ServiceAccount = client.ObjectKey{}
		}), "exchange", doctor.Pass, "role tenant-a", 0},
		{"sidecar without the identity", "aws", withPod(func(_ *environment, pod *corev1.Pod) {
			pod.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "i"}}, pod.Spec.Containers...)
		}), "pod", doctor.Pass, "the identity", 0},
		{"pod of Google", "gcp", withPod(func(*environment, *corev1.Pod) {}), "pod", doctor.Pass, "do not matter", 0},
		{"EKS Pod Identity needs no annotation", "aws",
			withPod(all(noEnv, env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
				func(w *environment, _ *corev1.Pod) {
					delete(w.account.Annotations, aws.RoleARNAnnotation)
				})), "exchange", doctor.Skip, "agent", 0},
		{"static keys of an optional Secret", "aws", withPod(ref("AWS_ACCESS_KEY_ID", true)), "pod", doctor.Warn, "hides", 3},
		{"the kubelet creates the tokens of a pod", "aws", withPod(func(w *environment, _ *corev1.Pod) {
			w.user.mayNot = []string{"serviceaccounts/token"}
		}), "token-request", doctor.Unknown, "may not create", 3},
		{"inside of a healthy pod", "aws", inPod(func(*environment) {}), "exchange", doctor.Pass, "role tenant-a", 0},
		{"inside of a healthy pod of Azure", "azure", inPod(func(*environment) {}), "exchange", doctor.Pass, azureClient, 0},
		{"a given token needs no login", "aws", func(w *environment) {
			w.config.Annotations = w.account.Annotations
			w.write(w.sign(nil))
			w.user.name = ""
		}, "exchange", doctor.Pass, "role tenant-a", 0},
		{"a given token without annotations", "aws", func(w *environment) {
			w.write(w.sign(nil))
			w.withoutCluster = true
		}, "service-account", doctor.Unknown, "unknown", 3},
		{"no cluster and no token, no cloud", "generic", func(w *environment) {
			w.withoutCluster = true
		}, "token-request", doctor.Unknown, "no access", 3},
		{"no cluster and no token", "aws", func(w *environment) {
			w.withoutCluster = true
		}, "service-account", doctor.Unknown, "unknown", 3},
		{"a proxy's text in an answer of STS", "aws", answer("sts", "AssumeRoleWithWebIdentity", 503, "", ""), "exchange",
			doctor.Unknown, "fails", 3},
		{"issuer that redirects", "aws", func(w *environment) {
			w.serve = http.RedirectHandler("https://elsewhere.example", http.StatusFound)
		}, "issuer", doctor.Unknown, "cannot be read", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, tt.provider)
			tt.setUp(w)
			report := w.run()
			readable(t, report)
			if f := report.Of(tt.check); f.Result != tt.result || !strings.Contains(f.Message, tt.says) ||
				report.ExitCode() != tt.exit {
				t.Errorf("%s %q, exit code %d:\n%s", f.Result, f.Message, report.ExitCode(),
					report.Text(doctor.TextOptions{Verbose: true}))
			}
		})
	}
}

func (w *environment) jwks() []byte {
	body := httptest.NewRecorder()
	w.issuer.ServeHTTP(body,
		httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, w.issuer.URL()+"/openid/v1/jwks", nil))
	return body.Body.Bytes()
}

// The issuer chooses jwks_uri, so that address must not make this machine read
// its own network.
func TestKeysInTheOwnNetworkAreNotRead(t *testing.T) {
	for _, address := range []string{"https://169.254.169.254/latest/meta-data", "https://127.0.0.1:6443/keys",
		"https://user:secret@keys.example/keys", "https://vault.internal/keys", "http://keys.example"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, "aws")
			document(func(d map[string]any) { d["jwks_uri"] = address })(w)
			asked := &recording{next: w.config.IssuerClient.Transport}
			w.config.IssuerClient = &http.Client{Transport: asked}
			report := w.run()
			if f := report.Of("issuer"); f.Result == doctor.Pass || slices.ContainsFunc(asked.hosts, func(h string) bool {
				return h != "issuer.example"
			}) {
				t.Errorf("asked %q:\n%s", asked.hosts, report)
			}
		})
	}
}

// recording notes the hosts of requests.
type recording struct {
	next  http.RoundTripper
	mu    sync.Mutex
	hosts []string
}

func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.hosts = append(r.hosts, req.URL.Host)
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

func TestSecretsOfTheClusterAreNotShown(t *testing.T) {
	const secret = "kubeconfig-bearer-token-0123456789"
	w := newEnvironment(t, "aws")
	w.user.name = "user " + secret
	w.config.RESTConfig = w.api()
	w.config.RESTConfig.BearerToken = secret
	report := w.run()
	readable(t, report)
	if text := report.Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, secret) {
		t.Errorf("the report holds the token:\n%s", text)
	}
}

// The API server names the user that is to get the right. Another host may name
// one of its own.
func TestUnverifiedAPIServerNamesNoUser(t *testing.T) {
	for name, want := range map[string]string{"verified": "--serviceaccount=system:controller",
		"insecure": "--user=USER_NAME"} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, "aws")
			w.user.mayNot = []string{"serviceaccounts/token"}
			w.config.RESTConfig = w.api()
			w.config.RESTConfig.Insecure = name == "insecure"
			commands := w.run().Worst().Remedy.Commands
			if len(commands) == 0 || !strings.HasSuffix(commands[len(commands)-1], " "+want) {
				t.Errorf("got %q, want %s", commands, want)
			}
		})
	}
}

func TestInterruptKeepsTheHeadline(t *testing.T) {
	w := newEnvironment(t, "aws")
	annotate(aws.RoleARNAnnotation, "")(w)
	w.run() // makes the client
	ctx, cancel := context.WithCancel(t.Context())
	w.config.Examination.Progress = func(c doctor.Check) {
		if c.ID == "pod" {
			cancel()
		}
	}
	if report := identity.Run(ctx, w.config); report.Headline != "service-account" {
		t.Errorf("got %s", report)
	}
}

func TestChecksHaveNamesAndKnownNeeds(t *testing.T) {
	var ids []string
	for _, c := range identity.Checks() {
		for _, needed := range c.Needs {
			if !slices.Contains(ids, needed) {
				t.Errorf("%s needs %q, which is no earlier check", c.ID, needed)
			}
		}
		if slices.Contains(ids, c.ID) || c.Title == "" || strings.ContainsAny(c.ID, "0123456789 ") {
			t.Errorf("%q", c.ID)
		}
		ids = append(ids, c.ID)
	}
}

func TestPasswordsInAddressesAreNotShown(t *testing.T) {
	for name, spoil := range map[string]func(w *environment){
		"the API server": func(w *environment) {
			w.config.RESTConfig = w.api()
			w.config.RESTConfig.Host = strings.Replace(w.config.RESTConfig.Host, "://", "://admin:hunter2pw@", 1)
		},
		"the variable": inPod(func(w *environment) {
			w.env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://u:hunter2pw@evil.example/x?token=hunter2pw"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, "aws")
			spoil(w)
			report := w.run()
			encoded, err := json.Marshal(report)
			if all := report.Text(doctor.TextOptions{Verbose: true}) + string(encoded); err != nil ||
				strings.Contains(all, "hunter2pw") {
				t.Errorf("%v\n%s", err, all)
			}
		})
	}
}

// A remedy deletes no pod.
func TestRemedyDeletesNoPod(t *testing.T) {
	w := newEnvironment(t, "aws")
	withPod(env("AWS_ROLE_ARN", roleARN+"-old"))(w)
	if f := w.run().Of("pod"); !strings.Contains(f.Remedy.Text, "let the owner of the pod create it again") ||
		len(f.Remedy.Commands) != 0 {
		t.Errorf("%+v", f.Remedy)
	}
}

// No false alarms: where all fits, nothing fails, nothing warns, and nothing is
// unknown.
func TestHealthyChains(t *testing.T) {
	for _, provider := range []string{"aws", "azure", "gcp", "generic"} {
		t.Run(provider, func(t *testing.T) {
			w := newEnvironment(t, provider)
			report := w.run()
			if report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
		t.Run(provider+" with a token in a file, without a cluster", func(t *testing.T) {
			w := newEnvironment(t, provider)
			w.write(w.sign(nil))
			w.withoutCluster, w.config.Annotations = true, w.account.Annotations
			if report := w.run(); report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
	}
}

// untrustedIssuer shows this machine, and no cloud, a certificate of an unknown
// CA.
func untrustedIssuer(w *environment) {
	server := httptest.NewTLSServer(w.serve)
	w.t.Cleanup(server.Close)
	trusting, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		w.t.Fatal("no transport")
	}
	doubting := &http.Transport{DialContext: toward(server.Listener.Addr().String())}
	w.t.Cleanup(func() { doubting.CloseIdleConnections(); trusting.CloseIdleConnections() })
	w.config.IssuerClient = &http.Client{Transport: doubting}
}

// The answer of a cloud that names another cause is the headline. What this
// machine suspects becomes a warning.
func TestSpecificAnswerOutranksSuspicion(t *testing.T) {
	for name, suspect := range map[string]func(w *environment){
		"an issuer of an unknown CA": untrustedIssuer,
		"an unreachable issuer":      func(w *environment) { w.config.IssuerClient = &http.Client{Transport: broken{}} },
	} {
		for provider, refuse := range map[string]func(w *environment){
			"aws": func(w *environment) {
				w.cloud.AWS().SetRole(roleARN,
					cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
			},
			"azure": func(w *environment) {
				w.credential(func(c *cloudtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:App" })
			},
			"gcp": func(w *environment) {
				w.pool(func(p *cloudtest.WorkloadIdentityProvider) { p.Condition = func(map[string]any) bool { return false } })
			},
		} {
			t.Run(provider+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newEnvironment(t, provider)
				refuse(w)
				suspect(w)
				report := w.run()
				readable(t, report)
				f := report.Worst()
				if f == nil || f.Check != "exchange" || f.Result != doctor.Fail || f.Class == "" || f.Remedy.Text == "" ||
					len(f.Causes) == 0 {
					t.Errorf("got %+v\n%s", f, report)
				}
			})
		}
	}
}

// A right that is missing and stops the exchange is the headline, whatever else
// is doubtful. One Role grants all that is needed.
func TestMissingRightIsTheHeadline(t *testing.T) {
	const role = "--verb=get,create --resource=serviceaccounts,serviceaccounts/token --resource-name=app"
	forbid := func(rights ...string) func(w *environment) { return func(w *environment) { w.user.mayNot = rights } }
	for _, tt := range []struct {
		name, provider string
		spoil          []func(w *environment)
		check, says    string
		result         doctor.Result
		command        string
	}{
		{"to read the ServiceAccount", "aws", []func(w *environment){
			forbid("get serviceaccounts")}, "service-account", "may not read", doctor.Fail, role},
		{"both", "aws", []func(w *environment){
			forbid("get serviceaccounts", "serviceaccounts/token")}, "service-account", "may not read", doctor.Fail, role},
		{"to create tokens", "aws", []func(w *environment){
			forbid("serviceaccounts/token")}, "token-request", "may not create", doctor.Fail, role},
		{"to create tokens of a pod", "aws", []func(w *environment){
			withPod(func(*environment, *corev1.Pod) {}), forbid("serviceaccounts/token")},
			"token-request", "may not create", doctor.Unknown, "kubectl exec -n tenant-a pod -- wid doctor --provider aws"},
		{"to read the ServiceAccount of a given token", "aws", []func(w *environment){
			forbid("get serviceaccounts"), claims(nil)}, "service-account", "may not read", doctor.Fail, "--verb=get"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, tt.provider)
			for _, spoil := range tt.spoil {
				spoil(w)
			}
			report := w.run()
			readable(t, report)
			f := report.Worst()
			if f == nil || f.Check != tt.check || f.Result != tt.result || !strings.Contains(f.Message, tt.says) ||
				!strings.Contains(strings.Join(f.Remedy.Commands, "\n"), tt.command) {
				t.Errorf("%+v\n%s", f, report)
			}
		})
	}
}

// A missing right that stops nothing is no headline of a set-up that works.
func TestUnneededRightIsNoHeadline(t *testing.T) {
	w := newEnvironment(t, "aws")
	withPod(func(w *environment, _ *corev1.Pod) {
		w.config.Annotations = map[string]string{aws.RoleARNAnnotation: roleARN}
	})(w)
	claims(nil)(w)
	w.user.mayNot = []string{"get serviceaccounts", "serviceaccounts/token"}
	if report := w.run(); report.ExitCode() == doctor.ExitFail || report.Of("exchange").Result != doctor.Pass {
		t.Errorf("%s", report)
	}
}
