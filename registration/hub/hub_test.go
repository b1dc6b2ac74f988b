package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/spantest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	isAccepted = "True/HubClusterAdminAccepted"
	isDenied   = "False/HubClusterAdminDenied"
)

func TestNewHubRefusesBadOptions(t *testing.T) {
	c := newHubTest(t).client
	one := newHubDriver("one", driverAnnotation)
	for _, test := range []struct {
		name    string
		options hub.Options
		want    string
	}{
		{"no client", hub.Options{Drivers: []registration.HubDriver{one}}, "hub.Options.Client"},
		{"no driver", hub.Options{Client: c}, "hub.Options.Drivers"},
		{"two drivers of one name", hub.Options{Client: c, Drivers: []registration.HubDriver{one, one}}, `"one"`},
		{"a driver without a name",
			hub.Options{Client: c, Drivers: []registration.HubDriver{newHubDriver("", driverAnnotation)}}, "no name"},
		{"an unknown default", hub.Options{Client: c, Drivers: []registration.HubDriver{one}, Default: "three"},
			`unknown auth type "three": use one of one`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := hub.New(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one that names %q", err, test.want)
			}
		})
	}
}

func TestHubLeavesNewClusterToAnAdministrator(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1"))
	if result := h.mustReconcile("cluster1"); result.RequeueAfter <= 0 {
		t.Error("the hub never asks the driver for approval again")
	}
	h.wantAccepted("cluster1", "")
	h.wantRevoked("cluster1")
	t.Run("and grants it when it is accepted", func(*testing.T) {
		h.edit("cluster1", accept)
		h.mustReconcile("cluster1")
		h.wantGranted("cluster1", "one", "")
	})
}

func TestHubGrantsWhenTheCauseOfARefusalIsMended(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}})
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", "False/NamespaceTaken")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1",
		Labels: map[string]string{ocm.ClusterNameLabel: "cluster1"}}}
	regtest.Must(t, h.client.Update(t.Context(), namespace))
	h.mustReconcile("cluster1")
	h.wantAccepted("cluster1", isAccepted)
	h.wantGranted("cluster1", "one", "")
}

func TestHubGrantsAcceptedCluster(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
	h.driver.onGrant = func(string, string) {
		if !slices.Contains(h.cluster("cluster1").Finalizers, ocm.Finalizer) {
			t.Error("the grant precedes the finalizer")
		}
		if role := roleFor("cluster1"); !h.exists(role) || role.Annotations[ocm.ClaimAnnotation] != "id-1" {
			t.Error("the grant precedes the record of the claim")
		}
		if got := h.rbac("cluster1"); len(got) != 1 {
			t.Errorf("bindings precede the grant: %q", got)
		}
	}
	h.mustReconcile("cluster1")
	h.wantGranted("cluster1", "one", "id-1")
	h.wantAccepted("cluster1", isAccepted)
	if calls := h.driver.take(); !slices.Equal(calls, []string{"grant cluster1 id-1"}) {
		t.Errorf("the driver got %q", calls)
	}
	if !h.hasEvent("Normal HubClusterAdminAccepted") {
		t.Errorf("there is no Event, only %q", h.events)
	}
	roles := []string{registration.ClusterRoleName("cluster1"), "open-cluster-management:managedcluster:registration",
		"open-cluster-management:managedcluster:work"}
	for i, o := range bindingsFor("cluster1") {
		h.exists(o)
		role, subjects := partsOf(o)
		if role.Name != roles[i] || len(*subjects) != 2 || (*subjects)[0].Name != "system:open-cluster-management:cluster1" ||
			(*subjects)[1].Name != "open-cluster-management:cluster1" {
			t.Errorf("%s binds %v to %v", o.GetName(), role, *subjects)
		}
	}
}

