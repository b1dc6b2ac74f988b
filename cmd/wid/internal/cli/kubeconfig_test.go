package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
)

// kubeconfig writes one for a server, with changes.
func kubeconfig(t *testing.T, server string, changes ...string) string {
	t.Helper()
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c",` +
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"secret"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + server + `"}}]}`
	path := filepath.Join(t.TempDir(), "kube.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(changes...).Replace(content)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each mistake in a kubeconfig shows the value and the remedy.
func TestMistakesInAKubeconfig(t *testing.T) {
	const valid = "https://127.0.0.1:1"
	for name, tc := range map[string]struct {
		path, context string
		want          []string
	}{
		"a current-context that does not exist": {kubeconfig(t, valid, `"current-context":"c"`, `"current-context":"gone"`),
			"", []string{`the current-context "gone" does not exist`, "kubectl --kubeconfig ",
				" config get-contexts lists them"}},
		"no current-context": {kubeconfig(t, valid, `"current-context":"c"`, `"current-context":""`), "",
			[]string{`the current-context "" does not exist`, "config get-contexts"}},
		"another context": {kubeconfig(t, valid), "gone", []string{`the context "gone" does not exist`}},
		"a context whose cluster does not exist": {kubeconfig(t, valid, `"cluster":"c"`, `"cluster":"gone"`), "",
			[]string{`current-context "c"`, `the cluster "gone", which does not exist`, "correct it"}},
		"an IPv6 address and a port": {kubeconfig(t, "https://fd00::1:6443"), "",
			[]string{`"https://fd00::1:6443"`, "https://[<address>]:<port>"}},
		"an IPv6 address": {kubeconfig(t, "https://fd00::1"), "", []string{`"https://fd00::1"`, "in brackets"}},
		"no scheme":       {kubeconfig(t, "fd00::1"), "", []string{`"fd00::1"`, "https://[<address>]:<port>"}},
		"a full IPv6 address and a port": {kubeconfig(t, "https://1:2:3:4:5:6:7:8:443"), "",
			[]string{`"https://1:2:3:4:5:6:7:8:443"`, "in brackets"}},
		"a folder": {t.TempDir(), "", []string{"is a directory", "pass --kubeconfig"}},
		"a proxy with a password": {kubeconfig(t, valid+`","proxy-url":"ftp://u:PROXYSECRET@proxy`), "",
			[]string{"proxy-url"}},
		"certificates unverified": {kubeconfig(t, valid+`","insecure-skip-tls-verify":true,"x":"`), "",
			[]string{unverified}},
		"no TLS":                    {kubeconfig(t, "http://10.0.0.1:8080"), "", []string{unverified}},
		"a context as in our texts": {kubeconfig(t, valid), "CLUSTER_CONTEXT", []string{`"CLUSTER_CONTEXT"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := (&Side{KubeFile: KubeFile{Path: tc.path, Context: tc.context}}).Config()
			if err == nil || ExitCode(t.Context(), err) != ExitMisconfigured || strings.Contains(err.Error(), "PROXYSECRET") {
				t.Fatalf("got %v, want exit code %d", err, ExitMisconfigured)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

// unverified refuses clusters whose answers become trust elsewhere.
const unverified = "another host could answer for it"

func TestExitCode(t *testing.T) {
	for err, want := range map[error]int{auth.ErrMisconfigured: ExitMisconfigured, auth.ErrDenied: ExitDenied,
		auth.ErrThrottled: ExitThrottled, auth.ErrUnavailable: ExitUnavailable, Usagef("no"): ExitUsage,
		os.ErrNotExist: ExitOther, ExitStatus(3): 3} {
		if got := ExitCode(t.Context(), err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}
