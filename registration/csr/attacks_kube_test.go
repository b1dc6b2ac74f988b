package csr_test

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestClusterAsksForAnotherCertificate(t *testing.T) {
	k := newKube(t)
	one, ten := k.join("cluster1"), k.join("cluster10")
	one.accept()
	ten.pending()
	k.SetAccepted("cluster10", true)
	regtest.Eventually(t, "the hub accepts", func() bool { return k.Reason("cluster10", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted" })
	const stranger = "neither the agent that the request names nor a bootstrap user"
	k.Step("cluster1 for cluster10, which has not joined yet", func(*testing.T) {
		k.expectForbidden("cluster10", "agent1", one.Own())
	})
	ten.Until("cluster10 joins", ten.joined)
	agentOf := func(m *member) string { return string(m.Secret().Data["agent-name"]) }
	for _, m := range []struct{ from, to *member }{{one, ten}, {ten, one}} {
		k.Step(m.from.Name+" for "+m.to.Name, func(*testing.T) {
			k.expectForbidden(m.to.Name, agentOf(m.to), m.from.Own())
		})
		k.Step(m.from.Name+" for another agent of its own", func(*testing.T) {
			k.expectRefused(k.ask(m.from.Name, "agent2", m.from.Own()).Name, stranger)
		})
		k.Step(m.from.Name+" for "+m.to.Name+" under its own label", func(t *testing.T) {
			request := k.ask(m.to.Name, agentOf(m.to), m.to.Own())
			copied := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: request.Spec.Request, SignerName: request.Spec.SignerName, Usages: request.Spec.Usages},
				ObjectMeta: metav1.ObjectMeta{Name: m.from.Name + "-mislabeled", Labels: map[string]string{ocm.ClusterNameLabel: m.from.Name}}}
			if err := m.from.Own().Create(t.Context(), copied); err != nil {
				t.Fatal(err)
			}
			k.expectRefused(copied.Name, "is no agent of cluster")
		})
	}
}

func TestBootstrapUserAsksForACertificate(t *testing.T) {
	k := newKube(t)
	m := k.join("robbed")
	m.accept()
	bootstrap := regtest.NewClient(t, regtest.WithToken(k.Hub.Config(), m.Bootstrap))
	k.Step("of a cluster that has joined", func(*testing.T) {
		k.expectRefused(k.ask("robbed", "thief", bootstrap).Name, "has joined")
	})
	k.Step("of the agent that has joined", func(*testing.T) {
		k.expectRefused(k.ask("robbed", string(m.Secret().Data["agent-name"]), bootstrap).Name, "has joined")
	})
	k.Step("of a cluster that was denied", func(*testing.T) {
		k.SetAccepted("robbed", false)
		m.expectRevoked()
		k.expectRefused(k.ask("robbed", "thief", bootstrap).Name, "has not accepted")
	})
	k.Step("of a cluster that was accepted again", func(*testing.T) {
		k.SetAccepted("robbed", true)
		regtest.Eventually(t, "the hub accepts", func() bool { return k.Reason("robbed", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted" })
		k.expectRefused(k.ask("robbed", "thief", bootstrap).Name, "has joined")
	})
}

// The agent claims to be what another driver accepts without a person, leaves, and tries to come back.
func TestAgentRewritesItsAnnotationsAndLeaves(t *testing.T) {
	k := newKube(t)
	m := k.join("rewriter")
	m.accept()
	own := m.Own()
	patch := func(body string) error {
		return own.Patch(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rewriter"}}, client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	if err := patch(`{"metadata":{"annotations":{"` + otherAnnotation + `":"victim","registration.open-cluster-management.io/auth-type":"other"}}}`); err != nil {
		t.Fatal(err)
	}
	regtest.Eventually(t, "the hub says that the claim has changed", func() bool { return k.Reason("rewriter", ocm.ConditionHubAccepted) == "True/ClaimChanged" })
	if err := patch(`{"metadata":{"finalizers":null}}`); !apierrors.IsForbidden(err) {
		t.Errorf("the finalizer is removed: %v", err)
	}
	// It cannot remove the traces of its acceptance from the conditions, nor backdate them.
	cluster := k.Cluster("rewriter")
	accepted := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted)
	base := cluster.DeepCopy()
	accepted.Status, accepted.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	if err := own.Status().Patch(t.Context(), cluster, client.MergeFrom(base)); !apierrors.IsForbidden(err) {
		t.Errorf("the acceptance is backdated: %v", err)
	}
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conditions":[]}}`))
	if err := own.Status().Patch(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rewriter"}}, status); !apierrors.IsForbidden(err) {
		t.Errorf("the acceptance is removed: %v", err)
	}
	if err := m.Agent.Unjoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expectRevoked()
	if err := patch(`{"spec":{"hubAcceptsClient":true}}`); !apierrors.IsForbidden(err) {
		t.Errorf("it accepts itself: %v", err)
	}
	regtest.Eventually(t, "the hub has denied", func() bool { return k.Reason("rewriter", ocm.ConditionHubAccepted) == "False/HubClusterAdminDenied" })
	// The hub reconciles once more, and has done so when it has let another cluster in.
	if err := k.Admin.Patch(t.Context(), k.Cluster("rewriter"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"touched":"1"}}}`))); err != nil {
		t.Fatal(err)
	}
	m2 := k.join("rewriter2")
	m2.accept()
	if k.Cluster("rewriter").Spec.HubAcceptsClient || len(k.RBAC("rewriter")) > 0 {
		t.Error("the cluster was accepted again")
	}
	if said := k.other.called(); len(said) > 0 {
		t.Errorf("the other driver was called: %q", said)
	}
}

// user returns a client of the hub for a user who is impersonated.
func (k *kube) user(name string, groups ...string) client.Client {
	config := rest.CopyConfig(k.Hub.Config())
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
	return regtest.NewClient(k.T, config)
}

func TestBootstrapUserAsksBeforeTheClusterJoins(t *testing.T) {
	k := newKube(t)
	bootstrap := k.user("system:bootstrap:thief0", registration.BootstrapGroup)
	k.Step("after the agent was approved", func(t *testing.T) {
		m := k.join("robbed1")
		m.pending()
		agent := string(m.Secret().Data["agent-name"])
		name := k.open("robbed1").Name
		k.SetAccepted("robbed1", true)
		regtest.Eventually(t, "the agent is approved", func() bool { return k.said.Says(name, "first request of a bootstrap user") })
		refused := `accepted for the agent "` + agent + `", and this request is for the agent "thief"`
		k.expectRefused(k.ask("robbed1", "thief", bootstrap).Name, refused)
		m.Until("the cluster joins", m.joined)
		holder := k.user(registration.AgentUser("robbed1", "thief"), registration.ClusterGroup("robbed1"), regname.ManagedClustersGroup)
		request := &certificatesv1.CertificateSigningRequest{}
		k.Step("and renews", func(*testing.T) { request = k.ask("robbed1", "thief", holder); k.expectRefused(request.Name, refused) })
		// The hub's reconciles keep the record.
		role := &rbacv1.ClusterRole{}
		if err := k.Admin.Get(t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("robbed1")}, role); err != nil {
			t.Fatal(err)
		}
		role.Rules = nil
		if err := k.Admin.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		regtest.Eventually(t, "the hub repairs the role", func() bool {
			return k.Admin.Get(t.Context(), client.ObjectKeyFromObject(role), role) == nil && len(role.Rules) > 0
		})
		if got := role.Annotations["registration.open-cluster-management.io/agent"]; got != agent {
			t.Errorf("the record is %q", got)
		}
	})
	k.Step("at the same time as the agent", func(t *testing.T) {
		m := k.join("robbed2")
		m.pending()
		name := k.open("robbed2").Name
		thief := k.ask("robbed2", "thief", bootstrap)
		k.SetAccepted("robbed2", true)
		k.expectRefused(name, `and "thief" both ask`)
		k.expectRefused(thief.Name, `the agents "thief" and`)
		if err := k.Admin.Delete(t.Context(), thief); err != nil {
			t.Fatal(err)
		}
		m.approve()
		m.Until("the cluster joins", m.joined)
	})
}
