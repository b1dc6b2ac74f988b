package hub_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// wantShown checks that readers learn a claim, which is not granted.
func (h *hubTest) wantShown(claim string) {
	h.t.Helper()
	role := roleFor("cluster1")
	h.exists(role)
	want := registration.Claim{AuthType: "one", Value: claim}
	if got := registration.StateOf(h.cluster("cluster1"), role, registration.Claim{}).Claim; got != want {
		h.t.Errorf("the cluster shows %+v, want %+v", got, want)
	}
	if got, ok := registration.RecordedClaim(role); ok || len(role.Rules) > 0 {
		h.t.Errorf("the ClusterRole grants %+v and has the rules %v, want neither", got, role.Rules)
	}
}

func TestHubPublishesTheClaimOfAWaitingCluster(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	h.wantShown("id-1")
	h.edit("cluster1", annotated(driverAnnotation, "id-2"))
	h.mustReconcile("cluster1")
	h.wantShown("id-2")
	h.edit("cluster1", accept)
	h.mustReconcile("cluster1")
	if role := roleFor("cluster1"); !h.exists(role) || role.Annotations[ocm.PendingSourceAnnotation] != "" {
		t.Errorf("the ClusterRole of an accepted cluster has %q, want no published claim", role.Annotations)
	}
	h.edit("cluster1", func(c *ocm.ManagedCluster) { deny(c); annotated(driverAnnotation, "id-3")(c) })
	h.mustReconcile("cluster1")
	h.wantShown("id-3")
	regtest.Must(t, h.client.Delete(t.Context(), h.cluster("cluster1")))
	h.mustReconcile("cluster1")
	if h.exists(roleFor("cluster1")) {
		t.Error("the ClusterRole outlives the cluster")
	}
}

func TestHubPublishesNothingForANameThatItRefuses(t *testing.T) {
	h := newHubTest(t, managedCluster("managed-clusters"))
	h.mustReconcile("managed-clusters")
	h.wantAccepted("managed-clusters", "False/InvalidName")
	if h.exists(roleFor("managed-clusters")) {
		t.Error("there is a ClusterRole")
	}
}

func TestHubPublishesNothingInAForeignClusterRole(t *testing.T) {
	theirs := roleFor("cluster1")
	theirs.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	h := newHubTest(t, theirs, managedCluster("cluster1"))
	h.exists(theirs)
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", "False/RBACTaken")
	regtest.Must(t, h.client.Delete(t.Context(), h.cluster("cluster1")))
	h.mustReconcile("cluster1")
	if now := roleFor("cluster1"); !h.exists(now) || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the ClusterRole has changed: %+v", now)
	}
}
