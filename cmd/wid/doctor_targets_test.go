package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// targetReport is a report of a target without a provider.
func targetReport(t *testing.T, r result) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 || report.Subject == "" {
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
		"a flag":            {more: []string{"--token=" + token}},
		"a file":            {more: []string{"--token-file=" + file}},
		"standard input":    {stdin: token + "\n", more: []string{"--token-file=-"}},
		"the environment":   {env: token},
		"an administrator":  {more: []string{"--token=" + id, "--kubeconfig=" + kubeconfig}},
		"the ID alone":      {more: []string{"--token=" + id}, code: doctor.ExitUncertain},
		"a malformed token": {more: []string{"--token=" + strings.Replace(token, ".", ":", 1)}, code: doctor.ExitFail, class: "ArgumentMalformed"},
		"a wrong pin":       {more: []string{"--token=" + token, "--ca-cert-hash=sha256:12"}, code: doctor.ExitFail, class: "ArgumentMalformed"},
		"another's token":   {more: []string{"--token=zzzzzz." + secret}, code: doctor.ExitFail, class: "NotSignedForToken"},
		"the cluster alone": {more: []string{"--server=", "--token=" + id, "--kubeconfig=" + kubeconfig}},
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

// The remedy as it is printed, with the kubeconfig of the cluster, corrects what is wrong.
func TestBootstrapRemedy(t *testing.T) {
	w := newWorld(t)
	cluster, kubeconfig, token, _ := signedCluster(t)
	id, _, _ := strings.Cut(token, ".")
	bindings := &rbacv1.RoleBindingList{}
	if err := cluster.Client().List(t.Context(), bindings, client.InNamespace("kube-public")); err != nil {
		t.Fatal(err)
	}
	for i := range bindings.Items {
		if subjects := bindings.Items[i].Subjects; len(subjects) == 1 && subjects[0].Name == "system:anonymous" {
			if err := cluster.Client().Delete(t.Context(), &bindings.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := []string{"doctor", "bootstrap", "-o=json", "--token=" + id, "--kubeconfig=" + kubeconfig, "--context=" + contextOf(t, kubeconfig)}
	remedy := ""
	for deadline := time.Now().Add(time.Minute); remedy == "" && time.Now().Before(deadline); { // the authorizer takes a moment
		if f := targetReport(t, w.wid(t, "", args...)).Worst(); f != nil && f.Class == "AnonymousForbidden" {
			remedy = f.Remedy.Commands[0]
		}
	}
	must(t, strings.Fields(remedy)[1:]...)
	for deadline := time.Now().Add(time.Minute); ; {
		r := w.wid(t, "", args...)
		if f := targetReport(t, r).Of("cluster"); f.Class != "AnonymousForbidden" {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", remedy, f)
		}
	}
}

func contextOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config.CurrentContext
}

// A real API server that is no hub, asked as both sides, also under the former name of the command.
func TestDoctorRegistration(t *testing.T) {
	w := newKubeWorld(t)
	for _, command := range []string{"registration"} {
		args := []string{"doctor", command, "--cluster-name=cluster1", "--hub-kubeconfig=" + w.kubeconfig, "--kubeconfig=" + w.kubeconfig}
		r := w.wid(t, "", append(args, "-o=json")...)
		if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "sides" || f.Class != "WrongKubeconfig" {
			t.Errorf("ends with %d: %s", r.code, r.stdout)
		}
		if r := w.wid(t, "", args...); !strings.HasPrefix(r.stdout, "✗ registration of cluster cluster1, hub: cluster ") || strings.Count(r.stdout, "\n") > 14 {
			t.Errorf("%+v", r)
		}
	}
}

// A real API server without IAMBindings.
func TestDoctorPodIdentity(t *testing.T) {
	w := newKubeWorld(t)
	w.createPod(t, "app-0")
	for name, args := range map[string][]string{
		"a pod":                             {"--pod=" + w.namespace + "/app-0", "--kubeconfig=" + w.kubeconfig},
		"a ServiceAccount":                  {"--service-account=" + w.namespace + "/app", "--kubeconfig=" + w.kubeconfig},
		"the kubeconfig of the environment": {"--service-account=" + w.namespace + "/app"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, "", []string{"KUBECONFIG=" + w.kubeconfig}, "wid", append([]string{"doctor", "pod-identity", "-o=json"}, args...)...)
			if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "binding" || f.Class != "ProviderNotInstalled" {
				t.Errorf("ends with %d: %s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// A mistake in the call is reported before anything is asked, with nothing on standard output.
func TestDoctorTargetMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := filepath.Join(w.home, "bad")
	w.write(t, bad, "{")
	for name, args := range map[string][]string{
		"no server":                {"bootstrap"},
		"two tokens":               {"bootstrap", "--server=a", "--token=abcdef", "--token-file=-"},
		"pins and none":            {"bootstrap", "--server=a", "--ca-cert-hash=sha256:1", "--unsafe-skip-ca-verification"},
		"no token file":            {"bootstrap", "--server=a", "--token-file=" + bad + "x"},
		"unreadable kubeconfig":    {"bootstrap", "--server=a", "--kubeconfig=" + bad},
		"unknown output":           {"bootstrap", "--server=a", "-o=table"},
		"check of another target":  {"bootstrap", "--server=a", "--skip=hub"},
		"no time":                  {"bootstrap", "--server=a", "--timeout=0s"},
		"an argument":              {"bootstrap", "10.0.0.1:6443"},
		"no cluster name":          {"registration", "--hub-kubeconfig=" + bad},
		"neither hub nor cluster":  {"registration", "--cluster-name=a"},
		"unreadable hub":           {"registration", "--cluster-name=a", "--hub-kubeconfig=" + bad},
		"unknown context":          {"registration", "--cluster-name=a", "--hub-context=none"},
		"check of identities":      {"registration", "--cluster-name=a", "--skip=exchange"},
		"neither pod nor account":  {"pod-identity"},
		"pod without a namespace":  {"pod-identity", "--pod=a"},
		"two namespaces":           {"pod-identity", "--pod=a/b", "--service-account=c/d"},
		"unreadable kubeconfig, 2": {"pod-identity", "--pod=a/b", "--kubeconfig=" + bad},
		"unknown target":           {"nonsense"},
	} {
		if r := w.wid(t, "", append([]string{"doctor"}, args...)...); r.code != doctor.ExitUsage || r.stdout != "" || r.stderr == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
