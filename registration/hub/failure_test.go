package hub_test

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Rancher and Gatekeeper users met hubs whose errors only the log had.
func TestHubShowsErrorsOfTheAPIServer(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "cluster1", errors.New("policy says no"))
	for name, row := range map[string]struct {
		verb, kind string
		before     func(h *hubTest)
	}{
		"a policy refuses the namespace":   {"create", "*v1.Namespace", nil},
		"the namespace is terminating":     {"create", "*v1.Lease", nil},
		"a policy refuses the finalizer":   {"patch", "*ocm.ManagedCluster", nil},
		"a policy refuses the ClusterRole": {"create", "*v1.ClusterRole", nil},
		"a policy refuses a binding":       {"create", "*v1.RoleBinding", nil},
		"the claim cannot be published": {"create", "*v1.ClusterRole", func(h *hubTest) {
			h.edit("cluster1", deny)
			h.deleteRole("cluster1")
		}},
		"the record cannot be deleted": {"update", "*v1.ClusterRole", func(h *hubTest) {
			h.edit("cluster1", deny)
			h.driver.fail["revoke"] = errors.New("no connection")
			_, _ = h.reconcile("cluster1") // publishes the claim
			delete(h.driver.fail, "revoke")
		}},
		"a binding cannot be deleted": {"delete", "*v1.ClusterRoleBinding", func(h *hubTest) { h.edit("cluster1", deny) }},
		"a deleted cluster keeps its access": {"delete", "*v1.ClusterRoleBinding", func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), h.cluster("cluster1")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			if row.before != nil {
				h.mustReconcile("cluster1")
				row.before(h)
			}
			h.refuse = func(what string) error {
				if strings.HasPrefix(what, row.verb+" "+row.kind+" ") {
					return refused
				}
				return nil
			}
			accepted := h.condition("cluster1", ocm.ConditionHubAccepted)
			for range 2 {
				if _, err := h.reconcile("cluster1"); !apierrors.IsForbidden(err) {
					t.Fatalf("error %v, want one that is retried", err)
				}
			}
			shown := meta.FindStatusCondition(h.cluster("cluster1").Status.Conditions, "HubReconciled")
			if shown == nil || shown.Status != metav1.ConditionFalse || !strings.Contains(shown.Message, "policy says no") {
				t.Errorf("condition %+v", shown)
			}
			if !h.hasEvent("Warning ReconcileFailed") {
				t.Errorf("Events %q", h.events)
			}
			if got := h.condition("cluster1", ocm.ConditionHubAccepted); row.before == nil && got != accepted {
				t.Errorf("the error changes what is granted: %q, before %q", got, accepted)
			}
			h.refuse = nil
			_, err := h.reconcile("cluster1")
			regtest.Must(t, err)
			if o := managedCluster("cluster1"); h.exists(o) &&
				meta.FindStatusCondition(o.Status.Conditions, "HubReconciled") != nil {
				t.Error("the condition outlives the error")
			}
		})
	}
}

// The status of the cluster may be refused too.
func TestHubRecordsAnEventWithoutACondition(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept))
	h.refuse = func(string) error { return errors.New("policy says no") }
	if _, err := h.reconcile("cluster1"); err == nil || !h.hasEvent("Warning ReconcileFailed") {
		t.Errorf("error %v, Events %q", err, h.events)
	}
}

// Another writer was faster. The retry meets no conflict.
func TestHubShowsNoConflict(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept))
	h.refuse = func(string) error {
		return apierrors.NewConflict(schema.GroupResource{}, "cluster1", errors.New("changed"))
	}
	if _, err := h.reconcile("cluster1"); !apierrors.IsConflict(err) || h.hasEvent("Warning ReconcileFailed") {
		t.Errorf("error %v, Events %q", err, h.events)
	}
}

// The API server refuses an Event with a longer note.
func TestLongestNoteIsRecorded(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept))
	h.restart(func(o *hub.Options) { o.Recorder = kubetest.Start(t).Recorder(t) })
	h.refuse = func(string) error { return errors.New(strings.Repeat("é", 10_000)) }
	if _, err := h.reconcile("cluster1"); err == nil {
		t.Error("no error")
	}
}
