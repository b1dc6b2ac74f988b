package main

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ask makes a request for a certificate as an agent does, and returns its name.
func ask(t *testing.T, hub, user client.Client, cluster, agent string) (name string) {
	t.Helper()
	in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: agent, Hub: user}
	asked := map[string]bool{}
	for _, r := range requestsOf(t, hub, cluster) {
		asked[r.Name] = true
	}
	for range 2 { // draws a key, then makes the request
		step, err := csr.New(csr.Options{}).Next(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in.State = step.State
	}
	for _, r := range requestsOf(t, hub, cluster) {
		if !asked[r.Name] {
			return r.Name
		}
	}
	t.Fatal("no request was made")
	return ""
}

func requestsOf(t *testing.T, hub client.Client, cluster string) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := hub.List(t.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// A bootstrap user waits for an administrator who denies a cluster and accepts it again.
func TestHubAcceptKeepsTheAgentThatItApproved(t *testing.T) {
	w := regtest.New(t)
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	recorded := func() string {
		role := &rbacv1.ClusterRole{}
		if err := w.Admin.Get(t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("till")}, role); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return role.Annotations["registration.open-cluster-management.io/agent"]
	}
	if err := w.Admin.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "till"}}); err != nil {
		t.Fatal(err)
	}
	bootstrapUser := func(name string) client.Client {
		config := rest.CopyConfig(w.Hub.Config())
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{registration.BootstrapGroup, "system:authenticated"}}
		return regtest.NewClient(t, config)
	}
	ask(t, w.Admin, bootstrapUser("system:bootstrap:agent0"), "till", "agent1")
	if out := must(t, "hub", "accept", "--clusters=till"); !strings.Contains(out, "approved") { // the hub has made no ClusterRole
		t.Fatalf("accept says %s", out)
	}
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), BootstrapGroups: []string{registration.BootstrapGroup}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
	regtest.Eventually(t, "the hub accepts", func() bool { return w.Reason("till", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted" })
	if got := recorded(); got != "agent1" {
		t.Errorf("the record is %q", got)
	}

	for _, r := range requestsOf(t, w.Admin, "till") { // as kube-controller-manager does after an hour
		if err := w.Admin.Delete(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(t, "hub", "deny", "--clusters=till", "--wait"); !strings.Contains(out, "until it expires") {
		t.Errorf("deny says %s", out)
	}
	thief := ask(t, w.Admin, bootstrapUser("system:bootstrap:thief0"), "till", "thief")
	regtest.Eventually(t, "the hub denies", func() bool { return w.Reason("till", ocm.ConditionHubAccepted) == "False/HubClusterAdminDenied" })
	out, err := wid(t, "", "hub", "accept", "--clusters=till")
	if err == nil || exitCode(t.Context(), err) != exitDenied || w.Cluster("till").Spec.HubAcceptsClient || recorded() != "agent1" {
		t.Errorf("accept says %s, %v, the record is %q", out, err, recorded())
	}
	for _, want := range []string{`"agent1"`, "intruder", thief, "--approve-request"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("accept says %v without %s", err, want)
		}
	}
	if out := must(t, "hub", "accept", "--clusters=till", "--approve-request="+thief); !strings.Contains(out, "approved") || recorded() != "thief" {
		t.Errorf("accept says %s, the record is %q", out, recorded())
	}
}
