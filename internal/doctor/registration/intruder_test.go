package registration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
)

// asks adds a bootstrap user's request, and the hub's Event about it.
func (w *environment) asks(state, reason, message string) {
	request := newCSR("rival", "system:bootstrap:abcdef", state, 0)
	part(request, "metadata")["uid"] = "u1"
	w.csrs = append(w.csrs, request)
	if reason != "" {
		event := newEvent("e1", "u1", reason, 0)
		event["message"] = message
		w.events = append(w.events, event)
	}
}

const (
	denies   = "kubectl --context HUB certificate deny rival"
	approves = "wid hub accept --clusters cluster1 --approve-request rival --context HUB"
)

// Any bootstrap user can ask for a cluster. The report must not lead an administrator to replace an agent that works.
func TestRequestBesideALiveAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(w *environment)
		reason string // of the hub's Event
		class  string
	}{
		"joined already":              {func(*environment) {}, "AlreadyJoined", "AlreadyJoined"},
		"another agent":               {func(*environment) {}, "AnotherAgent", "AnotherAgent"},
		"another key":                 {func(*environment) {}, "AnotherKey", "AnotherKey"},
		"the Event is gone":           {func(*environment) {}, "", "RequestPending"},
		"the cluster is not examined": {func(w *environment) { w.deployment, w.boot, w.agent, w.hubOnly = nil, nil, nil, true }, "AlreadyJoined", "AlreadyJoined"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.ownAgent()
			tt.spoil(w)
			w.asks("", tt.reason, "if the agent lost its certificate, run "+strings.Repeat("wid hub accept ", 30)+"or deny it")
			report := w.run()
			reporttest.Headline(t, report, reporttest.Want{Check: "csr", Class: tt.class, Says: "can no longer renew", Result: doctor.Warn}, secretValue)
			f := report.Worst()
			if want := []string{denies, approves}; !slices.Equal(f.Remedy.Commands, want) || !strings.Contains(f.Remedy.Text, "Only if the agent was replaced") {
				t.Errorf("%s %q", f.Remedy.Text, f.Remedy.Commands)
			}
			if strings.Contains(f.Message, "wid hub accept") || !strings.Contains(report.String(), "accept --clusters") {
				t.Errorf("%s", report)
			}
		})
	}
}

// The remedy of the warning leaves a healthy report.
func TestDeniedRequestBesideALiveAgent(t *testing.T) {
	w := newEnvironment(t)
	w.asks("Denied", "", "")
	reporttest.Healthy(t, w.run(), secretValue)
}

// Without an agent that works, the request may be that of the right agent or of an intruder.
func TestRequestWithoutALiveAgent(t *testing.T) {
	for name, spoil := range map[string]func(w *environment){
		"the Lease is old": func(w *environment) {
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")
		},
		"the cluster is not available": func(w *environment) {
			setConditions(w.cluster, "ManagedClusterConditionAvailable", "Unknown", "ManagedClusterLeaseUpdateStopped")
		},
		"the agent has lost its credential": func(w *environment) { delete(part(w.agent, "data"), "kubeconfig") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.ownAgent()
			spoil(w)
			w.asks("", "AlreadyJoined", "run "+strings.Repeat("wid hub accept ", 30)+"or deny it")
			report := w.run()
			reporttest.Headline(t, report, reporttest.Want{Check: "csr", Class: "AlreadyJoined", Says: "may replace the agent"}, secretValue)
			f := report.Worst()
			if !strings.Contains(report.String(), "certificate deny") { // the screen shows both commands
				t.Errorf("%s", report)
			}
			const condition = "if the cluster joined again after wid unjoin, or its agent was replaced or lost its certificate"
			if want := []string{approves, denies}; !slices.Equal(f.Remedy.Commands, want) || !strings.Contains(f.Remedy.Text, condition) {
				t.Errorf("%s %q", f.Remedy.Text, f.Remedy.Commands)
			}
		})
	}
}

// An Event from before the acceptance must not send the reader to accept again.
func TestEventFromBeforeTheAcceptance(t *testing.T) {
	w := newEnvironment(t)
	w.ownAgent()
	setConditions(w.cluster, "ManagedClusterJoined", "", "")
	delete(part(w.agent, "data"), "kubeconfig")
	delete(part(w.agent, "data"), "tls.crt")
	w.csrs = nil
	event := newEvent("e1", "u1", "WaitingForAcceptance", time.Minute)
	event["action"], part(event, "metadata")["namespace"] = "Register", "open-cluster-management-agent"
	w.config.Spoke = w.serve(w.deployment, w.boot, w.agent, event)
	report := w.run()
	reporttest.Headline(t, report, reporttest.Want{Check: "secret", Class: "HubKubeConfigMissing"}, secretValue)
	if f := report.Worst(); strings.Contains(f.Message, "WaitingForAcceptance") || strings.Contains(f.Message, "by the hub") {
		t.Errorf("%s", f.Message)
	}
}