func TestHubRefuses(t *testing.T) {
	taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1",
		Labels: map[string]string{ocm.ClusterNameLabel: "cluster10"}}}
	gone := roleFor("cluster1")
	gone.Annotations = map[string]string{ocm.AuthTypeAnnotation: "three", ocm.ClaimAnnotation: "id-3"}
	shared := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:work"}}
	for _, test := range []struct {
		name, reason string
		cluster      *ocm.ManagedCluster
		others       []client.Object
		noDefault    bool
	}{
		{"the name of the group of all clusters", "InvalidName", managedCluster("managed-clusters"), nil, false},
		{"a name that begins groups of add-ons", "InvalidName", managedCluster("addon"), nil, false},
		{"a name that begins users of add-ons", "InvalidName", managedCluster("cluster"), nil, false},
		{"the name of a namespace of Kubernetes", "InvalidName", managedCluster("kube-system"), nil, false},
		{"the name of the default namespace", "InvalidName", managedCluster("default"), nil, false},
		{"the name of a shared ClusterRole", "InvalidName", managedCluster("work"), []client.Object{shared}, false},
		{"a name that is no DNS label", "InvalidName", managedCluster("a.b"), nil, false},
		{"the annotations of two drivers", "ConflictingDrivers",
			managedCluster("cluster1", annotated(driverAnnotation, "id-1"), annotated(otherAnnotation, "id-2")), nil, false},
		{"a malformed claim", "InvalidClaim", managedCluster("cluster1", annotated(otherAnnotation, "malformed")),
			nil, false},
		{"no annotations and no default", "UnknownDriver", managedCluster("cluster1"), nil, true},
		{"a namespace without our label", "NamespaceTaken", managedCluster("cluster1"), []client.Object{taken}, false},
		{"the namespace of another cluster", "NamespaceTaken", managedCluster("cluster1"), []client.Object{foreign}, false},
		{"a recorded driver that the hub does not run", "UnknownDriver", managedCluster("cluster1"),
			[]client.Object{gone}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			accept(test.cluster)
			h := newHubTest(t, append(test.others, test.cluster)...)
			if test.noDefault {
				h.restart(func(o *hub.Options) { o.Default = "" })
			}
			before := h.rbac(test.cluster.Name)
			result := h.mustReconcile(test.cluster.Name)
			h.wantAccepted(test.cluster.Name, "False/"+test.reason)
			if !h.hasEvent("Warning " + test.reason) {
				t.Errorf("there is no warning, only %q", h.events)
			}
			if result.RequeueAfter <= 0 {
				t.Error("the hub never looks again")
			}
			if calls := append(h.driver.take(), h.other.take()...); len(calls) > 0 {
				t.Errorf("drivers got %q", calls)
			}
			if after := h.rbac(test.cluster.Name); !slices.Equal(before, after) {
				t.Errorf("the RBAC was %q and is %q", before, after)
			}
		})
	}
}

func TestHubKeepsTheSharedRolesWhenAClusterOfTheirNameLeaves(t *testing.T) {
	shared := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:registration",
			Annotations: map[string]string{ocm.AuthTypeAnnotation: "one"}}}
	h := newHubTest(t, shared, managedCluster("registration", func(c *ocm.ManagedCluster) {
		c.Finalizers = []string{ocm.Finalizer}
	}))
	regtest.Must(t, h.client.Delete(t.Context(), h.cluster("registration")))
	h.mustReconcile("registration")
	if !h.exists(shared) || h.exists(managedCluster("registration")) {
		t.Error("the shared ClusterRole is gone, or the cluster is not")
	}
}

func TestHubAutoApproval(t *testing.T) {
	t.Run("accepts and grants in one reconcile", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
		h.driver.approves = true
		h.mustReconcile("cluster1")
		if !h.cluster("cluster1").Spec.HubAcceptsClient || !h.hasEvent("Normal AutoApproved") {
			t.Errorf("not accepted, or without an Event: %q", h.events)
		}
		h.wantGranted("cluster1", "one", "id-1")
		h.wantAccepted("cluster1", isAccepted)
	})
	t.Run("fails without a decision", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1"))
		h.driver.fail["approve"] = errors.New("no connection")
		if _, err := h.reconcile("cluster1"); err == nil || !h.hasEvent("Warning ApprovalFailed") {
			t.Errorf("the error is %v, the Events are %q", err, h.events)
		}
		h.wantRevoked("cluster1")
	})
	t.Run("a mended refusal waits", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "malformed")))
		h.mustReconcile("cluster1")
		h.wantAccepted("cluster1", "False/InvalidClaim")
		h.edit("cluster1", annotated(driverAnnotation, "id-1"))
		h.mustReconcile("cluster1")
		h.wantAccepted("cluster1", "False/WaitingForAcceptance")
		h.driver.approves = true
		h.mustReconcile("cluster1")
		h.wantAccepted("cluster1", isAccepted)
		h.wantGranted("cluster1", "one", "id-1")
	})
}

