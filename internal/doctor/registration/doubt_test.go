package registration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/internal/doctor/registration"
)

// Any user who may create requests can give them the cluster's label.
func TestRequestOfAnotherUser(t *testing.T) {
	forged := func(name string, labels object) object {
		csr := newCSR(name, "mallory", "", 0)
		for key, value := range labels {
			part(part(csr, "metadata"), "labels")[key] = value
		}
		return csr
	}
	for name, tt := range map[string]struct {
		spoil        func(w *environment)
		check, class string
		result       doctor.Result
	}{
		"alone": {func(w *environment) { accepted(w); w.csrs = []object{forged("evil", nil)} }, "csr", "UnknownRequester", ""},
		"beside the agent's": {func(w *environment) {
			accepted(w)
			w.csrs = []object{forged("evil", nil), newCSR("cluster1-new", "system:bootstrap:abcdef", "", time.Minute)}
		}, "csr", "RequestPending", ""},
		"for an add-on": {func(w *environment) {
			w.csrs = append(w.csrs, forged("evil", object{"open-cluster-management.io/addon-name": "work"}))
		}, "addons", "UnknownRequester", doctor.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tt.spoil(w)
			report := w.run()
			reporttest.Headline(t, report, reporttest.Want{Check: tt.check, Class: tt.class, Result: tt.result}, secretValue)
			if text := report.Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, "approve evil") {
				t.Errorf("%s", text)
			}
		})
	}
}

// The hub's condition alone does not prove that the agent works.
func TestLeaseThatProvesNothing(t *testing.T) {
	for name, spoil := range map[string]func(w *environment){
		"missing":       func(w *environment) { w.lease = nil },
		"never renewed": func(w *environment) { delete(part(w.lease, "spec"), "renewTime") },
		"in the future": func(w *environment) { part(w.lease, "spec")["renewTime"] = "2099-01-01T00:00:00.000000Z" },
		"unreadable":    func(w *environment) { w.forbidden["Lease"] = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			spoil(w)
			reporttest.Headline(t, w.run(), reporttest.Want{Check: "lease", Class: "ManagedClusterLeaseUpdateStopped", Result: doctor.Warn}, secretValue)
		})
	}
}

// A hub that cannot be examined is the headline, with and without the cluster's kubeconfig.
func TestHubThatCannotBeExamined(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(w *environment)
		check string
	}{
		"no rights": {func(w *environment) { w.forbidden["ManagedCluster"] = true }, "hub"},
		"no answer": {func(w *environment) { w.config.Hub, w.config.Timeout = stuck{}, 100*time.Millisecond }, "sides"},
	} {
		for side, alone := range map[string]bool{"hub alone": true, "both sides": false} {
			t.Run(name+", "+side, func(t *testing.T) {
				w := newEnvironment(t)
				tt.spoil(w)
				if w.run(); alone { // the config is filled in
					w.config.Spoke = nil
				}
				if report := examine.Run(t.Context(), w.config); report.Headline != tt.check || report.Result != doctor.Unknown {
					t.Errorf("%s", report)
				}
			})
		}
	}
}
