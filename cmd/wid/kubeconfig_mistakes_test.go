package main

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
)

// Each mistake in a kubeconfig shows the value and the remedy, whichever
// command reads it.
func TestMistakesInAKubeconfig(t *testing.T) {
	valid := kubeconfigThrough("https://127.0.0.1:1", "")
	commands := map[string][]string{
		"bootstrap":  {"bootstrap", "list"},
		"credential": {"token", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app"},
		"doctor":     {"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app"},
		"hub":        {"hub", "status"},
		"issuer":     {"issuer", "check"},
		"pods":       {"doctor", "pod-identity", "--pod=tenant-a/app-0"},
	}
	for name, tc := range map[string]struct {
		kubeconfig string
		args       []string
		want       []string
	}{
		"a current-context that does not exist": {strings.Replace(valid, `"current-context":"c"`, `"current-context":"gone"`,
			1), nil,
			[]string{`the current-context "gone" does not exist`, "kubectl --kubeconfig ", " config get-contexts lists them"}},
		"no current-context": {strings.Replace(valid, `"current-context":"c"`, `"current-context":""`, 1), nil,
			[]string{`the current-context "" does not exist`, "config get-contexts"}},
		"another context": {valid, []string{"--context=gone"},
			[]string{`the context "gone" does not exist`, "config get-contexts"}},
		"a context whose cluster does not exist": {strings.Replace(valid, `"cluster":"c"`, `"cluster":"gone"`, 1), nil,
			[]string{`current-context "c"`, `the cluster "gone", which does not exist`, "correct it"}},
		"an IPv6 address and a port": {kubeconfigThrough("https://fd00::1:6443", ""), nil,
			[]string{`"https://fd00::1:6443"`, "https://[<address>]:<port>"}},
		"an IPv6 address": {kubeconfigThrough("https://fd00::1", ""), nil,
			[]string{`"https://fd00::1"`, "https://[<address>]:<port>"}},
		"an IPv6 address, no scheme": {kubeconfigThrough("fd00::1", ""), nil,
			[]string{`"fd00::1"`, "https://[<address>]:<port>"}},
		"a full IPv6 address, a port": {kubeconfigThrough("https://1:2:3:4:5:6:7:8:443", ""), nil,
			[]string{`"https://1:2:3:4:5:6:7:8:443"`, "in brackets"}},
	} {
		for command, args := range commands {
			t.Run(name+", "+command, func(t *testing.T) {
				t.Setenv(credentials.DepthVariable, "")
				args := append(append(args[:len(args):len(args)], "--kubeconfig="+writeFile(t, "kube.yaml", tc.kubeconfig),
					"--timeout=5s"), tc.args...)
				out, err := wid(t, "", args...)
				if err == nil {
					t.Fatalf("wid %q: %s", args, out)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("wid %q: %v, without %q", args, err, want)
					}
				}
			})
		}
	}
	t.Run("addresses in flags", func(t *testing.T) {
		for _, args := range [][]string{
			{"bootstrap", "discover", "fd00::1:6443", "--token=abcdef.0123456789abcdef",
				"--ca-cert-hash=sha256:" + strings.Repeat("0", 64)},
			{"hub", "init", "--image=x", "--hub-apiserver=https://fd00::1:6443", "--apply",
				"--kubeconfig=" + writeFile(t, "kube.yaml", valid)},
		} {
			if out, err := wid(t, "", args...); err == nil ||
				!strings.Contains(err.Error(), `with the IPv6 address in brackets, not "https://fd00::1:6443"`) {
				t.Errorf("wid %q: %v\n%s", args, err, out)
			}
		}
	})
}