// A namespace that is there before the cluster leaves the decision to an
// administrator.
// The cluster changes its claim after the driver has approved it.
func TestHubAutoApprovalIsOfTheClaimThatWasApproved(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
	h.driver.approves = true
	changed := false
	h.refuse = func(what string) error {
		if !changed && strings.HasPrefix(what, "patch *ocm.ManagedCluster") {
			changed = true
			h.edit("cluster1", annotated(driverAnnotation, "id-2"))
		}
		return nil
	}
	if _, err := h.reconcile("cluster1"); !changed || !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if h.cluster("cluster1").Spec.HubAcceptsClient {
		t.Error("the hub accepts a claim that was not approved")
	}
}

func TestHubAutoApprovalMeetsANamespace(t *testing.T) {
	t.Run("of an earlier cluster", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", annotated(driverAnnotation, "id-1")))
		h.driver.approves = true
		h.mustReconcile("cluster1")
		h.edit("cluster1", deny)
		h.mustReconcile("cluster1")
		regtest.Must(t, h.client.Delete(t.Context(), h.cluster("cluster1")))
		h.mustReconcile("cluster1")
		regtest.Must(t, h.client.Create(t.Context(), managedCluster("cluster1", annotated(driverAnnotation, "id-2"))))
		h.mustReconcile("cluster1")
		h.wantRevoked("cluster1")
		h.wantAccepted("cluster1", "False/NamespaceTaken")
		if h.cluster("cluster1").Spec.HubAcceptsClient || !h.hasEvent("Warning NamespaceTaken") {
			t.Errorf("accepted, or without an Event: %q", h.events)
		}
		h.edit("cluster1", accept)
		h.mustReconcile("cluster1")
		h.wantGranted("cluster1", "one", "id-2")
	})
	t.Run("that is deleted", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
		h := newHubTest(t, managedCluster("cluster1"), namespace)
		h.driver.approves = true
		h.mustReconcile("cluster1")
		h.wantAccepted("cluster1", "False/NamespaceTaken")
		regtest.Must(t, h.client.Delete(t.Context(), namespace))
		h.mustReconcile("cluster1")
		h.wantGranted("cluster1", "one", "")
	})
	for name, tamper := range map[string]func(*ocm.ManagedCluster){
		"a denied cluster stays out":              func(*ocm.ManagedCluster) {},
		"also if its agent removed the finalizer": func(c *ocm.ManagedCluster) { c.Finalizers = nil },
		"also if its agent removed the condition": func(c *ocm.ManagedCluster) {
			c.Status.Conditions = nil
		},
		"also if its agent removed both: the hub has the record": func(c *ocm.ManagedCluster) {
			c.Finalizers, c.Status.Conditions = nil, nil
		},
		"also if its agent has rewritten its annotations meanwhile": annotated(otherAnnotation, "id-2"),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1"))
			h.driver.approves = true
			h.mustReconcile("cluster1")
			h.edit("cluster1", func(c *ocm.ManagedCluster) { deny(c); tamper(c) })
			h.mustReconcile("cluster1")
			h.restart()
			h.mustReconcile("cluster1")
			h.wantAccepted("cluster1", isDenied)
			h.wantRevoked("cluster1")
		})
	}
}

func TestHubRevokesDeniedCluster(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
	h.mustReconcile("cluster1")
	h.driver.take()
	h.driver.onRevoke = func(string, string) {
		if got := h.rbac("cluster1"); len(got) != 1 {
			t.Errorf("at Revoke the cluster has %q, want only the record", got)
		}
	}
	h.edit("cluster1", deny)
	h.mustReconcile("cluster1")
	h.wantRevoked("cluster1")
	h.wantAccepted("cluster1", isDenied)
	if calls := h.driver.take(); !slices.Equal(calls, []string{"revoke cluster1 id-1"}) {
		t.Errorf("the driver got %q", calls)
	}
	if !h.exists(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}) {
		t.Error("the namespace is gone")
	}
	for _, claim := range []string{"id-1", "id-2"} { // the old one, and a new one
		t.Run("and grants "+claim+" if it is accepted again", func(*testing.T) {
			h.edit("cluster1", func(c *ocm.ManagedCluster) { accept(c); annotated(driverAnnotation, claim)(c) })
			h.mustReconcile("cluster1")
			h.wantGranted("cluster1", "one", claim)
			h.wantAccepted("cluster1", isAccepted)
			h.edit("cluster1", deny)
			h.mustReconcile("cluster1")
		})
	}
}

