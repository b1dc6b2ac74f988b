package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

const isLost = "False/RecordLost"

func (h *hubTest) deleteRole(cluster string) {
	h.t.Helper()
	regtest.Must(h.t, h.client.Delete(h.t.Context(), roleFor(cluster)))
}

func (h *hubTest) message() string {
	h.t.Helper()
	return meta.FindStatusCondition(h.cluster("cluster1").Status.Conditions, ocm.ConditionHubAccepted).Message
}

// The cluster claims another identity after its record was deleted.
func TestHubRefusesAClusterWhoseRecordIsLost(t *testing.T) {
	for name, change := range map[string]func(*ocm.ManagedCluster){
		"with another claim":     annotated(driverAnnotation, "id-victim"),
		"with the same claim":    func(*ocm.ManagedCluster) {},
		"with a malformed claim": annotated(driverAnnotation, "malformed"),
		"with two claims":        annotated(otherAnnotation, "id-2"),
		"without the finalizer":  func(c *ocm.ManagedCluster) { c.Finalizers = nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
			h.mustReconcile("cluster1")
			h.driver.take()
			h.deleteRole("cluster1")
			h.edit("cluster1", change)
			for range 2 { // the refusal outlives a restart
				if h.mustReconcile("cluster1").RequeueAfter <= 0 {
					t.Error("the hub never looks again")
				}
				h.wantAccepted("cluster1", isLost)
				for _, want := range []string{"id-1", registration.ClusterRoleName("cluster1"), "ocm-hub-*", "until it expires",
					"deny the cluster and accept it again"} {
					if !strings.Contains(h.message(), want) {
						t.Errorf("the condition %q does not say %q", h.message(), want)
					}
				}
				h.restart()
			}
			if calls := append(h.driver.take(), h.other.take()...); len(calls) > 0 || h.exists(roleFor("cluster1")) ||
				!h.hasEvent("Warning RecordLost") {
				t.Errorf("the drivers got %q, the events are %q", calls, h.events)
			}
			h.driver.approves, h.other.approves = true, true
			h.edit("cluster1", func(c *ocm.ManagedCluster) {
				deny(c)
				c.Annotations = map[string]string{driverAnnotation: "id-2"}
			})
			h.mustReconcile("cluster1")
			h.wantAccepted("cluster1", isDenied)
			if got := h.rbac("cluster1"); len(got) > 0 {
				t.Errorf("the denied cluster has %q", got)
			}
			h.edit("cluster1", accept)
			h.mustReconcile("cluster1")
			h.wantAccepted("cluster1", isAccepted)
			h.wantGranted("cluster1", "one", "id-2")
		})
	}
}

// The hub of Open Cluster Management leaves a ClusterRole with its label, which
// has no record.
func TestHubTakesOverAClusterRoleWithoutARecord(t *testing.T) {
	role := roleFor("cluster1")
	role.Labels = map[string]string{ocm.ClusterNameLabel: "cluster1"}
	h := newHubTest(t, role,
		managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1"), func(c *ocm.ManagedCluster) {
			meta.SetStatusCondition(&c.Status.Conditions,
				metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted})
		}))
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", isAccepted)
	h.wantGranted("cluster1", "one", "id-1")
}

// A cache that lags behind the hub's own denial shows the old condition without
// the ClusterRole.
func TestHubTakesNoDenialForALostRecord(t *testing.T) {
	for name, c := range map[string]struct {
		now  func(*ocm.ManagedCluster)
		want string
	}{
		"accepted again": {accept, isAccepted},
		"still denied":   {deny, isDenied},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.mustReconcile("cluster1")
			was := h.cluster("cluster1")
			h.edit("cluster1", deny)
			h.mustReconcile("cluster1")
			h.edit("cluster1", c.now)
			lagging := interceptor.NewClient(h.client, interceptor.Funcs{
				Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if cluster, ok := o.(*ocm.ManagedCluster); ok {
						was.DeepCopyInto(cluster)
						return nil
					}
					return inner.Get(ctx, key, o, opts...)
				},
			})
			h.restart(func(o *hub.Options) { o.Client, o.Reader = lagging, h.client })
			if _, err := h.reconcile("cluster1"); err != nil {
				t.Fatal(err)
			}
			h.wantAccepted("cluster1", c.want)
		})
	}
}

// annotateRole records an agent, as the approver does.
func annotateRole(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	body := []byte(
		`{"metadata":{"annotations":{"registration.open-cluster-management.io/agent":"agent1","registration.open-cluster-management.io/agent-key":"abc"}}}`)
	regtest.Must(t, c.Patch(t.Context(), roleFor(cluster), client.RawPatch(types.MergePatchType, body)))
}

