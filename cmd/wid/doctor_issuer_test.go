package main

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// The remedy of keys that do not fit runs as printed, at the examined cluster, with the store filled in.
func TestDoctorRemedyOfKeys(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t)
	w.cloud.AddFault(authtest.Fault{Service: "sts", Action: "AssumeRoleWithWebIdentity", Status: http.StatusBadRequest, Code: "InvalidIdentityToken",
		Message: "Couldn't retrieve verification key from your identity provider"})
	f := parseReport(t, w.wid(t, "", append([]string{"doctor", "--provider=aws", "-o=json"}, w.app()...)...).stdout).Of("exchange")
	of := " --issuer " + w.cluster.IssuerURL()
	if f.Class != "SigningKeyUnavailable" || len(f.Remedy.Commands) != 2 {
		t.Fatalf("%+v", f)
	}
	store := filepath.Join(w.home, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"wid issuer check" + of + " --kubeconfig " + w.kubeconfig, "wid issuer publish" + of + " --to STORE --kubeconfig " + w.kubeconfig} {
		command := f.Remedy.Commands[i]
		if command != want {
			t.Errorf("%q instead of %q", command, want)
		}
		words, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf '%s\n' `+strings.Replace(command, "STORE", "file://"+store, 1)).Output() //nolint:gosec // what the doctor says
		if err != nil {
			t.Fatal(err)
		}
		r := w.wid(t, "", strings.Split(strings.TrimSpace(string(words)), "\n")[1:]...)
		if isCheck := i == 0; isCheck && (r.code == cli.ExitUsage || !strings.Contains(r.stdout, "IssuerURL")) || !isCheck && r.code != 0 {
			t.Errorf("%s: %+v", command, r)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "openid", "v1", "jwks")); err != nil {
		t.Error(err)
	}
}

// --resolve and --ca-file reach the issuer before its name is public, as in wid issuer check.
func TestDoctorResolvesTheIssuer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked += r.Host + r.URL.Path
		http.NotFound(rw, r)
	}))
	t.Cleanup(server.Close)
	ca, token := filepath.Join(w.home, "ca.crt"), filepath.Join(w.home, "token")
	w.write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	claims := w.issuer.Claims(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}, []string{"sts.amazonaws.com"}, time.Hour)
	claims["iss"] = "https://example.com:" + port + "/c"
	jwt, err := w.issuer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, token, jwt)
	args := append([]string{"doctor", "--provider=aws", "--token-file=" + token, "--region=eu-central-1", "--resolve=example.com:" + port + ":" + host, "-o=json"}, annotationFlags()...)
	r := w.wid(t, "", append(args, "--ca-file="+ca)...)
	if f := parseReport(t, r.stdout).Of("issuer"); f.StatusCode != http.StatusNotFound || asked != "example.com:"+port+"/c/.well-known/openid-configuration" {
		t.Errorf("asked %q, %+v", asked, f)
	}
	if r := w.wid(t, "", append(args, "--resolve=example.com:1")...); r.code != cli.ExitUsage || !strings.Contains(r.stderr, "HOST:PORT:ADDRESS") {
		t.Errorf("%+v", r)
	}
}
