package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

func (w *kubeEnvironment) createPod(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := w.cluster.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorOfPodAlone(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	w.createPod(t, "good")
	pod := w.namespace + "/good"
	for name, args := range map[string][]string{
		"by a flag":          {"--kubeconfig=" + w.kubeconfig},
		"by the environment": {},
	} {
		t.Run(name, func(t *testing.T) {
			w.env = append(w.env, "KUBECONFIG="+w.kubeconfig)
			r := w.wid(t, "", append([]string{"doctor", "--provider=aws", "--region=eu-central-1", "--pod=" + pod, "-o=json"},
				args...)...)
			report := parseReport(t, r.stdout)
			for _, id := range []string{"service-account", "token-request", "exchange"} {
				if f := report.Of(id); f.Result != doctor.Pass {
					t.Errorf("%+v %s", f, r.stderr)
				}
			}
		})
	}
	t.Run("without the right to create tokens", func(t *testing.T) { // which are the kubelet's
		config := w.cluster.User(t, "looker", w.namespace,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "pods"}, Verbs: []string{"get"}})
		kubeconfig := filepath.Join(w.home, "looker.yaml")
		w.write(t, kubeconfig, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
		r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--pod="+pod, "--kubeconfig="+kubeconfig,
			"-o=json")
		f := parseReport(t, r.stdout).Of("token-request")
		want := "kubectl --kubeconfig " + kubeconfig + " exec -n " + w.namespace + " good -- wid doctor --provider aws"
		if f.Result != doctor.Unknown || !slices.Contains(f.Remedy.Commands, want) {
			t.Errorf("%+v", f)
		}
	})
}

func TestDoctorOfTokenAndCluster(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{aws.DefaultAudience}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}}
	if err := w.cluster.Client().SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.home, "sa.tok")
	w.write(t, file, request.Status.Token)
	args := []string{"doctor", "--provider=aws", "--region=eu-central-1", "--token-file=" + file, "-o=json"}
	report := parseReport(t, w.wid(t, "", args...).stdout)
	if f := report.Of("service-account"); f.Result == doctor.Pass {
		t.Errorf("%+v", f)
	}
	if n := w.tokenRequests(t); n != 0 {
		t.Errorf("%d tokens were asked for", n)
	}
	r := w.wid(t, "", append(args, "--kubeconfig="+w.kubeconfig)...)
	report = parseReport(t, r.stdout)
	for _, id := range []string{"service-account", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
	if r = w.wid(t, "", append(args, "--kubeconfig="+w.kubeconfig, "--annotation=a=b")...); r.code != doctor.ExitUsage ||
		!strings.Contains(r.stderr, "leave --annotation out") {
		t.Errorf("%+v", r)
	}
	if r = w.wid(t, "", "credential-process", "--provider=aws", "--token-file="+file,
		"--kubeconfig="+w.kubeconfig); !strings.Contains(r.stderr, "with a token no cluster is asked") {
		t.Errorf("other commands take both: %+v", r)
	}
}

