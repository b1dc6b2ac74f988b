package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestHubWatchesLeases(t *testing.T) {
	joined := func(c *ocm.ManagedCluster) {
		meta.SetStatusCondition(&c.Status.Conditions,
			metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue, Reason: "Joined"})
		meta.SetStatusCondition(&c.Status.Conditions,
			metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Available"})
	}
	renew := func(h *hubTest, skew time.Duration) {
		h.t.Helper()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: ocm.LeaseName}}
		known := h.exists(lease)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: h.now.Add(skew)}
		err := error(nil)
		if known {
			err = h.client.Update(h.t.Context(), lease)
		} else {
			err = h.client.Create(h.t.Context(), lease)
		}
		regtest.Must(h.t, err)
	}
	for _, test := range []struct {
		name string
		skew time.Duration
		none bool
	}{{name: "with a Lease"}, {name: "without a Lease", none: true},
		{name: "with a clock 8 min ahead", skew: 8 * time.Minute},
		{name: "with a clock 8 min behind", skew: -8 * time.Minute}} {
		t.Run(test.name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.edit("cluster1", joined)
			if !test.none {
				renew(h, test.skew)
			}
			half := h.look()
			h.now = h.now.Add(half)
			wait := h.mustReconcile("cluster1").RequeueAfter
			if !test.none && (half != 150*time.Second || wait != half) {
				t.Fatalf("the hub looks at the Lease after %s, then after %s, want five lease durations", half, wait)
			}
			h.now = h.now.Add(wait - time.Second)
			if h.mustReconcile("cluster1"); h.condition("cluster1", ocm.ConditionAvailable) != "True/Available" {
				t.Error("not available too early")
			}
			h.now = h.now.Add(time.Second)
			if h.mustReconcile("cluster1"); h.condition("cluster1",
				ocm.ConditionAvailable) != "Unknown/ManagedClusterLeaseUpdateStopped" {
				t.Errorf("Available is %s", h.condition("cluster1", ocm.ConditionAvailable))
			}
			if !h.hasEvent("Warning ManagedClusterLeaseUpdateStopped") {
				t.Errorf("there is no warning, only %q", h.events)
			}
			h.now = h.now.Add(10 * time.Minute)
			renew(h, test.skew)
			h.edit("cluster1", joined)
			if wait := h.mustReconcile("cluster1").RequeueAfter; h.condition("cluster1",
				ocm.ConditionAvailable) != "True/Available" || wait <= 0 {
				t.Errorf("an agent that came back is %s", h.condition("cluster1", ocm.ConditionAvailable))
			}
		})
	}
	for _, skew := range []time.Duration{0, 8 * time.Minute} {
		t.Run(fmt.Sprintf("renewed with a clock %s ahead: available", skew), func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.edit("cluster1", joined)
			for range 20 {
				renew(h, skew)
				h.now = h.now.Add(min(h.look(), time.Minute))
			}
			if got := h.condition("cluster1", ocm.ConditionAvailable); got != "True/Available" {
				t.Errorf("Available is %s", got)
			}
		})
	}
	t.Run("renewed between two looks: due five durations after the renewal", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		h.edit("cluster1", joined)
		renew(h, 0)
		h.look()
		h.now = h.now.Add(4 * time.Minute)
		renew(h, 0)
		h.now = h.now.Add(time.Minute)
		if wait := h.mustReconcile("cluster1").RequeueAfter; wait != 4*time.Minute {
			t.Errorf("due after %s, want 4m", wait)
		}
	})
	for seconds, want := range map[int32]time.Duration{1: 5 * time.Second, 1<<31 - 1: 48 * time.Minute} {
		t.Run(fmt.Sprintf("a duration of %d s", seconds), func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept, func(c *ocm.ManagedCluster) {
				c.Spec.LeaseDurationSeconds = seconds
			}))
			h.edit("cluster1", joined)
			h.look()
			if wait := h.look(); wait < want || wait > want+12*time.Minute {
				t.Errorf("the hub looks again after %s, want %s", wait, want)
			}
		})
	}
	t.Run("denied: also Unknown at the end", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		h.edit("cluster1", joined)
		h.mustReconcile("cluster1")
		h.edit("cluster1", deny)
		wait := h.mustReconcile("cluster1").RequeueAfter
		h.now = h.now.Add(wait)
		if h.mustReconcile("cluster1"); wait <= 0 ||
			h.condition("cluster1", ocm.ConditionAvailable) != "Unknown/ManagedClusterLeaseUpdateStopped" {
			t.Errorf("after %s Available is %s", wait, h.condition("cluster1", ocm.ConditionAvailable))
		}
	})
	t.Run("not joined: no look", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		if wait := h.mustReconcile("cluster1").RequeueAfter; wait < 48*time.Minute {
			t.Errorf("the hub looks again after %s", wait)
		}
	})
}

// look reconciles once, and returns the time until the next reconcile.
func (h *hubTest) look() time.Duration {
	h.t.Helper()
	result, err := h.reconcile("cluster1")
	regtest.Must(h.t, err)
	return result.RequeueAfter
}

// Agents may not create it.
func TestHubCreatesTheLeaseBeforeTheBindings(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept))
	if _, err := h.reconcile("cluster1"); err != nil {
		t.Fatal(err)
	}
	writes := h.takeWrites()
	lease := slices.Index(writes, "create *v1.Lease "+ocm.LeaseName)
	bound := slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "create *v1.ClusterRoleBinding") })
	if lease < 0 || bound < lease {
		t.Errorf("the writes are %q", writes)
	}
}
