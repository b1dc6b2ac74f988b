package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// silent accepts connections and never answers.
func silent(t *testing.T) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
	}()
	return listener.Addr().String()
}

// hangingDoctors are the commands in an environment where every server hangs.
func hangingDoctors(t *testing.T, w *environment, address string) map[string][]string {
	t.Helper()
	kubeconfig, login := filepath.Join(w.home, "silent.yaml"), filepath.Join(w.home, "login.yaml")
	w.write(t, kubeconfig, kubeconfigThrough("https://"+address, ""))
	w.write(t, login, strings.Replace(kubeconfigThrough("https://"+address, ""), `"token":"secret"`,
		`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sleep","args":["60"],"interactiveMode":"Never"}`,
		1))
	identity := []string{"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app"}
	return map[string][]string{
		"exchange": append([]string{"doctor", "--provider=aws", "--proxy-url=http://" + address},
			w.inHand(t)...),
		"cluster": append(identity[:len(identity):len(identity)], "--kubeconfig="+kubeconfig),
		"login":   append(identity[:len(identity):len(identity)], "--kubeconfig="+login),
		"registration": {"doctor", "registration", "--cluster-name=cluster1",
			"--hub-kubeconfig=" + kubeconfig, "--kubeconfig=" + kubeconfig},
		"registration, login at a hub": {"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + login},
		"pod identity": {"doctor", "pod-identity", "--service-account=tenant-a/app",
			"--kubeconfig=" + kubeconfig},
	}
}

// A check that takes 2 s is named on standard error. Ctrl-C then ends the
// command at once, with what is known on standard output.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	address := silent(t)
	for name, args := range hangingDoctors(t, w, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			until := "waiting for "
			if name == "exchange" {
				until += "the exchange at the cloud" // a busy machine is slow before that, too
			}
			stdout, said := w.interrupted(t, nil, until, args...)
			if len(said) == 0 || !strings.HasPrefix(said[0], "waiting for ") || !strings.HasSuffix(said[0], " …\n") {
				t.Errorf("standard error: %q", said)
			}
			if !strings.HasPrefix(stdout, "? ") || strings.Count(stdout, "\n") > 16 {
				t.Errorf("%s", stdout)
			}
			if name == "exchange" &&
				(!strings.HasPrefix(said[len(said)-1], until) ||
					!strings.Contains(stdout, "Interrupted during the check of the exchange at the cloud. [exchange]")) {
				t.Errorf("%q\n%s", said, stdout)
			}
		})
	}
}

// When the time is over there is a report.
func TestDoctorOutOfTime(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	address := silent(t)
	for name, args := range hangingDoctors(t, w, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.outOfTime(t, args, func(r result) bool {
				return r.code == doctor.ExitUncertain && strings.HasPrefix(r.stdout, "? ") && strings.Count(r.stdout, "\n") > 2
			})
		})
	}
}

// outOfTime calls wid with little time, which it keeps to. On a busy machine it
// may be over before the wanted step has begun: then wid is called again with
// more.
func (w *environment) outOfTime(t *testing.T, args []string, wanted func(r result) bool) {
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

const (
	echoedSecret   = "exec-secret-token-0123456789abcdef"
	echoedPassword = "hunter2-pass1"
)

// echoing has an API server refuse with what say makes of the header that it
// was sent, and returns kubeconfigs for it by how their users log in.
func (w *environment) echoing(t *testing.T, say func(sent string) string) map[string]string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"code":   http.StatusForbidden,
			"reason": "Forbidden", "message": say(r.Header.Get("Authorization"))})
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	paths := map[string]string{}
	for name, user := range map[string]string{
		"token": `"token":"` + echoedSecret + `"`,
		"plugin": `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"echo","interactiveMode":"Never","args":["` +
			`{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"` +
			echoedSecret + `\"}}"]}`,
		"password": `"username":"joe","password":"` + echoedPassword + `"`,
	} {
		paths[name] = filepath.Join(w.home, name+".yaml")
		config := strings.Replace(kubeconfigThrough(server.URL, ""), `"token":"secret"`, user, 1)
		w.write(t, paths[name], strings.Replace(config, `"proxy-url":""`, `"certificate-authority-data":"`+ca+`"`, 1))
	}
	return paths
}

// A credential of the kubeconfig's that an API server repeats is in no message
// of the commands that hand out credentials.
func TestErrorsKeepWhatIsEchoed(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for name, path := range w.echoing(t, func(sent string) string {
		_, bare, _ := strings.Cut(sent, " ")
		return "sent: " + bare + ", " + base64.StdEncoding.EncodeToString([]byte(bare)) + ", " + sent
	}) {
		for _, args := range [][]string{
			{"token", "--provider=generic", "--audience=x"}, {"credential-process", "--region=eu-central-1"},
			{"exec-credential", "--provider=generic", "--audience=x", "--cluster-address=https://192.0.2.1"},
			{"kubeconfig", "--provider=generic", "--audience=x", "--cluster-address=https://192.0.2.1"},
			{"docker-credential", "get"},
		} {
			r := w.wid(t, "123456789012.dkr.ecr.eu-central-1.amazonaws.com",
				append(args, "--kubeconfig="+path, "--service-account=tenant-a/app", "--no-cache")...)
			all := r.stdout + r.stderr
			if !strings.Contains(all, "sent: [redacted]") {
				t.Errorf("%s, %s: the server's words are not there: %s", name, args, all)
			}
			for _, part := range []string{echoedSecret[:12], echoedPassword[:8],
				base64.StdEncoding.EncodeToString([]byte(echoedSecret))[:12],
				base64.StdEncoding.EncodeToString([]byte("joe:" + echoedPassword))[:12]} {
				if strings.Contains(all, part) {
					t.Errorf("%s, %s: %s is in %s", name, args, part, all)
				}
			}
		}
	}
}

// No report holds what a plugin of a kubeconfig prints, or a user's password,
// although the API server repeats it.
func TestDoctorKeepsWhatIsEchoed(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for name, path := range w.echoing(t, func(sent string) string { return "you sent " + sent }) {
		for doctor, args := range map[string][]string{
			"provider": {"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app",
				"--pod=tenant-a/p"},
			"pod identity": {"doctor", "pod-identity", "--service-account=tenant-a/app"},
			"registration": {"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + path},
		} {
			for _, output := range []string{"text", "json", "yaml"} {
				r := w.wid(t, "", append(args, "--kubeconfig="+path, "--output="+output, "--verbose")...)
				all := r.stdout + r.stderr
				if strings.Contains(all, echoedSecret[:18]) || strings.Contains(all, echoedPassword) ||
					strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("joe:" + echoedPassword))[:12]) {
					t.Errorf("%s, %s, %s: %s", name, doctor, output, all)
				}
				if doctor == "provider" && !strings.Contains(all, "[redacted]") {
					t.Errorf("%s: the server's words are not there: %s", name, all)
				}
			}
		}
	}
}
