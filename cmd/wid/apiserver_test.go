package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// An answer without end costs neither memory nor patience.
func TestAPIServerThatStreams(t *testing.T) {
	w := newEnvironment(t)
	const most = 64 << 20 // more than the system takes for somebody who does not read
	var whole atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		block := make([]byte, 64<<10)
		_, err := rw.Write([]byte(`{"kind":"`))
		for range most / len(block) {
			if err == nil {
				_, err = rw.Write(block)
			}
		}
		if err == nil {
			whole.Add(1)
		}
	}))
	defer server.Close()
	file := filepath.Join(w.home, "kubeconfig")
	w.write(t, file, kubeconfigOf(t, server.URL, nil, nil, nil, ""))
	r := w.wid(t, "", "token", "--provider=aws", "--kubeconfig="+file, "--service-account=tenant-a/app",
		"--region=eu-central-1")
	if r.code != cli.ExitUnavailable || r.stdout != "" || whole.Load() > 0 {
		t.Errorf("%+v after %d answers that were read whole", r, whole.Load())
	}
}

// An API server that is overloaded is asked again if there is time for that,
// and named as the cause if there is not.
func TestAPIServerThatThrottles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after string
		code  int
	}{"soon": {"1", cli.ExitDenied}, "later": {"40", cli.ExitThrottled}, "in a year": {"31536000", cli.ExitThrottled}} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					rw.Header().Set("Retry-After", tc.after)
					rw.WriteHeader(http.StatusTooManyRequests)
					return
				}
				rw.WriteHeader(http.StatusForbidden)
			}))
			defer server.Close()
			file := filepath.Join(w.home, "kubeconfig")
			w.write(t, file, kubeconfigOf(t, server.URL, nil, nil, nil, ""))
			r := w.wid(t, "", "token", "--provider=aws", "--kubeconfig="+file, "--service-account=tenant-a/app",
				"--region=eu-central-1", "--timeout=30s")
			if r.code != tc.code || r.stdout != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A kubeconfig from another program is read once.
func TestKubeconfigFromAPipe(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	w.write(t, filepath.Join(w.home, "good"), kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, ""))
	for name, tc := range map[string]struct {
		script string
		code   int
		want   string
	}{
		"good":      {"wid token --kubeconfig <(cat good)", cli.ExitUnavailable, "refused"},
		"context":   {"wid token --context x --kubeconfig <(cat good)", cli.ExitUnavailable, "refused"},
		"variable":  {"KUBECONFIG=<(cat good) wid token", cli.ExitUnavailable, "refused"},
		"inherited": {"exec 3< <(cat good); KUBECONFIG=/dev/fd/3 wid token", cli.ExitUnavailable, "refused"},
		"nobody":    {"mkfifo fifo; wid token --timeout=100ms --kubeconfig fifo", cli.ExitUnavailable, "gave up waiting"},
		"empty":     {"wid token --kubeconfig <(true)", cli.ExitMisconfigured, "pass --kubeconfig"},
		"nonsense":  {"wid token --kubeconfig <(echo '{')", cli.ExitMisconfigured, "pass --kubeconfig"},
		"directory": {"mkdir d; wid token --kubeconfig d", cli.ExitMisconfigured, "is a directory"},
	} {
		r := w.exec(t, "", nil, "bash", "-c",
			strings.Replace(tc.script, "wid token", "wid token --provider=generic --audience=x --service-account=tenant-a/app",
				1))
		if r.code != tc.code || r.stdout != "" || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

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
// used.
func TestProxyPasswordOfKubeconfig(t *testing.T) {
	w := newEnvironment(t)
	for _, proxy := range []string{"http://puser:PROXYSECRET%zz@proxy:1", "ftp://puser:PROXYSECRET@proxy",
		"http://puser:PROXYSECRET@proxy:port",
		"http://puser:PROXYSECRET@pro xy", "%PROXYSECRET"} {
		file := filepath.Join(w.home, "proxied")
		w.write(t, file,
			"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
				"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', proxy-url: '"+proxy+
				"'}}]\nusers: [{name: a, user: {token: x}}]\n")
		for _, args := range [][]string{
			{"token", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"doctor", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"bootstrap", "check", "--kubeconfig=" + file},
			{"doctor", "registration", "--cluster-name=a", "--hub-kubeconfig=" + file},
		} {
			r := w.wid(t, "", append(args, "--timeout=10s")...)
			if r.code == 0 || r.stdout+r.stderr == "" || strings.Contains(r.stdout+r.stderr, "PROXYSECRET") {
				t.Errorf("%v: %d\n%s%s", args, r.code, r.stdout, r.stderr)
			}
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
					t.Errorf("%s: %+v", command, r)
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
		t.Errorf("%+v", r)
	}
}