// A kubeconfig that does not log in, or whose CA is another cluster's, is the
// headline.
func TestDoctorOfBadKubeconfig(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	expired := filepath.Join(w.home, "plug")
	if err := os.WriteFile(expired, []byte("#!/bin/sh\necho Token has expired >&2\nexit 255\n"),
		0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	good := w.cluster.Config()
	withPlugin := func(command string) string {
		return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
			`"clusters":[{"name":"c","cluster":{"server":"` + good.Host + `","insecure-skip-tls-verify":true}}],` +
			`"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"` + command +
			`","interactiveMode":"Never"}}}]}`
	}
	for name, kubeconfig := range map[string]string{
		"a login that has expired": withPlugin(expired),
		"a missing program":        withPlugin(expired + "-missing"),
		"another CA":               kubeconfigOf(t, good.Host, w.cloud.CA(), good.CertData, good.KeyData, ""),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(w.home, "bad.yaml")
			w.write(t, file, kubeconfig)
			r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--service-account="+w.namespace+"/app",
				"--kubeconfig="+file, "-o=json")
			f := parseReport(t, r.stdout).Worst()
			if r.code != doctor.ExitUncertain || f.Check != "service-account" || f.Result != doctor.Unknown ||
				!slices.Contains(f.Remedy.Commands, "kubectl --kubeconfig "+file+" get sa -n "+w.namespace+" app") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Without --provider the annotations name the cloud. If they name none, or if
// they cannot be read, that is the report.
func TestDoctorWithoutProvider(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	w.create(t, "bare", nil)
	w.create(t, "named", map[string]string{"eks.amazonaws.com/role-arn": role("tenant-a")})
	r := w.wid(t, "", "doctor", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/named")
	if !strings.Contains(r.stdout, w.namespace+"/named → aws") {
		t.Errorf("%+v", r)
	}
	config := w.cluster.User(t, "guesser", w.namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	forbidden, unreachable := filepath.Join(w.home, "guesser.yaml"), filepath.Join(w.home, "unreachable.yaml")
	w.write(t, forbidden, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
	w.write(t, unreachable, kubeconfigThrough("https://127.0.0.1:1", ""))
	w.create(t, "typo", map[string]string{"eks.amazonaws.com/rolearn": role("tenant-a")})
	w.create(t, "empty", map[string]string{"azure.workload.identity/client-id": "", "team": "a"})
	w.create(t, "both", map[string]string{"eks.amazonaws.com/role-arn": role("tenant-a"),
		"azure.workload.identity/client-id": "x"})
	const annotate = "kubectl --kubeconfig %s annotate sa -n %s %s --overwrite "
	for name, tc := range map[string]struct {
		flag, kubeconfig string
		code             int
		class            string
		says             []string
	}{
		"no annotation": {"--service-account=" + w.namespace + "/bare", w.kubeconfig, doctor.ExitFail,
			"IdentityNotConfigured",
			[]string{"has no annotation of a cloud", "{annotations none}", "eks.amazonaws.com/role-arn=arn:",
				"azure.workload.identity/client-id=", "workload-identity-provider=", "--provider"}},
		"a misspelt annotation": {"--service-account=" + w.namespace + "/typo", w.kubeconfig, doctor.ExitFail,
			"IdentityNotConfigured",
			[]string{`"eks.amazonaws.com/rolearn": "` + role("tenant-a"),
				fmt.Sprintf(annotate, w.kubeconfig, w.namespace, "typo"), "--provider"}},
		"an empty annotation": {"--service-account=" + w.namespace + "/empty", w.kubeconfig, doctor.ExitFail,
			"IdentityNotConfigured",
			[]string{`"azure.workload.identity/client-id": ""`, `"team": "a"`, "azure.workload.identity/client-id=CLIENT_ID"}},
		"no ServiceAccount": {"--service-account=" + w.namespace + "/absent", w.kubeconfig, doctor.ExitFail,
			"ServiceAccountNotFound",
			[]string{"ServiceAccount " + w.namespace + "/absent does not exist", "config get-contexts"}},
		"no pod": {"--pod=" + w.namespace + "/absent", w.kubeconfig, doctor.ExitFail, "IdentityNotConfigured",
			[]string{"Pod " + w.namespace + "/absent does not exist", "get pods -n " + w.namespace}},
		"no right to read it": {"--service-account=" + w.namespace + "/app", forbidden, doctor.ExitFail, "RightMissing",
			[]string{"cannot get resource", "create rolebinding"}},
		"no answer": {"--service-account=tenant-a/app", unreachable, doctor.ExitUncertain, "",
			[]string{"connection refused", "get sa -n tenant-a app"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", "doctor", "--kubeconfig="+tc.kubeconfig, tc.flag, "-o=json")
			f := targetReport(t, r).Worst()
			if r.code != tc.code || f.Class != tc.class || f.Check != "service-account" {
				t.Errorf("ends with %d: %+v", r.code, f)
			}
			for _, want := range tc.says {
				if text := fmt.Sprint(f.Message, f.Observed, f.Expected, f.Details, f.Remedy.Text,
					f.Remedy.Commands); !strings.Contains(text, want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
		})
	}
	t.Run("two clouds", func(t *testing.T) {
		r := w.wid(t, "", "doctor", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/both")
		if r.code != doctor.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "pick one with --provider") {
			t.Errorf("%+v", r)
		}
	})
}

// The commands that the doctor prints run at a real API server, and correct the
// set-up.
func TestDoctorCommandsOfAnnotations(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	examine := func() (result, *doctor.Finding) {
		r := w.wid(t, "", append([]string{"doctor", "-o=json"}, w.app()...)...)
		return r, targetReport(t, r).Worst()
	}
	for _, row := range []struct {
		annotations map[string]string
		class       string
	}{
		{map[string]string{"eks.amazonaws.com/role-arn": role("tenant-a"), "eks.amazonaws.com/audience": "sts.amazon.com"},
			"AudienceNotTrusted"},
		{map[string]string{"eks.amazonaws.com/role-anr": role("tenant-a")}, "IdentityNotConfigured"},
	} {
		t.Run(row.class, func(t *testing.T) {
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}}
			if err := w.cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(sa), sa); err != nil {
				t.Fatal(err)
			}
			sa.Annotations = row.annotations
			if err := w.cluster.Client().Update(t.Context(), sa); err != nil {
				t.Fatal(err)
			}
			r, f := examine()
			if r.code != doctor.ExitFail || f.Class != row.class || len(f.Remedy.Commands) != 1 {
				t.Fatalf("%+v", f)
			}
			command := strings.NewReplacer("ACCOUNT_ID", account, "ROLE_NAME", "tenant-a").Replace(f.Remedy.Commands[0])
			if r := w.exec(t, "", nil, "bash", "-euc", command); r.code != 0 {
				t.Fatalf("%s: %+v", command, r)
			}
			if r, f := examine(); r.code == doctor.ExitFail {
				t.Errorf("%s does not correct it: %+v", command, f)
			}
		})
	}
}

// targetReport is a report of a target without a provider.
func targetReport(t *testing.T, r result) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 || report.Subject == "" {
		t.Fatalf("%v: %+v", err, r)
	}
	return report
}

// A real API server that is no hub, asked as both sides.
func TestDoctorRegistration(t *testing.T) { // before a test makes it one
	w := newKubeEnvironment(t)
	args := []string{"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + w.kubeconfig,
		"--kubeconfig=" + w.kubeconfig}
	r := w.wid(t, "", append(args, "-o=json")...)
	if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "sides" || f.Class != "WrongKubeconfig" {
		t.Errorf("ends with %d: %s", r.code, r.stdout)
	}
	if r := w.wid(t, "", args...); !strings.HasPrefix(r.stdout, "✗ registration of cluster cluster1, hub: cluster ") {
		t.Errorf("%+v", r)
	}
}

// A real API server without IAMBindings.
func TestDoctorPodIdentity(t *testing.T) {
	w := newKubeEnvironment(t)
	w.createPod(t, "app-0")
	for name, args := range map[string][]string{
		"a pod":                             {"--pod=" + w.namespace + "/app-0", "--kubeconfig=" + w.kubeconfig},
		"a ServiceAccount":                  {"--service-account=" + w.namespace + "/app", "--kubeconfig=" + w.kubeconfig},
		"the kubeconfig of the environment": {"--service-account=" + w.namespace + "/app"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, "", []string{"KUBECONFIG=" + w.kubeconfig}, "wid",
				append([]string{"doctor", "pod-identity", "-o=json"}, args...)...)
			if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "binding" ||
				f.Class != "ProviderNotInstalled" {
				t.Errorf("ends with %d: %s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// The remedy of keys that do not fit runs as printed, at the examined cluster,
// with the store filled in.
func TestDoctorRemedyOfKeys(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	w.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRoleWithWebIdentity", Status: http.StatusBadRequest,
		Code:    "InvalidIdentityToken",
		Message: "Couldn't retrieve verification key from your identity provider"})
	f := parseReport(t, w.wid(t, "", append([]string{"doctor", "--provider=aws", "-o=json"}, w.app()...)...).stdout).Of(
		"exchange")
	of := " --issuer " + w.cluster.IssuerURL()
	if f.Class != "SigningKeyUnavailable" || len(f.Remedy.Commands) != 2 {
		t.Fatalf("%+v", f)
	}
	store := filepath.Join(w.home, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"wid issuer check" + of + " --kubeconfig " + w.kubeconfig,
		"wid issuer publish" + of + " --to STORE --kubeconfig " + w.kubeconfig} {
		command := f.Remedy.Commands[i]
		if command != want {
			t.Errorf("%q instead of %q", command, want)
		}
		words, err := exec.CommandContext(t.Context(), "/bin/sh", "-c",
			`printf '%s\n' `+strings.Replace(command, "STORE", "file://"+store,
				1)).Output() //nolint:gosec // what the doctor says
		if err != nil {
			t.Fatal(err)
		}
		r := w.wid(t, "", strings.Split(strings.TrimSpace(string(words)), "\n")[1:]...)
		if isCheck := i == 0; isCheck && (r.code == cli.ExitUsage || !strings.Contains(r.stdout, "IssuerURL")) ||
			!isCheck && r.code != 0 {
			t.Errorf("%s: %+v", command, r)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "openid", "v1", "jwks")); err != nil {
		t.Error(err)
	}
}

// --resolve and --ca-file reach the issuer before its name is public, as in wid
// issuer check.
func TestDoctorResolvesTheIssuer(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	asked := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked += r.Host + r.URL.Path
		http.NotFound(rw, r)
	}))
	t.Cleanup(server.Close)
	ca, token := filepath.Join(w.home, "ca.crt"), filepath.Join(w.home, "token")
	w.write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	claims := w.issuer.Claims(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}},
		[]string{"sts.amazonaws.com"}, time.Hour)
	claims["iss"] = "https://example.com:" + port + "/c"
	jwt, err := w.issuer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, token, jwt)
	args := append([]string{"doctor", "--provider=aws", "--token-file=" + token, "--region=eu-central-1",
		"--resolve=example.com:" + port + ":" + host, "-o=json"}, annotationFlags()...)
	r := w.wid(t, "", append(args, "--ca-file="+ca)...)
	if f := parseReport(t, r.stdout).Of("issuer"); f.StatusCode != http.StatusNotFound ||
		asked != "example.com:"+port+"/c/.well-known/openid-configuration" {
		t.Errorf("asked %q, %+v", asked, f)
	}
	if r := w.wid(t, "", append(args, "--resolve=example.com:1")...); r.code != cli.ExitUsage ||
		!strings.Contains(r.stderr, "HOST:PORT:ADDRESS") {
		t.Errorf("%+v", r)
	}
}
