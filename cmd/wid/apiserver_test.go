package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// A named pipe that never ends can be interrupted.
func TestBootstrapInput(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	if r := w.exec(t, "", nil, "mkfifo", "fifo"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	fifo := filepath.Join(w.home, "fifo")
	stdout, said := w.interrupted(t, opened(t, fifo), "", "bootstrap", "list", "--kubeconfig="+fifo)
	if stdout != "" || !strings.Contains(strings.Join(said, ""), "interrupted") {
		t.Errorf("a pipe that nobody writes to: %s%q", stdout, said)
	}
}

// opened tells when somebody reads a named pipe. It keeps the pipe open and
// writes nothing.
func opened(t *testing.T, fifo string) <-chan struct{} {
	reads := make(chan struct{}, 1)
	go func() {
		for t.Context().Err() == nil {
			pipe, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails while nobody reads
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			reads <- struct{}{}
			<-t.Context().Done()
			_ = pipe.Close() // nothing was written
		}
	}()
	return reads
}

// The proxy's password is not in a message about a kubeconfig that cannot be
// used, whatever reads it. Package cli has the other proxies.
func TestProxyPasswordOfKubeconfig(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	file := filepath.Join(w.home, "proxied")
	w.write(t, file,
		"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', proxy-url: 'http://puser:PROXYSECRET%zz@proxy:1'}}]\n"+
			"users: [{name: a, user: {token: x}}]\n")
	for _, args := range [][]string{
		{"token", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
		{"doctor", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
		{"bootstrap", "check", "--kubeconfig=" + file},
		{"doctor", "registration", "--cluster-name=a", "--hub-kubeconfig=" + file},
	} {
		r := w.wid(t, "", append(args, "--timeout=10s")...)
		if r.code == 0 || r.stdout+r.stderr == "" || strings.Contains(r.stdout+r.stderr, "PROXYSECRET") {
			t.Errorf("%q: got %+v, want a failure without the password", args, r)
		}
	}
}

// withPlugin writes a kubeconfig with an exec plugin that is a script.
func (w *environment) withPlugin(t *testing.T, server, script string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
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

// Whoever reads wid's standard error from a pipe, as this test does, does not
// wait for a plugin that hangs.
func TestExecPluginThatHangs(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
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
		w.outOfTime(t, []string{command, "--provider=aws", "--kubeconfig=" + file, "--service-account=tenant-a/app"},
			func(r result) bool {
				if r.code == 0 {
					t.Errorf("%s: got %+v, want a failure", command, r)
				}
				return strings.Contains(r.stderr, "the plugin speaks\n")
			})
	}
}

// What a plugin says before it fails is passed on.
func TestExecPluginThatFails(t *testing.T) {
	w := newEnvironment(t)
	file := w.withPlugin(t, "https://127.0.0.1:1", "echo log in first >&2; exit 3")
	r := w.wid(t, "", "token", "--provider=aws", "--kubeconfig="+file, "--service-account=tenant-a/app",
		"--region=eu-central-1")
	if r.code != cli.ExitUnavailable || r.stdout != "" || !strings.Contains(r.stderr, "log in first\n") ||
		!strings.Contains(r.stderr, "\nwid: ") {
		t.Errorf("got %+v, want code %d after what the plugin says", r, cli.ExitUnavailable)
	}
}
