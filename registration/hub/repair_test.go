package hub_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func partsOf(o client.Object) (*rbacv1.RoleRef, *[]rbacv1.Subject) {
	switch b := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		return &b.RoleRef, &b.Subjects
	case *rbacv1.RoleBinding:
		return &b.RoleRef, &b.Subjects
	}
	panic("not a binding")
}

func TestHubRepairsDrift(t *testing.T) {
	role := func(change func(*rbacv1.ClusterRole)) func(*hubTest) {
		return func(h *hubTest) {
			r := roleFor("cluster1")
			h.exists(r)
			change(r)
			regtest.Must(h.t, h.client.Update(h.t.Context(), r))
		}
	}
	drifts := map[string]func(*hubTest){
		"the rules of the role": role(func(r *rbacv1.ClusterRole) { r.Rules = r.Rules[1:] }),
		"one more rule": role(func(r *rbacv1.ClusterRole) {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}})
		}),
		"an aggregation of the role": role(func(r *rbacv1.ClusterRole) { r.AggregationRule = &rbacv1.AggregationRule{} }),
		"the label of the role":      role(func(r *rbacv1.ClusterRole) { r.Labels = nil }),
		"the namespace deleted": func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}))
		},
	}
	for i, b := range bindingsFor("cluster1") {
		drift := func(change func(client.Object)) func(*hubTest) {
			return func(h *hubTest) {
				o := bindingsFor("cluster1")[i]
				h.exists(o)
				change(o)
				regtest.Must(h.t, h.client.Update(h.t.Context(), o))
			}
		}
		name := fmt.Sprintf("%T %d: ", b, i)
		drifts[name+"deleted"] = func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), bindingsFor("cluster1")[i]))
		}
		drifts[name+"another role"] = drift(func(o client.Object) { r, _ := partsOf(o); r.Name = "cluster-admin" })
		drifts[name+"one more subject"] = drift(func(o client.Object) {
			_, s := partsOf(o)
			*s = append(*s, rbacv1.Subject{Kind: "User", Name: "mallory"})
		})
		drifts[name+"no subject"] = drift(func(o client.Object) { _, s := partsOf(o); *s = nil })
		drifts[name+"no label"] = drift(func(o client.Object) { o.SetLabels(nil) })
	}
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.mustReconcile("cluster1")
			want := h.snapshot("cluster1")
			h.driver.take()
			drift(h)
			h.mustReconcile("cluster1")
			if got := h.snapshot("cluster1"); !reflect.DeepEqual(got, want) {
				t.Errorf("the state is\n%v\nwant\n%v", got, want)
			}
			if calls := h.driver.take(); len(calls) > 0 {
				t.Errorf("the driver got %q, although nothing is due", calls)
			}
		})
	}
}

// snapshot is all that the hub keeps for a cluster, without what the API server
// counts.
func (h *hubTest) snapshot(cluster string) (state []any) {
	h.t.Helper()
	for _, o := range append(bindingsFor(cluster), roleFor(cluster),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}) {
		if !h.exists(o) {
			continue
		}
		o.SetResourceVersion("")
		o.SetUID("")
		state = append(state, o)
	}
	c := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if h.exists(c) {
		state = append(state, c.Finalizers, c.Spec.HubAcceptsClient, h.condition(cluster, ocm.ConditionHubAccepted))
	}
	return append(state, h.driver.granted)
}

