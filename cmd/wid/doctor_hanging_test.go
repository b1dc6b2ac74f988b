package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// silent accepts connections and never answers. It reports each connection.
func silent(t *testing.T) (address string, called <-chan struct{}) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	first := make(chan struct{}, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			first <- struct{}{}
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
	}()
	return listener.Addr().String(), first
}

// hangingDoctors are the commands in a world where every server hangs.
func hangingDoctors(t *testing.T, w *world, address string) map[string][]string {
	t.Helper()
	kubeconfig, login := filepath.Join(w.home, "silent.yaml"), filepath.Join(w.home, "login.yaml")
	w.write(t, kubeconfig, kubeconfigThrough("https://"+address, ""))
	w.write(t, login, strings.Replace(kubeconfigThrough("https://"+address, ""), `"token":"secret"`,
		`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sleep","args":["60"],"interactiveMode":"Never"}`, 1))
	identity := []string{"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app"}
	return map[string][]string{
		"exchange":                     append([]string{"doctor", "--provider=aws", "--proxy-url=http://" + address}, w.inHand(t)...),
		"cluster":                      append(identity[:len(identity):len(identity)], "--kubeconfig="+kubeconfig),
		"login":                        append(identity[:len(identity):len(identity)], "--kubeconfig="+login),
		"registration":                 {"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + kubeconfig, "--kubeconfig=" + kubeconfig},
		"registration, login at a hub": {"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + login},
		"pod identity":                 {"doctor", "pod-identity", "--service-account=tenant-a/app", "--kubeconfig=" + kubeconfig},
	}
}

// lines reports each line that is written to it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A check that takes 2 s is named on standard error. Ctrl-C then ends the command at once, with what is known on standard output.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := silent(t)
	for name, args := range hangingDoctors(t, w, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			until := "waiting for "
			if name == "exchange" {
				until += "the exchange at the cloud" // a busy machine is slow before that, too
			}
			stdout, said := w.interruptedDoctor(t, until, args...)
			if len(said) == 0 || !strings.HasPrefix(said[0], "waiting for ") || !strings.HasSuffix(said[0], " …\n") {
				t.Errorf("standard error: %q", said)
			}
			if !strings.HasPrefix(stdout, "? ") || strings.Count(stdout, "\n") > 16 {
				t.Errorf("%s", stdout)
			}
			if name == "exchange" && (!strings.HasPrefix(said[len(said)-1], until) || !strings.Contains(stdout, "Interrupted during the check of the exchange at the cloud. [exchange]")) {
				t.Errorf("%q\n%s", said, stdout)
			}
		})
	}
}

// interruptedDoctor interrupts wid once it has said a line that begins with until.
func (w *world) interruptedDoctor(t *testing.T, until string, args ...string) (stdout string, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.home, "bin", "wid"), args...) //nolint:gosec // the test's own
	var out bytes.Buffer
	stderr := make(lines, 100)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), w.env...), &out, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(said) == 0 || !strings.HasPrefix(said[len(said)-1], until) {
		select {
		case line := <-stderr:
			said = append(said, line)
		case <-ctx.Done():
			t.Fatalf("no line %q on standard error: %q", until, said)
		}
	}
	start := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	if took := time.Since(start); took > 20*time.Second || cmd.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("wid %q: after %s with %d: %s", args, took, cmd.ProcessState.ExitCode(), out.String())
	}
	for len(stderr) > 0 {
		said = append(said, <-stderr)
	}
	return out.String(), said
}

// When the time is over there is a report.
func TestDoctorOutOfTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := silent(t)
	for name, args := range hangingDoctors(t, w, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.outOfTime(t, args, func(r result) bool {
				return r.code == doctor.ExitUncertain && strings.HasPrefix(r.stdout, "? ") && strings.Count(r.stdout, "\n") > 2
			})
		})
	}
}

// outOfTime calls wid with little time, which it keeps to. On a busy machine it may be over before the wanted step has begun: then
// wid is called again with more.
func (w *world) outOfTime(t *testing.T, args []string, wanted func(r result) bool) {
	t.Helper()
	var r result
	for _, timeout := range []time.Duration{2 * time.Second, 10 * time.Second, 40 * time.Second} {
		start := time.Now()
		r = w.wid(t, "", append(args[:len(args):len(args)], "--timeout="+timeout.String())...)
		if took := time.Since(start); took > timeout+30*time.Second {
			t.Errorf("wid %q: after %s: %+v", args, took, r)
		}
		if wanted(r) {
			return
		}
	}
	t.Errorf("wid %q: %+v", args, r)
}
