//go:build linux

package workloadid_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// HTTPS_PROXY is for hubs and clouds. Such a proxy may reach no address of the
// cluster.
func TestProgramsReachTheirAPIServerWithoutTheProxy(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig,
		[]byte(`{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": "https://api-server.invalid"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for program, arg := range map[string]string{"cmd/wid-agent": "--cluster-name=c1",
		"cmd/wid-hub":                  "--leader-elect=false",
		"cmd/iam-credentials-provider": "certificates", "examples/controller": "--leader-elect=false"} {
		t.Run(program, func(t *testing.T) {
			var asked atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(http.StatusForbidden)
			}))
			defer proxy.Close()
			binary := filepath.Join(dir, filepath.Base(program))
			goRun(t, ".", "build", "-ldflags=-w", "-o", binary, "./"+program)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			log, writer := io.Pipe()
			cmd := exec.CommandContext(ctx, binary, arg, "--metrics-bind-address=0",
				"--health-probe-bind-address=0") //nolint:gosec // a program of this tree
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
			cmd.Stdout, cmd.Stderr = writer, writer
			go func() { _ = writer.CloseWithError(cmd.Run()) }()
			lines := bufio.NewScanner(log)
			for lines.Scan() && !strings.Contains(lines.Text(), "api-server.invalid") {
				t.Log(lines.Text())
			}
			if lines.Text() == "" || asked.Load() != 0 {
				t.Errorf("%d requests to the proxy: %q, %v", asked.Load(), lines.Text(), lines.Err())
			}
		})
	}
}
