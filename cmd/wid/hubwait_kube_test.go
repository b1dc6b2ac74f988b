package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// After unjoin and join the condition Joined is still that of the old agent.
func TestHubAcceptWaitsForTheAgentThatJoinsAgain(t *testing.T) {
	w := regtest.New(t)
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	runHub(w)
	const name = "again"
	m := w.NewMember(name, "registration-agent")
	pending := func() []hubadmin.PendingRequest { return refusals(t, name) }
	asks := func() bool { return w.Cluster(name).Name != "" && len(pending()) == 1 }
	m.Start(agent.Options{Driver: csr.New(csr.Options{})})
	m.Until("the agent asks", asks)
	must(t, "hub", "accept", "--clusters="+name)
	m.Until("the cluster joins", m.Joined)
	// Another duration makes the next agent renew the Lease at once, and not a minute after the one before.
	if err := regtest.Patch(t.Context(), w.Admin, name, `{"spec":{"leaseDurationSeconds":10}}`); err != nil {
		t.Fatal(err)
	}

	if err := m.Agent.Unjoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Local.Delete(t.Context(), m.Secret()); err != nil {
		t.Fatal(err)
	}
	regtest.Eventually(t, "the hub denies", func() bool { return w.Reason(name, ocm.ConditionHubAccepted) == "False/HubClusterAdminDenied" })
	m.Start(agent.Options{Driver: csr.New(csr.Options{})})
	m.Until("the new agent asks", asks)
	request := pending()[0].Name
	_, err := wid(t, "", "hub", "accept", "--clusters="+name)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "if the cluster joined again") ||
		!strings.Contains(err.Error(), "wid hub accept --clusters "+name+" --approve-request "+request) {
		t.Errorf("accept says %v", err)
	}
	out, err := wid(t, "", "hub", "accept", "--clusters="+name, "--approve-request="+request, "--wait", "--timeout=5s")
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable || !strings.Contains(err.Error(), "to renew its Lease") {
		t.Errorf("before the agent has its certificate, accept says %s, %v", out, err)
	}
	type outcome struct {
		out string
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		out, err := wid(t, "", "hub", "accept", "--clusters="+name, "--wait")
		ended <- outcome{out, err}
	}()
	m.Until("accept ends", func() bool { return len(ended) > 0 })
	if o := <-ended; o.err != nil || !strings.Contains(o.out, `cluster "again" has joined`) {
		t.Errorf("accept says %s, %v", o.out, o.err)
	}
}

func TestHubDenySaysWhetherTheHubHasActed(t *testing.T) {
	w := newAcceptWorld(t)
	name := w.cluster(t, "")
	w.SetAccepted(name, true)
	cluster := w.Cluster(name)
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted})
	if err := w.Admin.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	const open = "denied; the hub has not acted yet, the cluster still has access"
	if out := must(t, "hub", "deny", "--clusters="+name); !strings.Contains(out, open) {
		t.Errorf("without a hub program deny says %s", out)
	}
	if out, err := wid(t, "", "hub", "deny", "--clusters="+name, "--wait", "--timeout=1s"); err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable ||
		!strings.Contains(err.Error(), "gave up waiting for the hub program to take away the access") {
		t.Errorf("without a hub program deny --wait says %s, %v", out, err)
	}
	runHub(w.World)
	if out := must(t, "hub", "deny", "--clusters="+name, "--wait"); !strings.Contains(out, "has taken away its access") ||
		w.Reason(name, ocm.ConditionHubAccepted) != "False/HubClusterAdminDenied" {
		t.Errorf("deny --wait says %s", out)
	}
}
