package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// The hub of the test approves no first request by itself.
func TestApprove(t *testing.T) {
	cluster := kubetest.Start(t)
	w := regtest.NewWith(t, cluster, cluster) // no cluster is managed
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
	agents, jane := w.As("system:bootstrap:abcdef", registration.BootstrapGroup), w.As("jane", "system:masters")
	requests := map[string]string{}
	names := []string{"known", "unknown", "stranger", "rivals", "taken", "thief"}
	for _, name := range names {
		regtest.Must(t, agents.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		user := client.Client(agents)
		if name == "stranger" {
			user = jane
		}
		requests[name] = regtest.Ask(t, w.Admin, user, name, "agent1")
	}
	regtest.Ask(t, w.Admin, agents, "rivals", "agent2")
	w.Accept("thief")
	w.SetAccepted("thief", false)
	w.AwaitReason("thief", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
	kubetest.Eventually(t, "the hub has read all claims", func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			role, err := registration.GetClusterRole(t.Context(), w.Admin, name)
			regtest.Must(t, err)
			return registration.StateOf(w.Cluster(name), role, registration.Claim{}).Claim.AuthType == ""
		})
	})
	kubetest.Eventually(t, "an agent of before is recorded", func() bool {
		taken, err := registration.GetClusterRole(t.Context(), w.Admin, "taken")
		regtest.Must(t, err)
		metav1.SetMetaDataAnnotation(&taken.ObjectMeta, ocm.AgentAnnotation, "agent0")
		return w.Admin.Update(t.Context(), taken) == nil
	})

	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	signer := rule("certificates.k8s.io", "signers", "approve")
	signer.ResourceNames = []string{"kubernetes.io/kube-apiserver-client"}
	operator := regtest.NewClient(t, cluster.User(t, "operator", "", // the rights that the program names
		rule("certificates.k8s.io", "certificatesigningrequests", "list"),
		rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"), signer,
		rule("rbac.authorization.k8s.io", "clusterroles", "get"),
		rule("cluster.open-cluster-management.io", "managedclusters", "get", "patch"),
		rule("cluster.open-cluster-management.io", "managedclusters/accept", "update")))
	var out bytes.Buffer
	regtest.Must(t, approve(t.Context(), operator, []string{"known", "stranger", "rivals", "taken", "thief"}, &out))
	for name, want := range map[string]struct {
		verdict  string
		decision certificatesv1.RequestConditionType
	}{
		"known":    {"approved", certificatesv1.CertificateApproved},
		"unknown":  {"denied", certificatesv1.CertificateDenied},
		"stranger": {"denied", certificatesv1.CertificateDenied},
		"rivals":   {"left: another agent asks too, so a person decides", ""},
		"taken":    {"left: the cluster has the agent agent0", ""},
		"thief":    {"left: the cluster is denied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if line := "cluster " + name + ", agent agent1: " + want.verdict + "\n"; !strings.Contains(out.String(), line) {
				t.Errorf("lacks %q:\n%s", line, out.String())
			}
			request := &certificatesv1.CertificateSigningRequest{}
			regtest.Must(t, w.Admin.Get(t.Context(), client.ObjectKey{Name: requests[name]}, request))
			var decision certificatesv1.RequestConditionType
			for _, c := range request.Status.Conditions {
				decision = c.Type
			}
			accepted := w.Cluster(name).Spec.HubAcceptsClient
			if decision != want.decision || accepted != (want.decision == certificatesv1.CertificateApproved) {
				t.Errorf("decision %q, accepted %t", decision, accepted)
			}
		})
	}
	kubetest.Eventually(t, "the hub lets the agent in", func() bool {
		role, err := registration.GetClusterRole(t.Context(), w.Admin, "known")
		recorded := err == nil && csr.RecordIn(role, "known").Agent == "agent1"
		return recorded && w.Reason("known", ocm.ConditionHubAccepted) == "True/"+ocm.ReasonHubAccepted
	})
}
