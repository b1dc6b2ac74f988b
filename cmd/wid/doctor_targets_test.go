package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/kubetest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// targetReport is a report of a doctor without a provider.
func targetReport(t *testing.T, r result) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 || report.Target == "" {
		t.Fatalf("%v: %+v", err, r)
	}
	return report
}

// signedCluster publishes cluster-info with one token, as wid bootstrap does, and signs it.
func signedCluster(t *testing.T) (cluster *kubetest.Cluster, kubeconfig, token string, pin bootstrap.Pin) {
	t.Helper()
	cluster = kubetest.StartNew(t)
	kubeconfig = cluster.Kubeconfig(t)
	must(t, "bootstrap", "--kubeconfig="+kubeconfig, "publish")
	token = must(t, "bootstrap", "--kubeconfig="+kubeconfig, "create", "--ttl=1h")
	parsed, err := bootstrap.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	var info corev1.ConfigMap
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &info); err != nil {
		t.Fatal(err)
	}
	info.Data["jws-kubeconfig-"+parsed.ID()] = bootstrap.Sign([]byte(info.Data["kubeconfig"]), parsed)
	if err := cluster.Client().Update(t.Context(), &info); err != nil {
		t.Fatal(err)
	}
	pins, err := (&bootstrap.ClusterInfo{CAData: cluster.Config().CAData}).Pins()
	if err != nil {
		t.Fatal(err)
	}
	return cluster, kubeconfig, token, pins[0]
}

// The token comes from a flag, a file, standard input or the environment, and its secret is never shown.
func TestDoctorBootstrap(t *testing.T) {
	w := newWorld(t)
	cluster, kubeconfig, token, pin := signedCluster(t)
	id, secret, _ := strings.Cut(token, ".")
	file := filepath.Join(w.home, "token")
	w.write(t, file, token+"\n")
	args := []string{"doctor", "bootstrap", "-o=json", "--server=" + strings.TrimPrefix(cluster.Config().Host, "https://"), "--ca-cert-hash=" + pin.String()}
	for name, tt := range map[string]struct {
		stdin, env string
		more       []string
		code       int
		class      string
	}{
		"a flag":             {more: []string{"--token=" + token}},
		"a file":             {more: []string{"--token-file=" + file}},
		"standard input":     {stdin: token + "\n", more: []string{"--token-file=-"}},
		"the environment":    {env: token},
		"an administrator":   {more: []string{"--token=" + id, "--kubeconfig=" + kubeconfig}},
		"the ID alone":       {more: []string{"--token=" + id}, code: doctor.ExitUncertain},
		"a malformed token":  {more: []string{"--token=" + strings.Replace(token, ".", ":", 1)}, code: doctor.ExitFail, class: "B2"},
		"a wrong pin":        {more: []string{"--token=" + token, "--ca-cert-hash=sha256:12"}, code: doctor.ExitFail, class: "B3"},
		"another's token":    {more: []string{"--token=zzzzzz." + secret}, code: doctor.ExitFail, class: "B12"},
		"the server skipped": {more: []string{"--token=" + token, "--skip=bootstrap-server"}, code: doctor.ExitUncertain},
	} {
		w := *w
		w.env = append(append([]string(nil), w.env...), "WID_BOOTSTRAP_TOKEN="+tt.env)
		r := w.wid(t, tt.stdin, append(args, tt.more...)...)
		report := targetReport(t, r)
		first := report.Worst()
		if r.code != tt.code || tt.class != "" && first.Class != tt.class || strings.Contains(r.stdout+r.stderr, secret) {
			t.Errorf("%s: ends with %d: %+v\n%s", name, r.code, first, r.stdout+r.stderr)
		}
	}
}

// A real API server that is no hub, asked as both sides.
func TestDoctorEnrolment(t *testing.T) {
	w := newKubeWorld(t)
	args := []string{"doctor", "enrolment", "--cluster-name=cluster1", "--hub-kubeconfig=" + w.kubeconfig, "--kubeconfig=" + w.kubeconfig}
	r := w.wid(t, "", append(args, "-o=json")...)
	report := targetReport(t, r)
	if hub, agent := report.Of("enrolment-hub"), report.Of("enrolment-agent"); r.code != doctor.ExitFail || hub.Class != "O1" || agent.Class != "O22" {
		t.Errorf("ends with %d: %s", r.code, r.stdout)
	}
	if r := w.wid(t, "", args...); r.code != doctor.ExitFail || !strings.HasSuffix(r.stdout, "Begin with check 25 (enrolment-hub): this is no hub: both kubeconfigs lead to the same API server, which does not know ManagedClusters\n") {
		t.Errorf("%+v", r)
	}
}

