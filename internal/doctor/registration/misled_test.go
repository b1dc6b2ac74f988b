package registration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/doctor"
)

// Faults of remedies that users met.
func TestRemediesThatMisled(t *testing.T) {
	own := func(change func(w *environment)) func(*environment) {
		return func(w *environment) { w.ownAgent(); change(w) }
	}
	const bootstrapUser = "system:bootstrap:abcdef"
	for name, tt := range map[string]struct {
		spoil func(w *environment)
		check string
		// with and without are parts of the remedy.
		with, without string
	}{
		"no ManagedCluster":                         {own(func(w *environment) { w.cluster = nil }), "hub", "\nwid hub token --cluster-name cluster1 --context HUB\nkubectl --context CLUSTER delete secret", ""},
		"no ManagedCluster, no bootstrap Secret":    {own(func(w *environment) { w.cluster, w.boot = nil, nil }), "hub", "\nwid hub token --cluster-name cluster1 --context HUB\nkubectl --context CLUSTER delete secret", ""},
		"no ManagedCluster, no credential":          {own(func(w *environment) { w.cluster, w.agent = nil, nil }), "hub", "wid hub token --cluster-name cluster1 --context HUB", "delete secret"},
		"kubeconfig malformed, no bootstrap Secret": {own(func(w *environment) { w.boot = nil; part(w.agent, "data")["kubeconfig"] = "eA==" }), "secret", "hub-kubeconfig-secret\nwid hub token --cluster-name cluster1 --context HUB", ""},
		"kubeconfig malformed":                      {own(func(w *environment) { part(w.agent, "data")["kubeconfig"] = "eA==" }), "secret", "You lose the agent's certificate", "wid hub token"},
		"no agent":                                  {own(func(w *environment) { w.deployment = nil }), "agent", "wid hub token --cluster-name cluster1 --context HUB", "wid join"},
		"both Secrets missing":                      {own(func(w *environment) { w.boot, w.agent = nil, nil }), "secret", "wid hub token --cluster-name cluster1 --context HUB", "wid join"},
		"bootstrap Secret missing":                  {own(func(w *environment) { w.boot = nil }), "secret", "wid hub token", "Create it again"},
		"bootstrap Secret empty":                    {own(func(w *environment) { w.boot["data"] = object{} }), "secret", "wid hub token", "Create it again"},
		"certificate malformed":                     {own(func(w *environment) { part(w.agent, "data")["tls.crt"] = "eA==" }), "secret", "--context CLUSTER delete secret", "bootstrap-hub-kubeconfig"},
		"certificate missing":                       {own(func(w *environment) { delete(part(w.agent, "data"), "tls.crt") }), "secret", "--context CLUSTER delete secret", "read in the agent's log"},
		"hub without tokens": {own(func(w *environment) {
			w.items()
			setCondition(w.addon, "TokenInfrastructureReady", "", "", "")
		}), "addons", "wid hub init --image HUB_IMAGE --addon-registration-auth csr,token --apply", ""},
		"denial that the hub has not acted on": {own(func(w *environment) { part(w.cluster, "spec")["hubAcceptsClient"] = false }), "accept", "--context HUB get pods", "wid hub accept"},
		"joined again": {own(func(w *environment) {
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-2 * time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z")
			w.agent = nil
			w.csrs = append(w.csrs, newCSR("cluster1-new", bootstrapUser, "", time.Minute))
		}), "csr", "wid hub accept --clusters cluster1 --approve-request cluster1-new", "logs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			tt.spoil(w)
			report := w.run()
			f := report.Worst()
			if f == nil || f.Check != tt.check {
				t.Fatalf("%s", report.Text(doctor.TextOptions{Verbose: true}))
			}
			said := f.Remedy.Text + "\n" + strings.Join(f.Remedy.Commands, "\n")
			if !strings.Contains(said, tt.with) || tt.without != "" && strings.Contains(said, tt.without) {
				t.Errorf("got %s", said)
			}
		})
	}
}
