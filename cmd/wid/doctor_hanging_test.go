package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// silent accepts connections and never answers. It says when there is one.
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

// hangingDoctors are the commands in a world where every server hangs, each with what is to be named.
func hangingDoctors(t *testing.T, w *world, address, kubeconfig string) map[string][]string {
	t.Helper()
	return map[string][]string{
		"provider": append([]string{"doctor", "--provider=aws", "--proxy-url=http://" + address}, w.inHand(t)...),
		"cluster":  {"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app", "--kubeconfig=" + kubeconfig},
		"bootstrap": {"doctor", "bootstrap", "--server=" + address, "--token=abcdef.0123456789abcdef", "--unsafe-skip-ca-verification",
			"--kubeconfig=" + kubeconfig},
		"enrolment": {"doctor", "enrolment", "--cluster-name=cluster1", "--hub-kubeconfig=" + kubeconfig, "--kubeconfig=" + kubeconfig},
	}
}

// Ctrl-C ends each doctor at once, with nothing on standard output, whatever hangs.
func TestDoctorInterrupted(t *testing.T) {
	w := newWorld(t)
	address, called := silent(t)
	kubeconfig := filepath.Join(w.home, "silent.yaml")
	w.write(t, kubeconfig, kubeconfigThrough("https://"+address, ""))
	for _, args := range hangingDoctors(t, w, address, kubeconfig) {
		w.interrupted(t, called, args...)
		for len(called) > 0 {
			<-called
		}
	}
}

// When the time is over there is a report, which names whoever has used it.
func TestDoctorOutOfTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := silent(t)
	kubeconfig, login := filepath.Join(w.home, "silent.yaml"), filepath.Join(w.home, "login.yaml")
	w.write(t, kubeconfig, kubeconfigThrough("https://"+address, ""))
	w.write(t, login, strings.Replace(kubeconfigThrough("https://"+address, ""), `"token":"secret"`,
		`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sleep","args":["60"],"interactiveMode":"Never"}`, 1))
	all := hangingDoctors(t, w, address, kubeconfig)
	all["login"] = []string{"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app", "--kubeconfig=" + login}
	all["login for the hub"] = []string{"doctor", "enrolment", "--cluster-name=cluster1", "--hub-kubeconfig=" + login}
	for name, args := range all {
		w.outOfTime(t, args, func(r result) bool {
			return r.code == doctor.ExitUncertain && (name == "provider" || strings.Contains(r.stdout, address)) && strings.Contains(r.stdout, "Begin with check")
		})
	}
}

// outOfTime calls wid with little time, which it keeps to. On a busy machine it may be over before what is wanted was even
// begun: then it is called again with more.
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
