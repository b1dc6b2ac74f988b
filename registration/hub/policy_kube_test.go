package hub_test

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

func (k *hubKube) testPolicy(t *testing.T) {
	k.awaitPolicy(t)
	// All users may write all ManagedClusters here, so that nothing but the
	// policy decides.
	k.allow(t, "writers", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, rbacv1.PolicyRule{
		APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters", "managedclusters/status"},
		Verbs: []string{"create", "get", "patch"}})
	k.allow(t, "acceptors", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "acceptor"}, rbacv1.PolicyRule{
		APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters/accept"},
		Verbs: []string{"update"}})
	k.allow(t, "acceptors-of-one", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "acceptor-of-one"}, rbacv1.PolicyRule{
		APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters/accept"}, Verbs: []string{"update"},
		ResourceNames: []string{"vap"}})
	bootstrap := k.As("bootstrap")
	acceptor, one := k.As("acceptor"), k.As("acceptor-of-one")
	itself, eks, neighbour := k.AsAgent("vap"), k.As("eks", "open-cluster-management:vap"), k.AsAgent("vap0")
	create := func(accepted bool) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), managedCluster("new", func(m *ocm.ManagedCluster) {
				m.Spec.HubAcceptsClient = accepted
			}), client.DryRunAll)
		}
	}
	patch := func(body string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(t.Context(), managedCluster("vap"), client.RawPatch(types.MergePatchType, []byte(body)),
				client.DryRunAll)
		}
	}
	on, off := patch(`{"spec":{"hubAcceptsClient":true}}`), patch(`{"spec":{"hubAcceptsClient":false}}`)
	remove, label := patch(`{"spec":{"hubAcceptsClient":null}}`), patch(`{"metadata":{"annotations":{"a":"b"}}}`)
	status := func(c client.Client) error {
		return c.Status().Patch(t.Context(), managedCluster("vap"),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`)), client.DryRunAll)
	}
	change := func(f func(*ocm.ManagedCluster)) func(client.Client) error {
		return func(c client.Client) error {
			base := k.Cluster("vap")
			now := base.DeepCopy()
			f(now)
			if err := c.Patch(t.Context(), now.DeepCopy(), client.MergeFrom(base), client.DryRunAll); err != nil {
				return err
			}
			return c.Status().Patch(t.Context(), now, client.MergeFrom(base), client.DryRunAll)
		}
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "a", UID: "b"}}
	owned := patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"a","uid":"b"}]}}`)
	createWith := func(f func(*ocm.ManagedCluster)) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), managedCluster("new", f), client.DryRunAll)
		}
	}
	regtest.Must(t, k.Admin.Create(t.Context(), managedCluster("vap")))
	for _, accepted := range []bool{false, true} {
		k.SetAccepted("vap", accepted)
		base := k.Cluster("vap")
		now := base.DeepCopy()
		if withAcceptance(metav1.ConditionTrue, "Hub")(now); accepted {
			regtest.Must(t, k.Admin.Status().Patch(t.Context(), now, client.MergeFrom(base)))
		}
		for _, test := range []struct {
			name    string
			do      func(client.Client) error
			user    client.Client
			before  bool
			allowed bool
		}{
			{"a bootstrap user creates a cluster", create(false), bootstrap, false, true},
			{"a bootstrap user creates an accepted cluster", create(true), bootstrap, false, false},
			{"an acceptor creates an accepted cluster", create(true), acceptor, false, true},
			{"an acceptor of one cluster creates another", create(true), one, false, false},
			{"a bootstrap user accepts", on, bootstrap, false, false},
			{"an agent accepts itself", on, itself, false, false},
			{"an agent of EKS accepts itself", on, eks, false, false},
			{"an agent accepts itself through the status", func(c client.Client) error {
				if err := status(c); err != nil {
					return err
				}
				if k.Cluster("vap").Spec.HubAcceptsClient {
					t.Error("the status changed the spec")
				}
				return nil
			}, itself, false, true},
			{"an acceptor accepts", on, acceptor, false, true},
			{"an acceptor of this cluster accepts", on, one, false, true},
			{"an agent annotates itself before", label, itself, false, true},
			{"an agent annotates itself", label, itself, true, true},
			{"an agent leaves", off, itself, true, true},
			{"an agent of EKS leaves", off, eks, true, true},
			{"an agent leaves by removing the field", remove, itself, true, true},
			{"an agent backdates its acceptance", change(withAcceptance(metav1.ConditionFalse, "Mine")), itself, true, false},
			{"an agent says that it is accepted", change(withAcceptance(metav1.ConditionTrue, ocm.ReasonHubAccepted)), itself,
				false, false},
			{"an agent removes its acceptance", change(func(m *ocm.ManagedCluster) {
				m.Status.Conditions = nil
			}), itself, true, false},
			{"an agent adds a condition of its own", change(func(m *ocm.ManagedCluster) {
				meta.SetStatusCondition(&m.Status.Conditions,
					metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue, Reason: "Joined"})
			}), itself, true, true},
			{"an acceptor reports the acceptance", change(withAcceptance(metav1.ConditionFalse, "Other")), acceptor, true, true},
			{"an agent makes its neighbour leave", off, neighbour, true, false},
			{"a bootstrap user denies", off, bootstrap, true, false},
			{"an acceptor denies", off, acceptor, true, true},
			{"an agent adds an owner", owned, itself, true, false},
			{"an acceptor adds an owner", owned, acceptor, true, true},
			{"a bootstrap user creates a cluster with a finalizer", createWith(func(m *ocm.ManagedCluster) {
				m.Finalizers = []string{ocm.Finalizer}
			}), bootstrap, false, false},
			{"a bootstrap user creates a cluster with an owner", createWith(func(m *ocm.ManagedCluster) {
				m.OwnerReferences = owner
			}), bootstrap, false, false},
		} {
			if test.before != accepted {
				continue
			}
			k.Step(test.name, func(t *testing.T) {
				err := test.do(test.user)
				if test.allowed && err != nil || !test.allowed && !apierrors.IsForbidden(err) {
					t.Errorf("the error is %v, want Forbidden", err)
				}
				if !test.allowed && (err == nil || !strings.Contains(err.Error(), "managedclusters/accept")) {
					t.Errorf("the error does not name the verb: %v", err)
				}
			})
		}
	}
}

// withAcceptance sets the hub's condition, with a time of long ago.
func withAcceptance(status metav1.ConditionStatus, reason string) func(*ocm.ManagedCluster) {
	return func(m *ocm.ManagedCluster) {
		meta.RemoveStatusCondition(&m.Status.Conditions, ocm.ConditionHubAccepted)
		m.Status.Conditions = append(m.Status.Conditions,
			metav1.Condition{Type: ocm.ConditionHubAccepted, Status: status, Reason: reason,
				LastTransitionTime: metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))})
	}
}

// allow gives a subject a rule, and returns when it is in force.
func (k *hubKube) allow(t *testing.T, name string, subject rbacv1.Subject, rule rbacv1.PolicyRule) {
	t.Helper()
	subject.APIGroup = rbacv1.GroupName
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
	} {
		regtest.Must(t, k.Admin.Create(t.Context(), o))
	}
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	k.Hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: subject.Name, Groups: []string{subject.Name},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Name: "vap"}})
}
