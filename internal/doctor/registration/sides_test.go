package registration_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
)

// What the hub holds under a name that the cluster does not register under is not accepted, approved or deleted.
func TestUnderAnotherName(t *testing.T) {
	for name, spoil := range map[string]func(w *environment){
		"not accepted": fresh,
		"denied": func(w *environment) {
			fresh(w)
			setConditions(w.cluster, "HubAcceptedManagedCluster", "False", "HubClusterAdminDenied")
		},
		"request waits": func(w *environment) {
			fresh(w)
			w.csrs = []object{newCSR("cluster1-new", "system:bootstrap:abcdef", "", 0)}
		},
		"older enrolment": func(w *environment) { w.cluster = nil },
	} {
		w := newEnvironment(t)
		spoil(w)
		part(w.klusterlet, "spec")["clusterName"] = "cluster2"
		report := w.run()
		reporttest.Headline(t, report, reporttest.Want{Check: "agent", Class: "AnotherClusterName"})
		for _, do := range []string{"clusteradm accept", "hubAcceptsClient\":true", "certificate approve", "delete managedcluster"} {
			if strings.Contains(report.Text(doctor.TextOptions{Verbose: true}), do) {
				t.Errorf("%s: %s\n%s", name, do, report)
			}
		}
	}
}

// Accepting does not help an agent that cannot ask.
func TestAcceptingDoesNotHelpYet(t *testing.T) {
	w := newEnvironment(t)
	fresh(w)
	setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretUnauthorized,HubKubeConfigMissing")
	report := w.run()
	reporttest.Headline(t, report, reporttest.Want{Check: "agent", Class: "BootstrapSecretUnauthorized"})
	if f := report.Of("accept"); f.Result != doctor.Skip {
		t.Errorf("%+v", f)
	}
}

// Kubeconfigs that were mixed up are told, and no remedy installs anything in the wrong cluster.
func TestMixedUpKubeconfigs(t *testing.T) {
	for name, tt := range map[string]struct {
		use                func(w *environment)
		check, class, says string
	}{
		"swapped": {func(w *environment) {
			of := &environment{t: t, unknown: map[string]bool{"ManagedCluster": true}}
			w.unknown["Klusterlet"] = true
			w.config.Hub = of.serve(w.klusterlet, w.boot, w.agent)
			w.config.Spoke = w.serve(append(w.csrs, w.cluster, w.lease, w.addon, w.role, w.binding)...)
		}, "sides", "WrongKubeconfig", "swapped"},
		"the cluster's alone": {func(w *environment) {
			w.unknown["ManagedCluster"] = true
			w.config.Hub = w.serve(w.klusterlet)
			w.config.Spoke = nothing(t)
		}, "sides", "WrongKubeconfig", "does not lead to a hub"},
		"the cluster's twice": {func(w *environment) {
			w.unknown["ManagedCluster"] = true
			w.config.Hub = w.serve(w.klusterlet, w.boot, w.agent)
			w.config.Spoke = w.config.Hub
		}, "sides", "WrongKubeconfig", "does not lead to a hub"},
		"the hub's twice": {func(w *environment) {
			w.unknown["Klusterlet"] = true
			w.config.Hub = w.serve(append(w.csrs, w.cluster, w.lease, w.addon, w.role, w.binding)...)
			w.config.Spoke = w.config.Hub
		}, "agent", "AgentMissing", "no agent"},
	} {
		w := newEnvironment(t)
		tt.use(w)
		report := w.run()
		reporttest.Headline(t, report, reporttest.Want{Check: tt.check, Class: tt.class, Says: tt.says})
		for _, do := range []string{"wid hub init", "wid join", "clusteradm join"} {
			if strings.Contains(report.Text(doctor.TextOptions{Verbose: true}), do) {
				t.Errorf("%s: %s\n%s", name, do, report)
			}
		}
	}
}

// nothing is a cluster that knows no kind of Open Cluster Management.
func nothing(t *testing.T) client.Reader {
	t.Helper()
	return (&environment{t: t, unknown: map[string]bool{"Klusterlet": true, "ManagedCluster": true}}).serve()
}