func TestHubDenialCountsFromItself(t *testing.T) {
	for _, reason := range []string{"Mine", ocm.ReasonGrantFailed, ocm.ReasonHubAccepted} {
		t.Run("after False "+reason, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.mustReconcile("cluster1")
			begin, past := time.Now().Add(-time.Minute), metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
			h.edit("cluster1", func(c *ocm.ManagedCluster) {
				deny(c)
				c.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
					Reason: reason, LastTransitionTime: past}}
			})
			h.mustReconcile("cluster1")
			h.wantAccepted("cluster1", isDenied)
			denied := meta.FindStatusCondition(h.cluster("cluster1").Status.Conditions, ocm.ConditionHubAccepted)
			if denied.LastTransitionTime.Time.Before(begin) {
				t.Errorf("denied now, the condition says since %s", denied.LastTransitionTime)
			}
			h.edit("cluster1", func(c *ocm.ManagedCluster) { c.Status.Conditions[0].LastTransitionTime = past })
			h.mustReconcile("cluster1")
			if c := h.cluster("cluster1").Status.Conditions[0]; !c.LastTransitionTime.Time.Equal(past.Time) {
				t.Errorf("a later pass sets the time again, to %s", c.LastTransitionTime)
			}
		})
	}
}

func TestHubRevokesByTheRecord(t *testing.T) {
	rewrites := map[string]func(*ocm.ManagedCluster){
		"a claim of another cluster": annotated(driverAnnotation, "id-victim"),
		"another driver": func(c *ocm.ManagedCluster) {
			c.Annotations = map[string]string{otherAnnotation: "id-2"}
		},
		"a malformed claim":              annotated(driverAnnotation, "malformed"),
		"the annotations of two drivers": annotated(otherAnnotation, "id-2"),
		"no annotations":                 func(c *ocm.ManagedCluster) { c.Annotations = nil },
	}
	leaves := map[string]func(h *hubTest){
		"denied": func(h *hubTest) { h.edit("cluster1", deny) },
		"deleted": func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), h.cluster("cluster1")))
		},
		"deleted, and its agent had removed the finalizer": func(h *hubTest) {
			h.edit("cluster1", func(c *ocm.ManagedCluster) { c.Finalizers = nil })
			regtest.Must(h.t, h.client.Delete(h.t.Context(), h.cluster("cluster1")))
		},
	}
	for rewriteName, rewrite := range rewrites {
		for leaveName, leave := range leaves {
			t.Run(rewriteName+", then "+leaveName, func(t *testing.T) {
				h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
				h.mustReconcile("cluster1")
				h.edit("cluster1", rewrite)
				h.mustReconcile("cluster1")
				h.wantGranted("cluster1", "one", "id-1")
				h.wantAccepted("cluster1", "True/ClaimChanged")
				h.restart()
				h.driver.take()
				leave(h)
				h.mustReconcile("cluster1")
				h.wantRevoked("cluster1")
				if calls := h.driver.take(); !slices.Equal(calls, []string{"revoke cluster1 id-1"}) {
					t.Errorf("the driver got %q", calls)
				}
				if calls := h.other.take(); len(calls) > 0 {
					t.Errorf("the other driver got %q", calls)
				}
			})
		}
	}
}

func TestHubDeletesNoClusterBecauseItsCacheLags(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept))
	h.mustReconcile("cluster1")
	lagging := interceptor.NewClient(h.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*ocm.ManagedCluster); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "managedclusters"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	h.restart(func(o *hub.Options) { o.Client, o.Reader = lagging, h.client })
	if _, err := h.reconcile("cluster1"); err != nil {
		t.Fatal(err)
	}
	h.wantGranted("cluster1", "one", "")
}