func TestHubConvergesAfterACrashAtAnyWrite(t *testing.T) {
	for name, flow := range map[string]struct{ begin, leave func(h *hubTest) }{
		"accepted":      {func(h *hubTest) { h.edit("cluster1", accept) }, nil},
		"auto-approved": {func(h *hubTest) { h.driver.approves = true }, nil},
		"denied": {func(h *hubTest) { h.edit("cluster1", accept) }, func(h *hubTest) {
			h.driver.approves = true
			h.edit("cluster1", deny)
		}},
		"denied, with an agent": {func(h *hubTest) { h.edit("cluster1", accept) }, func(h *hubTest) {
			annotateRole(h.t, h.client, "cluster1")
			h.edit("cluster1", deny)
		}},
		"deleted": {func(h *hubTest) { h.edit("cluster1", accept) }, func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), h.cluster("cluster1")))
		}},
	} {
		start := func(t *testing.T) *hubTest {
			h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
			flow.begin(h)
			if flow.leave != nil {
				h.mustReconcile("cluster1")
				flow.leave(h)
			}
			h.takeWrites()
			return h
		}
		h := start(t)
		if _, err := h.reconcile("cluster1"); err != nil {
			t.Fatal(err)
		}
		writes, want := h.takeWrites(), h.snapshot("cluster1")
		if len(writes) < 5 {
			t.Fatalf("%s: only %q", name, writes)
		}
		for n, write := range writes {
			for _, applied := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/applied %v", name, write, applied), func(t *testing.T) {
					h := start(t)
					h.failAt, h.applied = n+1, applied
					if _, err := h.reconcile("cluster1"); !errors.Is(err, errCrash) {
						t.Fatalf("the error is %v", err)
					}
					if _, granted := h.driver.granted["cluster1"]; granted && !h.exists(roleFor("cluster1")) {
						t.Error("there is a grant without a record")
					}
					h.failAt = 0
					h.restart()
					h.mustReconcile("cluster1")
					if got := h.snapshot("cluster1"); !reflect.DeepEqual(got, want) {
						t.Errorf("the state is\n%v\nwant\n%v", got, want)
					}
				})
			}
		}
	}
}

func TestHubCallsGrantOnlyWhenDue(t *testing.T) {
	names := []string{"cluster1", "cluster2", "cluster3", "cluster4"}
	h := newHubTest(t)
	waits := map[time.Duration]bool{}
	for _, name := range names {
		regtest.Must(t, h.client.Create(t.Context(), managedCluster(name, accept)))
		wait := h.mustReconcile(name).RequeueAfter
		if wait < 48*time.Minute || wait > time.Hour {
			t.Errorf("the hub looks again after %s, want a little less than an hour", wait)
		}
		waits[wait] = true
		h.driver.take()
		h.now = h.now.Add(wait - time.Second)
		if h.mustReconcile(name); len(h.driver.take()) > 0 {
			t.Error("Grant is called before it is due")
		}
		h.now = h.now.Add(time.Second)
		if h.mustReconcile(name); len(h.driver.take()) != 1 {
			t.Error("Grant is not called once when it is due")
		}
	}
	if len(waits) < len(names) {
		t.Error("all clusters are looked at together")
	}
	t.Run("and as early as the driver says", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		h.driver.next = time.Minute
		if wait := h.mustReconcile("cluster1").RequeueAfter; wait > time.Minute || wait < 48*time.Second {
			t.Errorf("the hub looks again after %s", wait)
		}
	})
}

func TestHubDriverThatHangsDelaysNoOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubTest(t, managedCluster("slow", accept), managedCluster("cluster1", accept))
		h.driver.hangFor = "slow"
		begin := time.Now()
		slow := make(chan error)
		go func() { _, err := h.reconcile("slow"); slow <- err }()
		synctest.Wait()
		h.mustReconcile("cluster1")
		h.wantGranted("cluster1", "one", "")
		if time.Since(begin) > 0 {
			t.Error("the other cluster waited")
		}
		if err := <-slow; !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("after %s the error is %v", time.Since(begin), err)
		}
	})
}

func TestHubLeavesForeignRBACAlone(t *testing.T) {
	foreignBinding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName("cluster1")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	foreignRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName("cluster1")}}
	for name, foreign := range map[string]client.Object{"a binding": foreignBinding, "a role": foreignRole} {
		t.Run(name, func(t *testing.T) {
			stored := foreign.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
			h := newHubTest(t, managedCluster("cluster1", accept), stored)
			h.mustReconcile("cluster1")
			h.wantAccepted("cluster1", "False/RBACTaken")
			h.edit("cluster1", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
			h.mustReconcile("cluster1")
			if !h.exists(foreign.DeepCopyObject().(client.Object)) { //nolint:forcetypeassert // a copy
				t.Error("it is gone")
			}
		})
	}
}
