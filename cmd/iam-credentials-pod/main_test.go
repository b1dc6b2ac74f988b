//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

const secret = "c2VjcmV0"

// pod is the environment that the webhook gives to the sidecar, and the server
// behind it.
type pod struct {
	server, token string
	env           map[string]string
	up            atomic.Bool
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{token: filepath.Join(t.TempDir(), "token")}
	server := httptest.NewTLSServer(http.HandlerFunc(p.answer))
	t.Cleanup(server.Close)
	p.server = server.URL
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p.env = map[string]string{secretVariable: secret, caVariable: string(ca)}
	if err := os.WriteFile(p.token, []byte("pod-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pod) answer(w http.ResponseWriter, r *http.Request) {
	answer := map[string]string{"Code": "NotBound", "Message": "no IAMBinding names this ServiceAccount"}
	w.Header().Set("Content-Type", "application/json")
	if p.up.Load() && r.Header.Get("Authorization") == "Bearer pod-token" {
		answer = map[string]string{"AccessKeyId": "ASIA", "SecretAccessKey": "hidden", "Token": "session",
			"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	} else {
		w.WriteHeader(http.StatusForbidden)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *pod) getenv(name string) string { return p.env[name] }

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	return l.Addr().String()
}

// build compiles the program as its image has it.
func build(t *testing.T) string {
	t.Helper()
	// Opening the source makes it an input of the test cache: the test binary
	// itself does not contain func main.
	if _, err := os.Stat("main.go"); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "pod")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program,
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func (p *pod) command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// The init gate: the probe fails with the reason until the sidecar has really
// fetched credentials.
func TestSidecarAndItsStartupProbe(t *testing.T) {
	p, program, address := newPod(t), build(t), freePort(t)
	probe := func() (string, error) {
		out, err := p.command(t, program, "proxy", "--check", "--listen="+address).CombinedOutput()
		return string(out), err
	}
	if out, err := probe(); err == nil || !strings.Contains(out, "connection refused") {
		t.Errorf("before the start: %s, %v", out, err)
	}
	sidecar := p.command(t, program, "proxy", "--server="+p.server, "--token-file="+p.token, "--listen="+address)
	var log bytes.Buffer
	sidecar.Stderr = &log
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the probe fails with the reason", func() bool {
		out, err := probe()
		return err != nil && out == "iam-credentials-pod: NotBound: no IAMBinding names this ServiceAccount\n"
	})
	p.up.Store(true)
	kubetest.Eventually(t, "the probe succeeds without a word", func() bool {
		out, err := probe()
		return err == nil && out == ""
	})
	checkMemoryUnderLoad(t, sidecar.Process.Pid, address)
	if err := sidecar.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := sidecar.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if !strings.Contains(log.String(), "NotBound") || strings.Contains(log.String(), "hidden") ||
		strings.Contains(log.String(), secret) {
		t.Errorf("log: %s", &log)
	}
}

// checkMemoryUnderLoad reports the resident memory with 16 connections, which
// every pod of a cluster pays.
func checkMemoryUnderLoad(t *testing.T, pid int, address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 1000 {
				if err := fetch(t.Context(), client, "http://"+address+"/v1/credentials"); err != nil {
					t.Errorf("fetch under load: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	const limit = 20 << 10
	if kib := resident(t, pid); kib > limit {
		t.Errorf("%d KiB resident, more than %d", kib, limit)
	} else {
		t.Logf("%d KiB resident after 16,000 requests on 16 connections", kib)
	}
}

func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

func fetch(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", secret)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s %w", resp.Status, body, err)
	}
	return nil
}

func TestCommandLinesThatCannotWork(t *testing.T) {
	p := newPod(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":       {nil, "proxy and redirect"},
		"unknown command":  {[]string{"serve"}, "proxy and redirect"},
		"extra argument":   {[]string{"proxy", "now"}, `unknown argument "now"`},
		"unknown flag":     {[]string{"proxy", "--port=1"}, "-port"},
		"no server":        {[]string{"proxy"}, `server ""`},
		"reachable by all": {[]string{"proxy", "--server=" + p.server, "--listen=0.0.0.0:2020"}, "use 127.0.0.1:port"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), test.args, p.getenv, io.Discard, io.Discard); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