func TestHubGrantThatFails(t *testing.T) {
	t.Run("at first is a condition and a retry", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		h.driver.fail["grant"] = errors.New("no connection")
		if _, err := h.reconcile("cluster1"); err == nil || !strings.Contains(err.Error(), `"cluster1"`) {
			t.Errorf("the error is %v", err)
		}
		h.wantAccepted("cluster1", "False/GrantFailed")
		if got := h.rbac("cluster1"); len(got) != 1 || !h.hasEvent("Warning GrantFailed") {
			t.Errorf("the cluster has %q, the Events are %q", got, h.events)
		}
		h.driver.fail["grant"] = nil
		h.mustReconcile("cluster1")
		h.wantAccepted("cluster1", isAccepted)
		h.wantGranted("cluster1", "one", "")
	})
	t.Run("at first is retried when the driver says", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept))
		h.driver.fail["grant"], h.driver.next = errors.New("no such role"), 10*time.Minute
		if wait := h.mustReconcile("cluster1").RequeueAfter; wait < 5*time.Minute || wait > 10*time.Minute {
			t.Errorf("the hub tries again after %s", wait)
		}
		h.wantAccepted("cluster1", "False/GrantFailed")
		if got := h.rbac("cluster1"); len(got) != 1 || !h.hasEvent("Warning GrantFailed") {
			t.Errorf("the cluster has %q, the Events are %q", got, h.events)
		}
		h.driver.fail["grant"], h.driver.next = nil, 0
		h.mustReconcile("cluster1")
		h.wantGranted("cluster1", "one", "")
		h.now = h.now.Add(2 * time.Hour)
		h.driver.fail["grant"], h.driver.next = errors.New("no such role"), 10*time.Minute
		if _, err := h.reconcile("cluster1"); err == nil {
			t.Error("a cluster that was granted waits too")
		}
		h.wantAccepted("cluster1", isAccepted)
	})
	for name, failure := range map[string]error{
		"later leaves the cluster its access":                            errors.New("no connection"),
		"later by a refusal of the driver leaves the cluster its access": refusal.New("Other", "refused"),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept))
			h.mustReconcile("cluster1")
			h.driver.fail["grant"] = failure
			h.now = h.now.Add(2 * time.Hour)
			if _, err := h.reconcile("cluster1"); err == nil {
				t.Error("there is no error")
			}
			h.wantAccepted("cluster1", isAccepted)
			h.wantGranted("cluster1", "one", "")
		})
	}
}

func TestHubRevokeThatFails(t *testing.T) {
	for name, leave := range map[string]func(*hubTest){
		"denied": func(h *hubTest) { h.edit("cluster1", deny) },
		"deleted": func(h *hubTest) {
			regtest.Must(h.t, h.client.Delete(h.t.Context(), h.cluster("cluster1")))
		},
	} {
		t.Run("keeps record and finalizer, cluster "+name, func(t *testing.T) {
			h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, "id-1")))
			h.mustReconcile("cluster1")
			leave(h)
			h.driver.fail["revoke"] = errors.New("no connection")
			if _, err := h.reconcile("cluster1"); err == nil || !h.hasEvent("Warning RevokeFailed") {
				t.Errorf("the error is %v, the Events are %q", err, h.events)
			}
			if got := h.rbac("cluster1"); len(got) != 1 || !slices.Contains(h.cluster("cluster1").Finalizers, ocm.Finalizer) {
				t.Errorf("the cluster has %q and the finalizers %q", got, h.cluster("cluster1").Finalizers)
			}
			h.driver.fail["revoke"] = nil
			h.restart()
			h.mustReconcile("cluster1")
			h.wantRevoked("cluster1")
		})
	}
	t.Run("for want of the recorded driver keeps the record", func(t *testing.T) {
		h := newHubTest(t, managedCluster("cluster1", accept, annotated(otherAnnotation, "id-2")))
		h.mustReconcile("cluster1")
		h.restart(func(o *hub.Options) { o.Drivers = o.Drivers[:1] })
		h.edit("cluster1", deny)
		if _, err := h.reconcile("cluster1"); !errors.Is(err, reconcile.TerminalError(nil)) ||
			!strings.Contains(err.Error(), `unknown auth type "two"`) {
			t.Errorf("the error is %v", err)
		}
		if got := h.rbac("cluster1"); len(got) != 1 {
			t.Errorf("the cluster has %q, want only the record", got)
		}
	})
}

