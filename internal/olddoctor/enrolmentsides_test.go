package doctor_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What the hub holds under a name that the cluster does not register under is not accepted, approved or deleted.
func TestEnrolmentUnderAnotherName(t *testing.T) {
	for name, spoil := range map[string]func(w *hubWorld){
		"nobody has accepted": fresh,
		"denied": func(w *hubWorld) {
			fresh(w)
			setConditions(w.cluster, "HubAcceptedManagedCluster", "False", "HubClusterAdminDenied")
		},
		"request waits": func(w *hubWorld) {
			fresh(w)
			w.csrs = []object{newCSR("cluster1-new", "system:bootstrap:abcdef", "", 0)}
		},
		"older enrolment": func(w *hubWorld) { w.cluster = nil },
	} {
		w := newHubWorld(t)
		spoil(w)
		part(w.klusterlet, "spec")["clusterName"] = "cluster2"
		report := w.run()
		if f := report.Worst(); f.ID != "enrolment-agent" || f.Class != "O23" {
			t.Errorf("%s: begins with %+v", name, f)
		}
		for _, do := range []string{"clusteradm accept", "hubAcceptsClient\":true", "certificate approve", "delete managedcluster"} {
			if strings.Contains(report.String(), do) {
				t.Errorf("%s: %s\n%s", name, do, report)
			}
		}
	}
}

// Accepting does not help an agent that cannot ask.
func TestEnrolmentAcceptingDoesNotHelpYet(t *testing.T) {
	w := newHubWorld(t)
	fresh(w)
	setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretUnauthorized,HubKubeConfigMissing")
	report := w.run()
	if f := report.Of("enrolment-accept"); f.Result != doctor.Warn || f.Class != "O10" || strings.Contains(f.Remedy, "accept --") {
		t.Errorf("%+v", f)
	}
	if f := report.Worst(); f.ID != "enrolment-agent" || f.Class != "O19" {
		t.Errorf("begins with %+v\n%s", f, report)
	}
}

// Kubeconfigs that were mixed up are told, and no remedy installs anything in the wrong cluster.
func TestEnrolmentMixedUpKubeconfigs(t *testing.T) {
	hub, cluster := &rest.Config{Host: "https://127.0.0.1:1"}, &rest.Config{Host: "127.0.0.1:2"}
	for name, tt := range map[string]struct {
		use                func(w *hubWorld)
		check, class, says string
	}{
		"swapped": {func(w *hubWorld) {
			of := &hubWorld{t: t, unknown: map[string]bool{"ManagedCluster": true}}
			w.unknown["Klusterlet"] = true
			w.config.Hub = of.serve(w.klusterlet, w.boot, w.agent)
			w.config.Spoke = w.serve(append(w.csrs, w.cluster, w.lease, w.addon)...)
		}, "enrolment-hub", "O1", "swapped"},
		"the cluster's alone": {func(w *hubWorld) {
			w.unknown["ManagedCluster"] = true
			w.config.Hub = w.serve(w.klusterlet)
			w.config.Spoke = nothing(t)
		}, "enrolment-hub", "O1", "a cluster to be managed"},
		"the cluster's twice": {func(w *hubWorld) {
			w.unknown["ManagedCluster"] = true
			w.config.HubRESTConfig = cluster
			w.config.Hub = w.serve(w.klusterlet, w.boot, w.agent)
			w.config.Spoke = w.config.Hub
		}, "enrolment-hub", "O1", "same API server"},
		"the hub's twice": {func(w *hubWorld) {
			w.unknown["Klusterlet"], w.config.SpokeRESTConfig = true, &rest.Config{Host: "127.0.0.1:1/"}
			w.config.Hub = w.serve(append(w.csrs, w.cluster, w.lease, w.addon)...)
			w.config.Spoke = w.config.Hub
		}, "enrolment-agent", "O22", "hub's own API server"},
		"the hub's twice, and it manages itself": {func(w *hubWorld) {
			w.config.SpokeRESTConfig = hub
			part(w.klusterlet, "spec")["clusterName"] = "local-cluster"
		}, "enrolment-agent", "O23", "hub's own API server"},
	} {
		w := newHubWorld(t)
		w.config.HubRESTConfig, w.config.SpokeRESTConfig = hub, cluster
		tt.use(w)
		report := w.run()
		if f := report.Worst(); f.ID != tt.check || f.Class != tt.class || !strings.Contains(f.Message, tt.says) {
			t.Errorf("%s: begins with %+v\n%s", name, f, report)
		}
		for _, do := range []string{"clusteradm init", "clusteradm join"} {
			if strings.Contains(report.String(), do) && (name != "the cluster's alone" || do != "clusteradm join") {
				t.Errorf("%s: %s\n%s", name, do, report)
			}
		}
	}
}

// A hub that manages itself is no mistake.
func TestEnrolmentOfTheHubItself(t *testing.T) {
	w := newHubWorld(t)
	w.config.SpokeRESTConfig = w.config.HubRESTConfig
	if report := w.run(); report.ExitCode() != doctor.ExitPass {
		t.Error(report)
	}
}

// nothing is a cluster that knows no kind of Open Cluster Management.
func nothing(t *testing.T) client.Reader {
	t.Helper()
	return (&hubWorld{t: t, unknown: map[string]bool{"Klusterlet": true, "ManagedCluster": true}}).serve()
}
