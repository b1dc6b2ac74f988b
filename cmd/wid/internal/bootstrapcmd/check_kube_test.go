package bootstrapcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// run returns the output and the exit code of wid bootstrap.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewBootstrap()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return out.String(), 0
	}
	return out.String(), cli.ExitCode(t.Context(), err)
}

// checkEnvironment is a real API server without a signer.
type checkEnvironment struct {
	*kubetest.Cluster
	t          *testing.T
	kubeconfig string
}

func (w *checkEnvironment) create(args ...string) bootstrap.Token {
	w.t.Helper()
	out, code := run(w.t, append([]string{"create", "-o=json", w.kubeconfig}, args...)...)
	var created Listed
	if err := json.Unmarshal([]byte(out), &created); err != nil || code != 0 {
		w.t.Fatalf("create ends with %d: %s", code, out)
	}
	token, err := bootstrap.ParseToken(created.Token)
	if err != nil || created.ID != token.ID() || created.Expires == "" {
		w.t.Fatalf("%+v, %v", created, err)
	}
	return token
}

// sign does the work of bootstrapsigner.
func (w *checkEnvironment) sign(key string, content bool, token bootstrap.Token) {
	w.t.Helper()
	info := &corev1.ConfigMap{}
	err := w.Client().Get(w.t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, info)
	if err == nil {
		signed := "another content"
		if content {
			signed = info.Data["kubeconfig"]
		}
		info.Data["jws-kubeconfig-"+key] = bootstrap.Sign([]byte(signed), token)
		err = w.Client().Update(w.t.Context(), info)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// wants compares the table with lines, and the exit code.
func (w *checkEnvironment) wants(code int, lines ...string) {
	w.t.Helper()
	var out string
	for end := time.Now().Add(time.Minute); ; { // changed rights take a moment
		var got int
		out, got = run(w.t, "check", w.kubeconfig)
		missing := got != code
		for _, line := range lines {
			missing = missing || !strings.Contains(strings.Join(strings.Fields(out), " "), line)
		}
		if !missing {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("want %q, and exit code %d; it ends with %d:\n%s", lines, code, got, out)
		}
	}
}

func TestCheck(t *testing.T) {
	cluster := kubetest.StartNew(t)
	w := &checkEnvironment{cluster, t, "--kubeconfig=" + cluster.Kubeconfig(t)}
	w.wants(cli.ExitMisconfigured, "cluster-info no not published: run wid bootstrap publish",
		"anonymous no may not read cluster-info", "token no there is none: run wid bootstrap create")
	if out, code := run(t, "publish", w.kubeconfig); code != 0 {
		t.Fatal(out)
	}
	good, signs, other, bare := w.create(), w.create("--usages=signing"), w.create(), w.create()
	w.wants(cli.ExitMisconfigured, "cluster-info yes names https://", "anonymous yes may read",
		"token "+good.ID()+" no expires 20", "no signature in cluster-info")
	w.sign(good.ID(), true, good)
	w.sign(signs.ID(), true, signs)
	w.sign(other.ID(), false, other)
	w.wants(0, "token "+good.ID()+" yes expires 20", "usages authentication,signing; signs cluster-info",
		"usages signing; does not log in: it lacks the usage authentication",
		"its signature in cluster-info does not fit", "token "+bare.ID()+" no")
	w.formats(good)
	w.spoil(good.ID(), "expiration", "2020-01-01T00:00:00Z")
	w.spoil(signs.ID(), "usage-bootstrap-signing", "no")
	w.spoil(other.ID(), "token-id", "fedcba")
	w.wants(cli.ExitMisconfigured, "token "+good.ID()+" no expires 2020-01-01T00:00:00Z",
		"expired: run wid bootstrap create", "lacks the usage signing",
		"token no ignored: secret \"kube-system/bootstrap-token-"+other.ID())
	if err := w.Client().DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace("kube-public")); err != nil {
		t.Fatal(err)
	}
	w.wants(cli.ExitMisconfigured, "anonymous no may not read cluster-info")
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}}
	if err := w.Client().Patch(t.Context(), info,
		client.RawPatch("application/merge-patch+json", []byte(`{"data":{"kubeconfig":"users: [{name: u}]"}}`))); err != nil {
		t.Fatal(err)
	}
	w.wants(cli.ExitMisconfigured, "cluster-info no", ": run wid bootstrap publish")
}

// formats compares JSON and YAML, and finds no secret in them.
func (w *checkEnvironment) formats(token bootstrap.Token) {
	w.t.Helper()
	for format, parse := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		var list struct{ Items []Checked }
		out, code := run(w.t, "check", "-o", format, w.kubeconfig)
		if err := parse([]byte(out), &list); err != nil || code != 0 || len(list.Items) != 6 || !list.Items[0].OK ||
			strings.Contains(out, token.Reveal()[7:]) {
			w.t.Errorf("%s: %v: %s", format, err, out)
		}
		for _, row := range list.Items[2:] {
			if row.OK != (row.ID == token.ID()) || row.Expires == "" || len(row.Usages) == 0 {
				w.t.Errorf("%s: %+v", format, row)
			}
		}
	}
}

func (w *checkEnvironment) spoil(id, key, value string) {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := w.Client().Get(w.t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + id}, secret)
	if err == nil {
		secret.Data[key] = []byte(value)
		err = w.Client().Update(w.t.Context(), secret)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// An API server that refuses requests without a login says so itself; no access
// review would.
func TestCheckWithoutAnonymousRequests(t *testing.T) {
	file := t.TempDir() + "/authentication.yaml"
	content :=
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n  conditions:\n" +
			"  - path: /livez\n  - path: /readyz\n  - path: /healthz\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.StartNew(t, kubetest.Flag{Name: "authentication-config", Value: file})
	w := &checkEnvironment{cluster, t, "--kubeconfig=" + cluster.Kubeconfig(t)}
	w.wants(cli.ExitMisconfigured, "anonymous no the API server refuses requests without a login")
}

// A kubeconfig in JSON is one too.
func TestDiscoverAsJSON(t *testing.T) {
	info := &bootstrap.ClusterInfo{Server: "https://10.0.0.1:6443"}
	file := t.TempDir() + "/info.yaml"
	if err := info.Save(file); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, "discover", "--discovery-file", file, "-o=json")
	found, err := bootstrap.ParseClusterInfo([]byte(out))
	if code != 0 || !json.Valid([]byte(out)) || err != nil || found.Server != info.Server {
		t.Errorf("it ends with %d: %s, %v", code, out, err)
	}
}
