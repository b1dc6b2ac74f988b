package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
)

// runHub runs the hub program's parts that register by certificates, with its Events.
func runHub(w *regtest.World) {
	w.Hub.ControllerManager(w.T, "csrsigning")
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("wid-hub"),
			BootstrapUsers: []string{regtest.BootstrapUser}, BootstrapGroups: []string{registration.BootstrapGroup}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
}

// refusals returns the pending requests of a cluster as status lists them.
func refusals(t *testing.T, cluster string, args ...string) []hubadmin.PendingRequest {
	t.Helper()
	var list struct{ Items []hubadmin.Cluster }
	if err := json.Unmarshal([]byte(must(t, append([]string{"hub", "status", "--clusters=" + cluster, "-o", "json"}, args...)...)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("status lists %d clusters", len(list.Items))
	}
	return list.Items[0].PendingRequests
}

// awaitRefusal waits until status shows a reason for a request.
func awaitRefusal(t *testing.T, cluster, request, reason string) (message string) {
	t.Helper()
	regtest.Eventually(t, "status shows "+reason+" of "+request, func() bool {
		for _, r := range refusals(t, cluster) {
			if r.Name == request && r.Reason == reason {
				message = r.Message
			}
		}
		return message != ""
	})
	return message
}

// An agent that restarts before acceptance under another name leaves a dead request. A person picks the live one, before the
// acceptance or after it.
func TestHubAcceptPicksOneOfSeveralRequests(t *testing.T) {
	w := regtest.New(t)
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	runHub(w)
	for name, acceptFirst := range map[string]bool{"rivals1": false, "rivals2": true} {
		w.Step(name, func(t *testing.T) {
			m := w.NewMember(name, "registration-agent")
			bootstrap := regtest.NewClient(t, regtest.WithToken(w.Hub.Config(), m.Bootstrap))
			m.Start(agent.Options{Driver: csr.New(csr.Options{})})
			m.Until("the agent asks", func() bool { return len(regtest.RequestsOf(t, w.Admin, name)) == 1 })
			live := regtest.RequestsOf(t, w.Admin, name)[0].Name
			dead := regtest.Ask(t, w.Admin, bootstrap, name, "before-the-restart")
			awaitRefusal(t, name, dead, "NotAccepted")
			if _, err := wid(t, "", "hub", "accept", "--clusters="+name); err == nil || !strings.Contains(err.Error(), "wid hub accept --clusters "+name+" --approve-request") {
				t.Errorf("accept says %v", err)
			}
			if acceptFirst { // as clusteradm and kubectl do
				w.SetAccepted(name, true)
				command := "wid hub accept --clusters " + name + " --approve-request "
				if got := awaitRefusal(t, name, dead, "SeveralRequests"); !strings.Contains(got, command+dead) || !strings.Contains(got, live) {
					t.Errorf("the refusal says %s", got)
				}
				awaitRefusal(t, name, live, "SeveralRequests")
				odd := &certificatesv1.CertificateSigningRequest{}
				if err := w.Admin.Get(t.Context(), client.ObjectKey{Name: dead}, odd); err != nil {
					t.Fatal(err)
				}
				odd.ObjectMeta = metav1.ObjectMeta{Name: "odd $(id) name", Labels: odd.Labels} // the API server takes any name
				if err := bootstrap.Create(t.Context(), odd); err != nil {
					t.Fatal(err)
				}
				if got := awaitRefusal(t, name, odd.Name, "SeveralRequests"); !strings.Contains(got, command+"'odd $(id) name'") {
					t.Errorf("the refusal says %s", got)
				}
				if out := must(t, "hub", "status", "--clusters="+name); !strings.Contains(out, "3 (SeveralRequests)") {
					t.Errorf("status says %s", out)
				}
			}
			if out := must(t, "hub", "accept", "--clusters="+name, "--approve-request="+live); !strings.Contains(out, "approved") {
				t.Errorf("accept says %s", out)
			}
			m.Until("the cluster joins", func() bool { return m.Joined() })
			if got := awaitRefusal(t, name, dead, "AlreadyJoined"); !strings.Contains(got, "--approve-request "+dead) {
				t.Errorf("the refusal says %s", got)
			}
			for _, r := range regtest.RequestsOf(t, w.Admin, name) {
				if approved := len(r.Status.Conditions) > 0; approved != (r.Name == live) {
					t.Errorf("request %q is approved: %t", r.Name, approved)
				}
			}
		})
	}
}

// Events are data of other programs. The newest one about a request counts, whatever it says, and without the right to list them the
// rest is shown.
func TestHubStatusShowsTheNewestRefusal(t *testing.T) {
	w := newAcceptWorld(t)
	cluster := w.cluster(t, "")
	name := w.ask(t, cluster, "system:bootstrap:abcdef", registration.BootstrapGroup, "system:masters")
	request := &certificatesv1.CertificateSigningRequest{}
	if err := w.Admin.Get(t.Context(), client.ObjectKey{Name: name}, request); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	event := func(reason, note string, at time.Duration, change func(*eventsv1.Event)) {
		e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "refusal-", Namespace: "default"}, EventTime: metav1.NewMicroTime(now.Add(at)),
			ReportingController: "wid-hub", ReportingInstance: "wid-hub-0", Action: regname.ActionApprove, Reason: reason, Note: note, Type: "Warning",
			Regarding: corev1.ObjectReference{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1", Name: name, UID: request.UID}}
		if change != nil {
			change(e)
		}
		if err := w.Admin.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	event("NotAccepted", "first", -time.Hour, nil)
	event("SeveralRequests", "two\nlines\x1b[31m", -3*time.Minute, func(e *eventsv1.Event) {
		e.Series = &eventsv1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(now.Add(-time.Minute))}
	})
	event("AnotherAgent", "before the last of the series", -2*time.Minute, nil)
	event("Approved", "of no refusal", 0, func(e *eventsv1.Event) { e.Type = "Normal" })
	event("Other", "of another program", 0, func(e *eventsv1.Event) { e.Action = "Watch" })
	event("Other", "of another object", 0, func(e *eventsv1.Event) { e.Regarding.Kind = "Node" })
	event("Other", "of a deleted request of the name", 0, func(e *eventsv1.Event) { e.Regarding.UID = "deleted" })
	user := "system:bootstrap:abcdef"
	if got, want := refusals(t, cluster), []hubadmin.PendingRequest{{Name: name, User: user, Reason: "SeveralRequests", Message: "two lines [31m"}}; !slices.Equal(got, want) {
		t.Errorf("status shows %+v", got)
	}
	if out := must(t, "hub", "status", "--clusters="+cluster); !strings.Contains(out, " 1 (SeveralRequests) ") {
		t.Errorf("status shows %s", out)
	}
	rule := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list"}}
	}
	config := w.Hub.User(t, "looker", "", rule("cluster.open-cluster-management.io", "managedclusters"), rule("rbac.authorization.k8s.io", "clusterroles"),
		rule("certificates.k8s.io", "certificatesigningrequests"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	if got, want := refusals(t, cluster), []hubadmin.PendingRequest{{Name: name, User: user}}; !slices.Equal(got, want) {
		t.Errorf("without the right to list Events, status shows %+v", got)
	}
}
