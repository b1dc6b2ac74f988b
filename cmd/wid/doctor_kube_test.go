package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// targetReport is a report of a target without a provider.
func targetReport(t *testing.T, r result) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 || report.Subject == "" {
		t.Fatalf("got %+v, %v; want a report", r, err)
	}
	return report
}

// A real API server that is no hub, asked as both sides.
func TestDoctorRegistration(t *testing.T) { // before a test makes it one
	w := newKubeEnvironment(t)
	args := []string{"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + w.kubeconfig,
		"--kubeconfig=" + w.kubeconfig}
	r := w.wid(t, "", append(args, "-o=json")...)
	if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "sides" || f.Class != "WrongKubeconfig" {
		t.Errorf("got %+v, want code %d and WrongKubeconfig", r, doctor.ExitFail)
	}
	if r := w.wid(t, "", args...); !strings.HasPrefix(r.stdout, "✗ registration of cluster cluster1, hub: cluster ") {
		t.Errorf("got %+v, want its first line", r)
	}
}

// A real API server without IAMBindings, found by the environment.
func TestDoctorPodIdentity(t *testing.T) {
	w := newKubeEnvironment(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app-0"},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := w.cluster.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	r := w.exec(t, "", []string{"KUBECONFIG=" + w.kubeconfig}, "wid", "doctor", "pod-identity", "-o=json",
		"--pod="+w.namespace+"/app-0")
	if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "binding" ||
		f.Class != "ProviderNotInstalled" {
		t.Errorf("got %+v, want code %d and ProviderNotInstalled", r, doctor.ExitFail)
	}
}

// The remedy of keys that do not fit runs as printed, at the examined cluster,
// with the store filled in.
func TestDoctorRemedyOfKeys(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	w.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRoleWithWebIdentity", Status: http.StatusBadRequest,
		Code:    "InvalidIdentityToken",
		Message: "Couldn't retrieve verification key from your identity provider"})
	f := parseReport(t, w.wid(t, "", append([]string{"doctor", "--provider=aws", "-o=json"}, w.app()...)...).stdout).Of(
		"exchange")
	of := " --issuer " + w.cluster.IssuerURL()
	if f.Class != "SigningKeyUnavailable" || len(f.Remedy.Commands) != 2 {
		t.Fatalf("got %+v, want SigningKeyUnavailable and two commands", f)
	}
	store := filepath.Join(w.home, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"wid issuer check" + of + " --kubeconfig " + w.kubeconfig,
		"wid issuer publish" + of + " --to STORE --kubeconfig " + w.kubeconfig} {
		command := f.Remedy.Commands[i]
		if command != want {
			t.Errorf("got %q, want %q", command, want)
		}
		words, err := exec.CommandContext(t.Context(), "/bin/sh", "-c",
			`printf '%s\n' `+strings.Replace(command, "STORE", "file://"+store,
				1)).Output() //nolint:gosec // what the doctor says
		if err != nil {
			t.Fatal(err)
		}
		r := w.wid(t, "", strings.Split(strings.TrimSpace(string(words)), "\n")[1:]...)
		if isCheck := i == 0; isCheck && (r.code == cli.ExitUsage || !strings.Contains(r.stdout, "IssuerURL")) ||
			!isCheck && r.code != 0 {
			t.Errorf("%s: got %+v, want success", command, r)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "openid", "v1", "jwks")); err != nil {
		t.Error(err)
	}
}
