package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// targetReport is a report of a target without a provider.
func targetReport(t *testing.T, r result) *doctor.Report {
	t.Helper()
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 || report.Subject == "" {
		t.Fatalf("%v: %+v", err, r)
	}
	return report
}

// A real API server that is no hub, asked as both sides.
func TestDoctorRegistration(t *testing.T) { // before a test makes it one
	w := newKubeWorld(t)
	args := []string{"doctor", "registration", "--cluster-name=cluster1", "--hub-kubeconfig=" + w.kubeconfig, "--kubeconfig=" + w.kubeconfig}
	r := w.wid(t, "", append(args, "-o=json")...)
	if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "sides" || f.Class != "WrongKubeconfig" {
		t.Errorf("ends with %d: %s", r.code, r.stdout)
	}
	if r := w.wid(t, "", args...); !strings.HasPrefix(r.stdout, "✗ registration of cluster cluster1, hub: cluster ") {
		t.Errorf("%+v", r)
	}
}

// A real API server without IAMBindings.
func TestDoctorPodIdentity(t *testing.T) {
	w := newKubeWorld(t)
	w.createPod(t, "app-0")
	for name, args := range map[string][]string{
		"a pod":                             {"--pod=" + w.namespace + "/app-0", "--kubeconfig=" + w.kubeconfig},
		"a ServiceAccount":                  {"--service-account=" + w.namespace + "/app", "--kubeconfig=" + w.kubeconfig},
		"the kubeconfig of the environment": {"--service-account=" + w.namespace + "/app"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, "", []string{"KUBECONFIG=" + w.kubeconfig}, "wid", append([]string{"doctor", "pod-identity", "-o=json"}, args...)...)
			if f := targetReport(t, r).Worst(); r.code != doctor.ExitFail || f.Check != "binding" || f.Class != "ProviderNotInstalled" {
				t.Errorf("ends with %d: %s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}