// What is wrong with the call itself is said before anything is asked, with nothing on standard output.
func TestDoctorTargetMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := filepath.Join(w.home, "bad")
	w.write(t, bad, "{")
	for name, args := range map[string][]string{
		"no server":                   {"bootstrap"},
		"two tokens":                  {"bootstrap", "--server=a", "--token=abcdef", "--token-file=-"},
		"pins and none":               {"bootstrap", "--server=a", "--ca-cert-hash=sha256:1", "--unsafe-skip-ca-verification"},
		"no token file":               {"bootstrap", "--server=a", "--token-file=" + bad + "x"},
		"unreadable kubeconfig":       {"bootstrap", "--server=a", "--kubeconfig=" + bad},
		"unknown output":              {"bootstrap", "--server=a", "-o=yaml"},
		"unknown check":               {"bootstrap", "--server=a", "--skip=enrolment-hub"},
		"no time":                     {"bootstrap", "--server=a", "--timeout=0s"},
		"an argument":                 {"bootstrap", "10.0.0.1:6443"},
		"no cluster name":             {"enrolment", "--hub-kubeconfig=" + bad},
		"neither hub nor cluster":     {"enrolment", "--cluster-name=a"},
		"unreadable hub":              {"enrolment", "--cluster-name=a", "--hub-kubeconfig=" + bad},
		"unknown context":             {"enrolment", "--cluster-name=a", "--hub-context=none"},
		"unknown check of enrolments": {"enrolment", "--cluster-name=a", "--skip=helpers"},
		"unknown target":              {"nonsense"},
	} {
		if r := w.wid(t, "", append([]string{"doctor"}, args...)...); r.code != doctor.ExitUsage || r.stdout != "" || r.stderr == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Which webhook leaves a pod alone is seen at a real API server, by whoever may list webhooks; nobody else is told a cause.
func TestDoctorWebhook(t *testing.T) {
	w := newKubeWorld(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	none, url := admissionregistrationv1.SideEffectClassNone, "https://127.0.0.1:1/mutate"
	ignore := admissionregistrationv1.Ignore
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "pod-identity-webhook"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "iam-for-pods.amazonaws.com", SideEffects: &none, FailurePolicy: &ignore,
			AdmissionReviewVersions: []string{"v1"}, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}}}
	for _, obj := range []client.Object{webhook, pod} {
		if err := w.cluster.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := w.cluster.Client().Delete(context.Background(), webhook); err != nil {
			t.Error(err)
		}
	})
	args := append(w.app(), "doctor", "--provider=aws", "--pod="+w.namespace+"/app", "-o=json")
	r := w.wid(t, "", args...)
	if f := parseReport(t, r.stdout).Of("pod"); f.Result != doctor.Fail || !strings.Contains(f.Message, "because of its namespaceSelector") {
		t.Errorf("%+v", f)
	}
	r = w.wid(t, "", append(args, "--container=missing")...)
	if f := parseReport(t, r.stdout).Of("pod"); f.Result != doctor.Fail || !strings.Contains(f.Message, "no such container") {
		t.Errorf("%+v", f)
	}
	reader := w.cluster.User(t, "pod-reader", w.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts"}, Verbs: []string{"get"}})
	kubeconfig := filepath.Join(w.home, "reader.yaml")
	w.write(t, kubeconfig, kubeconfigOf(t, reader.Host, reader.CAData, reader.CertData, reader.KeyData, ""))
	r = w.wid(t, "", append(args, "--kubeconfig="+kubeconfig)...)
	if f := parseReport(t, r.stdout).Of("pod"); f.Result != doctor.Fail || strings.Contains(f.Message, "Selector") || !strings.Contains(r.stdout, "may not be looked at") {
		t.Errorf("%+v", f)
	}
}