func isAgentRecorded(role *rbacv1.ClusterRole) bool {
	return role.Annotations[ocm.AgentAnnotation] == "agent1" && role.Annotations[ocm.AgentKeyAnnotation] == "abc"
}

// strictDriver refuses every claim.
type strictDriver struct{ *hubDriver }

func (strictDriver) Claim(*ocm.ManagedCluster) (string, bool, error) {
	return "", true, errors.New("no longer")
}

// The published claim is for readers. The hub grants what its drivers read now.
func TestHubGrantsNoPublishedClaim(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	h.restart(func(o *hub.Options) { o.Drivers = []registration.HubDriver{strictDriver{h.driver}} })
	h.edit("cluster1", accept)
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", "False/InvalidClaim")
	if len(h.driver.granted) > 0 {
		t.Errorf("the hub grants %q", h.driver.granted)
	}
}

// An administrator accepts what is shown, and a hub with other drivers reads
// another claim.
func TestHubGrantsNothingElseThanItShowed(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", annotated(otherAnnotation, "id-evil")))
	only := func(drivers ...registration.HubDriver) {
		h.restart(func(o *hub.Options) { o.Drivers = drivers })
	}
	only(h.driver)
	h.mustReconcile("cluster1") // shows the default driver
	h.edit("cluster1", accept)
	only(h.driver, h.other)
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", "False/InvalidClaim")
	if len(h.other.granted)+len(h.driver.granted) > 0 {
		t.Errorf("the hub grants %q, %q", h.driver.granted, h.other.granted)
	}
	h.edit("cluster1", deny)
	h.mustReconcile("cluster1")
	h.edit("cluster1", accept)
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", "True/"+ocm.ReasonHubAccepted)
}

func TestHubShowsNoClaimThatItRefuses(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	h.restart(func(o *hub.Options) { o.Drivers = []registration.HubDriver{strictDriver{h.driver}} })
	h.mustReconcile("cluster1")
	role := roleFor("cluster1")
	h.exists(role)
	s := registration.StateOf(h.cluster("cluster1"), role, registration.Claim{})
	if s.Stage != registration.StageRefused || s.Claim != (registration.Claim{}) {
		t.Errorf("state %+v", s)
	}
}

// The claim was published after the record was lost, and the hub crashed before
// it denied the cluster.
func TestHubTakesNoPublishedClaimForARecord(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	role := roleFor("cluster1")
	h.exists(role)
	role.Annotations = nil
	registration.PublishClaim(role, h.cluster("cluster1"), registration.Claim{AuthType: "one", Value: "id-1"})
	regtest.Must(t, h.client.Update(t.Context(), role))
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", isLost)
}

func TestHubDenialKeepsTheAgent(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	annotateRole(t, h.client, "cluster1")
	h.edit("cluster1", deny)
	h.mustReconcile("cluster1")
	role := roleFor("cluster1")
	exists := h.exists(role)
	_, granted := registration.RecordedClaim(role)
	if !exists || len(role.Rules) > 0 || granted || !isAgentRecorded(role) {
		t.Errorf("the denied cluster's role is %+v", role)
	}
	if len(h.rbac("cluster1")) != 1 || len(h.driver.granted) > 0 ||
		!strings.Contains(h.message(), "stays valid until it expires") {
		t.Errorf("the denied cluster has %q, the grant %q, the message %q", h.rbac("cluster1"), h.driver.granted, h.message())
	}
	t.Run("and acceptance goes on with it", func(t *testing.T) {
		h.edit("cluster1", func(c *ocm.ManagedCluster) { accept(c); annotated(driverAnnotation, "id-2")(c) })
		h.mustReconcile("cluster1")
		role := roleFor("cluster1")
		exists, want := h.exists(role), registration.Claim{AuthType: "one", Value: "id-2"}
		got, _ := registration.RecordedClaim(role)
		if !exists || len(role.Rules) == 0 || got != want || !isAgentRecorded(role) {
			t.Errorf("the accepted cluster's role is %+v", role)
		}
	})
	t.Run("until the cluster is deleted", func(t *testing.T) {
		h.edit("cluster1", deny)
		h.mustReconcile("cluster1")
		regtest.Must(t, h.client.Delete(t.Context(), h.cluster("cluster1")))
		h.mustReconcile("cluster1")
		h.wantRevoked("cluster1")
	})
}
