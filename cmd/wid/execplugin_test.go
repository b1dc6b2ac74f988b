package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// withPlugin writes a kubeconfig with an exec plugin that is a script.
func (w *world) withPlugin(t *testing.T, server, script string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
		Command: "sh", Args: []string{"-c", script}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.home, "plugin.yaml")
	w.write(t, file, string(content))
	return file
}

// Whoever reads wid's standard error from a pipe, as this test does, does not wait for a plugin that hangs.
func TestExecPluginThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pid := filepath.Join(w.home, "pid")
	file := w.withPlugin(t, "https://127.0.0.1:1", "echo $$ >>"+pid+"; echo the plugin speaks >&2; exec sleep 120")
	t.Cleanup(func() {
		content, _ := os.ReadFile(pid)
		for _, line := range strings.Fields(string(content)) {
			n, err := strconv.Atoi(line)
			if plugin, findErr := os.FindProcess(n); err == nil && findErr == nil {
				_ = plugin.Kill() // it may be gone
			}
		}
	})
	for _, command := range []string{"token", "doctor"} {
		w.outOfTime(t, []string{command, "--provider=aws", "--kubeconfig=" + file, "--service-account=tenant-a/app"}, func(r result) bool {
			if r.code == 0 {
				t.Errorf("%s: %+v", command, r)
			}
			return strings.Contains(r.stderr, "the plugin speaks\n")
		})
	}
}

// What a plugin says before it fails is passed on.
func TestExecPluginThatFails(t *testing.T) {
	w := newWorld(t)
	file := w.withPlugin(t, "https://127.0.0.1:1", "echo log in first >&2; exit 3")
	r := w.wid(t, "", "token", "--provider=aws", "--kubeconfig="+file, "--service-account=tenant-a/app", "--region=eu-central-1")
	if r.code != cli.ExitUnavailable || r.stdout != "" || !strings.Contains(r.stderr, "log in first\n") || !strings.Contains(r.stderr, "\nwid: ") {
		t.Errorf("%+v", r)
	}
}
