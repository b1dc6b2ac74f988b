package csr_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// role returns the ClusterRole of a cluster, an empty one if there is none.
func (k *kube) role(cluster string) *rbacv1.ClusterRole {
	k.T.Helper()
	role := &rbacv1.ClusterRole{}
	if err := k.Admin.Get(k.T.Context(), client.ObjectKey{Name: registration.ClusterRoleName(cluster)}, role); client.IgnoreNotFound(err) != nil {
		k.T.Fatal(err)
	}
	return role
}

// expectRecord expects the agent of a request, and the key in it, in the ClusterRole.
func (k *kube) expectRecord(request *certificatesv1.CertificateSigningRequest) {
	k.T.Helper()
	want, err := agentrequest.Parse(request)
	if err != nil {
		k.T.Fatal(err)
	}
	got := k.role(want.Cluster).Annotations
	if got[agentAnnotation] != want.Agent || got[keyAnnotation] != keyHash(k.T, request) {
		k.T.Errorf("the record is %q, want the agent %q", got, want.Agent)
	}
}

func (k *kube) acceptAlone(cluster string) {
	k.T.Helper()
	k.SetAccepted(cluster, true)
	regtest.Eventually(k.T, "the hub accepts", func() bool { return k.Reason(cluster, ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted" })
}

// The holder of another certificate of the cluster renews first after the cluster was denied and accepted again.
func TestDenialKeepsTheAgent(t *testing.T) {
	k := newKube(t)
	m := k.join("kept")
	m.accept()
	agent, own := string(m.Secret().Data["agent-name"]), k.requests("kept")[0]
	thief := k.As(registration.AgentUser("kept", "thief"), registration.ClusterGroup("kept"), regname.ManagedClustersGroup)
	k.SetAccepted("kept", false)
	m.expectRevoked()
	k.expectRecord(&own)
	if role := k.role("kept"); len(role.Rules) > 0 || !slices.Equal(slices.Sorted(maps.Keys(role.Annotations)), []string{agentAnnotation, keyAnnotation}) {
		t.Errorf("the denied cluster's role is %+v", role)
	}
	k.acceptAlone("kept")
	regtest.Eventually(t, "the certificate works again", func() bool {
		return thief.Get(t.Context(), client.ObjectKey{Name: "kept"}, &ocm.ManagedCluster{}) == nil
	})
	renewal := k.ask("kept", "thief", thief)
	k.expectRefused(renewal.Name, `accepted for the agent "`+agent+`", and this request is for the agent "thief"`)
	first := m.certificate()
	m.ahead = time.Until(m.expiry()) - time.Minute
	m.Until("the agent renews", func() bool { return m.certificate() != first })
	k.Step("until a person replaces it", func(t *testing.T) {
		if err := agentrequest.Approve(t.Context(), k.Admin, renewal, "by a person"); err != nil {
			t.Fatal(err)
		}
		k.expectRecord(renewal)
		again := k.ask("kept", "thief", thief).Name
		regtest.Eventually(t, "the new agent renews", func() bool { return k.said.Says(again, "renews its own certificate") })
		k.expectRefused(k.ask("kept", agent, m.Own()).Name, `accepted for the agent "thief"`)
	})
	k.Step("also while the cluster is denied", func(t *testing.T) {
		k.SetAccepted("kept", false)
		m.expectRevoked()
		bootstrap := k.As("system:bootstrap:thief3", registration.BootstrapGroup)
		request := k.ask("kept", "third", bootstrap)
		if err := agentrequest.Approve(t.Context(), k.Admin, request, "by a person"); err != nil {
			t.Fatal(err)
		}
		k.expectRecord(request)
	})
	k.Step("and deletion drops it", func(t *testing.T) {
		if err := k.Admin.Delete(t.Context(), k.Cluster("kept")); err != nil {
			t.Fatal(err)
		}
		regtest.Eventually(t, "the role is gone", func() bool {
			return apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("kept")}, &rbacv1.ClusterRole{}))
		})
	})
}
