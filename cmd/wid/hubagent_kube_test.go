package main

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

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
	regtest.Ask(t, w.Admin, bootstrapUser("system:bootstrap:agent0"), "till", "agent1")
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

	for _, r := range regtest.RequestsOf(t, w.Admin, "till") { // as kube-controller-manager does after an hour
		if err := w.Admin.Delete(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(t, "hub", "deny", "--clusters=till", "--wait"); !strings.Contains(out, "until it expires") {
		t.Errorf("deny says %s", out)
	}
	thief := regtest.Ask(t, w.Admin, bootstrapUser("system:bootstrap:thief0"), "till", "thief")
	regtest.Eventually(t, "the hub denies", func() bool { return w.Reason("till", ocm.ConditionHubAccepted) == "False/HubClusterAdminDenied" })
	out, err := wid(t, "", "hub", "accept", "--clusters=till")
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || w.Cluster("till").Spec.HubAcceptsClient || recorded() != "agent1" {
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
