package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/kubetest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

func (w *kubeWorld) createPod(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := w.cluster.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// The most natural call names a pod alone.
func TestDoctorOfPodAlone(t *testing.T) {
	w := newKubeWorld(t)
	w.createPod(t, "good")
	pod := w.namespace + "/good"
	for name, args := range map[string][]string{
		"by a flag":          {"--kubeconfig=" + w.kubeconfig},
		"by the environment": {},
	} {
		w.env = append(w.env, "KUBECONFIG="+w.kubeconfig)
		r := w.wid(t, "", append([]string{"doctor", "--provider=aws", "--region=eu-central-1", "--pod=" + pod, "-o=json"}, args...)...)
		report := parseReport(t, r.stdout)
		for _, id := range []string{"api-server", "service-account", "token-request", "exchange"} {
			if f := report.Of(id); f.Result != doctor.Pass {
				t.Errorf("%s: %+v %s", name, f, r.stderr)
			}
		}
		if report.ServiceAccount != w.namespace+"/app" {
			t.Errorf("%s: %q", name, report.ServiceAccount)
		}
	}
	// Who may only look gets no verdict about a pod whose tokens are the kubelet's.
	config := w.cluster.User(t, "looker", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "pods"}, Verbs: []string{"get"}})
	kubeconfig := filepath.Join(w.home, "looker.yaml")
	w.write(t, kubeconfig, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
	r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--pod="+pod, "--kubeconfig="+kubeconfig, "-o=json")
	f := parseReport(t, r.stdout).Of("token-request")
	if f.Result != doctor.Unknown || !strings.Contains(f.Remedy, "\nkubectl exec -n "+w.namespace+" good -- wid doctor --provider aws") {
		t.Errorf("%+v", f)
	}
}

// What a run with a token says about the cluster can be done.
func TestDoctorOfTokenAndCluster(t *testing.T) {
	w := newKubeWorld(t)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{aws.DefaultAudience}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}}
	if err := w.cluster.Client().SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.home, "sa.tok")
	w.write(t, file, request.Status.Token)
	args := []string{"doctor", "--provider=aws", "--region=eu-central-1", "--token-file=" + file, "-o=json"}
	report := parseReport(t, w.wid(t, "", args...).stdout)
	for id, flag := range map[string]string{"api-server": "--kubeconfig", "cluster-issuer": "--kubeconfig", "identifiers": "--annotation eks.amazonaws.com/role-arn="} {
		if f := report.Of(id); f.Result != doctor.Unknown || !strings.Contains(f.Remedy, flag) {
			t.Errorf("%+v", f)
		}
	}
	if n := w.tokenRequests(t); n != 0 {
		t.Errorf("%d tokens were asked for", n)
	}
	r := w.wid(t, "", append(args, "--kubeconfig="+w.kubeconfig)...)
	report = parseReport(t, r.stdout)
	for _, id := range []string{"identifiers", "api-server", "service-account", "cluster-issuer", "token-review", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
	if r = w.wid(t, "", append(args, "--kubeconfig="+w.kubeconfig, "--annotation=a=b")...); r.code != doctor.ExitUsage || !strings.Contains(r.stderr, "leave --annotation out") {
		t.Errorf("%+v", r)
	}
	if r = w.wid(t, "", "credential-process", "--provider=aws", "--token-file="+file, "--kubeconfig="+w.kubeconfig); !strings.Contains(r.stderr, "with a token no cluster is asked") {
		t.Errorf("other commands take both: %+v", r)
	}
}

// A kubeconfig whose user cannot log in, or whose cluster is another one, is what the report says to mend.
func TestDoctorOfBadKubeconfig(t *testing.T) {
	w := newKubeWorld(t)
	expired := filepath.Join(w.home, "plug")
	if err := os.WriteFile(expired, []byte("#!/bin/sh\necho Token has expired >&2\nexit 255\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	other := kubetest.StartNew(t)
	good := w.cluster.Config()
	withPlugin := func(command string) string {
		config := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
			`"clusters":[{"name":"c","cluster":{"server":"` + good.Host + `","insecure-skip-tls-verify":true}}],` +
			`"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"` + command + `","interactiveMode":"Never"}}}]}`
		return config
	}
	for name, tc := range map[string]struct{ kubeconfig, says, remedy string }{
		"a login that has expired": {withPlugin(expired), "log in has failed", "log in again"},
		"a missing program":        {withPlugin(expired + "-missing"), "does not exist", "install it"},
		"another authority": {kubeconfigOf(t, good.Host, other.Config().CAData, good.CertData, good.KeyData, ""), "not of the authority",
			"certificate-authority-data"},
	} {
		file := filepath.Join(w.home, "bad.yaml")
		w.write(t, file, tc.kubeconfig)
		r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--service-account="+w.namespace+"/app", "--kubeconfig="+file, "-o=json")
		f := parseReport(t, r.stdout).Of("api-server")
		if f.Result != doctor.Unknown || !strings.Contains(f.Message, tc.says) || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
		if name != "another authority" && !strings.Contains(f.Remedy, "\nkubectl --kubeconfig "+file+" get --raw /version") {
			t.Errorf("%s: %s", name, f.Remedy)
		}
	}
}
