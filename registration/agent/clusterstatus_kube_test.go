package agent_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

const claimCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterclaims.cluster.open-cluster-management.io}
spec:
  group: cluster.open-cluster-management.io
  names: {kind: ClusterClaim, listKind: ClusterClaimList, plural: clusterclaims, singular: clusterclaim}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {value: {type: string, minLength: 1, maxLength: 1024}}}}
`

// missing returns the reason of the condition about the report, or "".
func (k *agentKube) missing() string {
	if c := meta.FindStatusCondition(k.Cluster(k.Name).Status.Conditions, ocm.ConditionClusterStatus); c != nil {
		return c.Reason
	}
	return ""
}

func (k *agentKube) cpu(capacity, allocatable ocm.Quantity) func() bool {
	return func() bool {
		s := k.Cluster(k.Name).Status
		return s.Capacity["cpu"] == capacity && s.Allocatable["cpu"] == allocatable
	}
}

// The agent needs exactly the rights of AgentStatusRBAC for its report, and
// joins without them. ClusterClaims may come later.
func TestAgentReportsClusterStatusOfAnAPIServer(t *testing.T) {
	k := newAgentKube(t, "status")
	k.status = true
	node := newNode("first", "2")
	k.addNode(t, node)
	k.run()
	kubetest.Eventually(t, "the agent creates a ManagedCluster", func() bool { return k.Cluster(k.Name).Name != "" })
	k.accept()
	k.Step("without the rights to nodes", func(t *testing.T) {
		kubetest.Eventually(t, "the condition says so", func() bool { return k.missing() == "NodesUnreadable" })
		message := meta.FindStatusCondition(k.Cluster(k.Name).Status.Conditions, ocm.ConditionClusterStatus).Message
		if !strings.Contains(message, "nodes is forbidden") || strings.Contains(message, "ClusterClaims") {
			t.Errorf("the message is %q", message)
		}
		since := k.renewed()
		kubetest.Eventually(t, "the Lease is renewed", func() bool { return k.renewed().After(since) })
		if !k.Joined() {
			t.Error("the cluster has not joined")
		}
	})
	k.GrantClusterStatus()
	k.Step("a node is there", func(t *testing.T) {
		kubetest.Eventually(t, "it is reported", k.cpu("2", "2"))
		kubetest.Eventually(t, "nothing is missing", func() bool { return k.missing() == "" })
	})
	k.Step("another node appears", func(*testing.T) {
		k.addNode(t, newNode("second", "1500m"))
		kubetest.Eventually(k.T, "it is reported", k.cpu("3500m", "3500m"))
	})
	k.Step("a node is cordoned", func(t *testing.T) {
		base := node.DeepCopy()
		node.Spec.Unschedulable = true
		regtest.Must(t, k.Local.Patch(t.Context(), node, client.MergeFrom(base)))
		kubetest.Eventually(t, "it counts for the capacity alone", k.cpu("3500m", "1500m"))
	})
	k.Step("ClusterClaims are installed", func(t *testing.T) {
		kubetest.Apply(t, k.Local, claimCRD)
		t.Cleanup(func() { kubetest.Delete(t, k.Local, claimCRD) })
		kubetest.Eventually(t, "one can be created", func() bool {
			return k.Local.Create(t.Context(), newClaim("id.k8s.io", "1")) == nil
		})
		for _, name := range strings.Split("abcdefghij", "") { // more than a page
			if err := k.Local.Create(t.Context(), newClaim(name, "1")); err != nil {
				t.Fatal(err)
			}
		}
		kubetest.Eventually(t, "all are reported", func() bool {
			claims := k.Cluster(k.Name).Status.ClusterClaims
			return len(claims) == 11 && claims[0] == ocm.ManagedClusterClaim{Name: "id.k8s.io", Value: "1"}
		})
		if k.missing() != "" {
			t.Errorf("the report lacks something: %s", k.missing())
		}
	})
}

// addNode creates a node until the test ends, as its kubelet does.
func (k *agentKube) addNode(t *testing.T, node *corev1.Node) {
	t.Helper()
	status := node.Status
	regtest.Must(t, k.Local.Create(t.Context(), node))
	t.Cleanup(func() {
		if err := k.Local.Delete(context.WithoutCancel(t.Context()), node); err != nil {
			t.Error(err)
		}
	})
	node.Status = status
	regtest.Must(t, k.Local.Status().Update(t.Context(), node))
}