func TestHubBoundsWhatAClusterWrites(t *testing.T) {
	h := newHubTest(t, managedCluster("cluster1", accept, annotated(driverAnnotation, strings.Repeat("\x00é", 50_000))))
	h.mustReconcile("cluster1")
	h.edit("cluster1", annotated(driverAnnotation, strings.Repeat("ü", 100_000)))
	h.mustReconcile("cluster1") // hubTest.Eventf checks the size
	c := meta.FindStatusCondition(h.cluster("cluster1").Status.Conditions, ocm.ConditionHubAccepted)
	if len(c.Message) > 4096 {
		t.Errorf("the condition has %d bytes", len(c.Message))
	}
}

func TestHubMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	h := newHubTest(t, managedCluster("cluster1", accept), managedCluster("cluster2"),
		managedCluster("kube-system", accept), managedCluster("cluster3", accept), managedCluster("cluster4", accept))
	h.restart(func(o *hub.Options) { o.Registerer = registry })
	for _, name := range []string{"cluster1", "cluster2", "cluster3", "cluster4", "kube-system"} {
		h.mustReconcile(name)
	}
	h.edit("cluster3", deny)
	h.mustReconcile("cluster3")
	regtest.Must(t, h.client.Delete(t.Context(), h.cluster("cluster4")))
	h.mustReconcile("cluster4")
	want := `# HELP registration_hub_clusters Clusters of this hub, by state.
# TYPE registration_hub_clusters gauge
registration_hub_clusters{state="accepted"} 1
registration_hub_clusters{state="deleting"} 0
registration_hub_clusters{state="denied"} 1
registration_hub_clusters{state="pending"} 1
registration_hub_clusters{state="refused"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "registration_hub_clusters"); err != nil {
		t.Error(err)
	}
	status := func(joined, available metav1.ConditionStatus) func(*ocm.ManagedCluster) {
		return func(c *ocm.ManagedCluster) {
			meta.SetStatusCondition(&c.Status.Conditions,
				metav1.Condition{Type: ocm.ConditionJoined, Status: joined, Reason: "Test"})
			meta.SetStatusCondition(&c.Status.Conditions,
				metav1.Condition{Type: ocm.ConditionAvailable, Status: available, Reason: "Test"})
		}
	}
	for _, row := range []struct {
		change                   func(*ocm.ManagedCluster)
		available, lost, unknown int
	}{
		{func(*ocm.ManagedCluster) {}, 0, 0, 0}, {status(metav1.ConditionTrue, metav1.ConditionTrue), 1, 0, 0},
		{status(metav1.ConditionTrue, metav1.ConditionFalse), 0, 1, 0},
		{status(metav1.ConditionTrue, metav1.ConditionUnknown), 0, 0, 1}, {status(metav1.ConditionTrue, "made-up"), 0, 0, 1},
		{status(metav1.ConditionFalse, metav1.ConditionTrue), 0, 0, 0},
	} {
		h.edit("cluster1", row.change)
		h.mustReconcile("cluster1")
		want := fmt.Sprintf(
			`# HELP registration_hub_joined_clusters Clusters that have joined this hub, by ManagedClusterConditionAvailable: True, False or Unknown.
# TYPE registration_hub_joined_clusters gauge
registration_hub_joined_clusters{available="False"} %d
registration_hub_joined_clusters{available="True"} %d
registration_hub_joined_clusters{available="Unknown"} %d
`, row.lost, row.available, row.unknown)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"registration_hub_joined_clusters"); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "registration_build_info"); err != nil || n != 1 {
		t.Errorf("%d series of the build, %v, want 1", n, err)
	}
	if n, err := testutil.GatherAndCount(registry, "registration_hub_driver_duration_seconds"); err != nil || n != 3 {
		t.Errorf("%d series of driver calls, want approve, grant and revoke (%v)", n, err)
	}
	if _,
		err := hub.New(hub.Options{Client: h.client, Drivers: []registration.HubDriver{h.driver},
		Registerer: registry}); err == nil {
		t.Error("metrics that are there already are no error")
	}
}

func TestHubRecordsSpansOfDrivers(t *testing.T) {
	h, spans := newHubTest(t, managedCluster("cluster1")), &spantest.Recorder{}
	h.restart(func(o *hub.Options) { o.TracerProvider = spans })
	h.mustReconcile("cluster1")
	h.edit("cluster1", accept)
	h.mustReconcile("cluster1")
	const of = " workloadid.cluster=cluster1 workloadid.driver=one"
	if got := slices.Compact(spans.Ended()); !slices.Equal(got, []string{"approve" + of, "grant" + of}) {
		t.Errorf("got %q", got)
	}
}
