package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

func (w *kubeWorld) createPod(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := w.cluster.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorOfPodAlone(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t)
	w.createPod(t, "good")
	pod := w.namespace + "/good"
	for name, args := range map[string][]string{
		"by a flag":          {"--kubeconfig=" + w.kubeconfig},
		"by the environment": {},
	} {
		t.Run(name, func(t *testing.T) {
			w.env = append(w.env, "KUBECONFIG="+w.kubeconfig)
			r := w.wid(t, "", append([]string{"doctor", "--provider=aws", "--region=eu-central-1", "--pod=" + pod, "-o=json"}, args...)...)
			report := parseReport(t, r.stdout)
			for _, id := range []string{"service-account", "token-request", "exchange"} {
				if f := report.Of(id); f.Result != doctor.Pass {
					t.Errorf("%+v %s", f, r.stderr)
				}
			}
		})
	}
	t.Run("without the right to create tokens", func(t *testing.T) { // which are the kubelet's
		config := w.cluster.User(t, "looker", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "pods"}, Verbs: []string{"get"}})
		kubeconfig := filepath.Join(w.home, "looker.yaml")
		w.write(t, kubeconfig, kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, ""))
		r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--pod="+pod, "--kubeconfig="+kubeconfig, "-o=json")
		f := parseReport(t, r.stdout).Of("token-request")
		want := "kubectl --kubeconfig " + kubeconfig + " exec -n " + w.namespace + " good -- wid doctor --provider aws"
		if f.Result != doctor.Unknown || !slices.Contains(f.Remedy.Commands, want) {
			t.Errorf("%+v", f)
		}
	})
}

func TestDoctorOfTokenAndCluster(t *testing.T) {
	t.Parallel()
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
	if r = w.wid(t, "", append(args, "--kubeconfig="+w.kubeconfig, "--annotation=a=b")...); r.code != doctor.ExitUsage || !strings.Contains(r.stderr, "leave --annotation out") {
		t.Errorf("%+v", r)
	}
	if r = w.wid(t, "", "credential-process", "--provider=aws", "--token-file="+file, "--kubeconfig="+w.kubeconfig); !strings.Contains(r.stderr, "with a token no cluster is asked") {
		t.Errorf("other commands take both: %+v", r)
	}
}

// A kubeconfig that does not log in, or whose CA is another cluster's, is the headline.
func TestDoctorOfBadKubeconfig(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t)
	expired := filepath.Join(w.home, "plug")
	if err := os.WriteFile(expired, []byte("#!/bin/sh\necho Token has expired >&2\nexit 255\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	good := w.cluster.Config()
	withPlugin := func(command string) string {
		return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
			`"clusters":[{"name":"c","cluster":{"server":"` + good.Host + `","insecure-skip-tls-verify":true}}],` +
			`"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"` + command + `","interactiveMode":"Never"}}}]}`
	}
	for name, kubeconfig := range map[string]string{
		"a login that has expired": withPlugin(expired),
		"a missing program":        withPlugin(expired + "-missing"),
		"another CA":               kubeconfigOf(t, good.Host, w.cloud.CA(), good.CertData, good.KeyData, ""),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(w.home, "bad.yaml")
			w.write(t, file, kubeconfig)
			r := w.wid(t, "", "doctor", "--provider=aws", "--region=eu-central-1", "--service-account="+w.namespace+"/app", "--kubeconfig="+file, "-o=json")
			f := parseReport(t, r.stdout).Worst()
			if r.code != doctor.ExitUncertain || f.Check != "service-account" || f.Result != doctor.Unknown || !slices.Contains(f.Remedy.Commands, "kubectl --kubeconfig "+file+" get sa -n "+w.namespace+" app") {
				t.Errorf("%+v", f)
			}
		})
	}
}
