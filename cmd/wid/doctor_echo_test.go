package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const (
	echoedSecret   = "exec-secret-token-0123456789abcdef"
	echoedPassword = "hunter2-pass1"
)

// echoing has an API server refuse with what say makes of the header that it was sent, and returns kubeconfigs for it by how
// their users log in.
func (w *world) echoing(t *testing.T, say func(sent string) string) map[string]string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusForbidden,
			"reason": "Forbidden", "message": say(r.Header.Get("Authorization"))})
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	paths := map[string]string{}
	for name, user := range map[string]string{
		"token": `"token":"` + echoedSecret + `"`,
		"plugin": `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"echo","interactiveMode":"Never","args":["` +
			`{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"` + echoedSecret + `\"}}"]}`,
		"password": `"username":"joe","password":"` + echoedPassword + `"`,
	} {
		paths[name] = filepath.Join(w.home, name+".yaml")
		config := strings.Replace(kubeconfigThrough(server.URL, ""), `"token":"secret"`, user, 1)
		w.write(t, paths[name], strings.Replace(config, `"proxy-url":""`, `"certificate-authority-data":"`+ca+`"`, 1))
	}
	return paths
}

// A credential of the kubeconfig's that an API server repeats is in no message of the commands that hand out credentials.
func TestErrorsKeepWhatIsEchoed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
			r := w.wid(t, "123456789012.dkr.ecr.eu-central-1.amazonaws.com", append(args, "--kubeconfig="+path, "--service-account=tenant-a/app", "--no-cache")...)
			all := r.stdout + r.stderr
			if !strings.Contains(all, "sent: [redacted]") {
				t.Errorf("%s, %s: the server's words are not there: %s", name, args, all)
			}
			for _, part := range []string{echoedSecret[:12], echoedPassword[:8], base64.StdEncoding.EncodeToString([]byte(echoedSecret))[:12],
				base64.StdEncoding.EncodeToString([]byte("joe:" + echoedPassword))[:12]} {
				if strings.Contains(all, part) {
					t.Errorf("%s, %s: %s is in %s", name, args, part, all)
				}
			}
		}
	}
}

// No report holds what a plugin of a kubeconfig prints, or a user's password, although the API server repeats it.
func TestDoctorKeepsWhatIsEchoed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, path := range w.echoing(t, func(sent string) string { return "you sent " + sent }) {
		for doctor, args := range map[string][]string{
			"provider":     {"doctor", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app", "--pod=tenant-a/p"},
			"pod identity": {"doctor", "pod-identity", "--service-account=tenant-a/app"},
			"registration": {"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + path},
		} {
			for _, output := range []string{"text", "json", "yaml"} {
				r := w.wid(t, "", append(args, "--kubeconfig="+path, "--output="+output, "--verbose")...)
				all := r.stdout + r.stderr
				if strings.Contains(all, echoedSecret[:18]) || strings.Contains(all, echoedPassword) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("joe:" + echoedPassword))[:12]) {
					t.Errorf("%s, %s, %s: %s", name, doctor, output, all)
				}
				if doctor == "provider" && !strings.Contains(all, "[redacted]") {
					t.Errorf("%s: the server's words are not there: %s", name, all)
				}
			}
		}
	}
}
