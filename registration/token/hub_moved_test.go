package token_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
	"github.com/workloadid/workloadid/registration/token"
)

// movedHub is a hub with what Open Cluster Management left of an add-on of
// version v1alpha1.
func movedHub(t *testing.T, accepted bool, subject string, edit func(*ocmObjects)) *memoryHub {
	t.Helper()
	a := &v1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1", UID: "u"},
		Status: v1alpha1.ManagedClusterAddOnStatus{
			KubeClientDriver: "token",
			Registrations: []v1alpha1.RegistrationConfig{{SignerName: v1alpha1.KubeClientSigner,
				Subject: v1alpha1.Subject{User: subject}}}}}
	objects := []client.Object{managedCluster("cluster1", accepted), a}
	left := newOCMObjects("cluster1", "addon1")
	edit(left)
	for _, o := range left.all() {
		o.SetUID(types.UID("ocm"))
		objects = append(objects, o)
	}
	return newMemoryHubOf(t, v1alpha1.GroupVersion, objects...)
}

const theirs = "system:serviceaccount:cluster1:addon1-agent"

// failing fails the nth write.
func failing(c client.WithWatch, nth int) client.Client {
	writes := 0
	write := func(do func() error) error {
		if writes++; writes == nth {
			return errors.New("the API server is down")
		}
		return do()
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
}

// The objects that prove that a ServiceAccount is OCM's outlast it: a hub that
// stops in between goes on afterwards.
func TestAdoptionGoesOnAfterAFailure(t *testing.T) {
	const proposed = "system:serviceaccount:cluster1:cluster1-addon1-agent"
	for name, tc := range map[string]struct {
		accepted bool
		subject  string
		writes   int
		want     string // the ServiceAccounts that are left, and the condition
	}{
		"adoption":                           {true, theirs, 5, "addon1-agent ocm/True"},
		"denial":                             {false, theirs, 3, "/False"},
		"the name of the specification":      {true, proposed, 6, "cluster1-addon1-agent uid-1/True"},
		"denial after the declaration of it": {false, proposed, 3, "/False"},
	} {
		for nth := 1; nth <= tc.writes; nth++ {
			t.Run(fmt.Sprintf("%s, write %d", name, nth), func(t *testing.T) {
				h := movedHub(t, tc.accepted, tc.subject, func(*ocmObjects) {})
				hub, err := token.NewHub(token.HubOptions{Client: failing(h.WithWatch, nth), Reader: h.WithWatch})
				regtest.Must(t, err)
				request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}}
				if _, err := hub.Reconcile(t.Context(), request); err == nil {
					t.Error("no write fails")
				}
				if _, err := hub.Reconcile(t.Context(), request); err != nil {
					t.Error(err)
				}
				if got := h.accounts() + "/" + string(h.readiness().Status); got != tc.want {
					t.Errorf("%q instead of %q", got, tc.want)
				}
				if got := len(there(t, h)); got != map[bool]int{true: 3}[tc.accepted] {
					t.Errorf("there are %q", there(t, h))
				}
			})
		}
	}
}

// accounts returns the names of the ServiceAccounts, and the UID where it is
// OCM's.
func (h *memoryHub) accounts() (all string) {
	h.t.Helper()
	list := &corev1.ServiceAccountList{}
	regtest.Must(h.t, h.List(h.t.Context(), list))
	for _, a := range list.Items {
		all += strings.TrimSpace(a.Name + " " + string(a.UID))
	}
	return all
}

func (h *memoryHub) readiness() (c metav1.Condition) {
	h.t.Helper()
	a := &v1alpha1.ManagedClusterAddOn{}
	regtest.Must(h.t, h.Get(h.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "addon1"}, a))
	if found := meta.FindStatusCondition(a.Status.Conditions, addon.ConditionTokenInfrastructureReady); found != nil {
		c = *found
	}
	return c
}

// The hub adopts only a ServiceAccount whose tokens OCM's binding gives the
// cluster already.
func TestHubAdoptsNothingThatOpenClusterManagementDidNotGrant(t *testing.T) {
	other := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:open-cluster-management:other"}
	for _, row := range []struct {
		name string
		edit func(*ocmObjects)
		left int // of the three
	}{
		{"a ServiceAccount without OCM's labels", func(o *ocmObjects) { o.account.Labels = nil }, 1},
		{"a ServiceAccount with the labels of another add-on", func(o *ocmObjects) {
			o.account.Labels["addon.open-cluster-management.io/name"] = "addon2"
		}, 1},
		{"OCM's labels alone", func(o *ocmObjects) { o.role, o.binding = nil, nil }, 1},
		{"no binding", func(o *ocmObjects) { o.binding = nil }, 2},
		{"no Role", func(o *ocmObjects) { o.role = nil }, 2},
		{"a binding without labels", func(o *ocmObjects) { o.binding.Labels = nil }, 3},
		{"a Role without labels", func(o *ocmObjects) { o.role.Labels = nil }, 3},
		{"a binding of another group", func(o *ocmObjects) { o.binding.Subjects = []rbacv1.Subject{other} }, 3},
		{"a binding of one group more", func(o *ocmObjects) { o.binding.Subjects = append(o.binding.Subjects, other) }, 3},
		{"a binding to another Role", func(o *ocmObjects) { o.binding.RoleRef.Name = "other" }, 3},
		{"a Role for another ServiceAccount", func(o *ocmObjects) { o.role.Rules[0].ResourceNames = []string{"other"} }, 3},
		{"a Role for one ServiceAccount more", func(o *ocmObjects) {
			o.role.Rules[0].ResourceNames = append(o.role.Rules[0].ResourceNames, "other")
		}, 3},
		{"a Role for all ServiceAccounts", func(o *ocmObjects) { o.role.Rules[0].ResourceNames = nil }, 3},
		{"a Role with another right", func(o *ocmObjects) {
			o.role.Rules = append(o.role.Rules,
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
		}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := movedHub(t, true, theirs, row.edit)
			left, found := &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
			key := client.ObjectKey{Namespace: "cluster1", Name: "addon1-agent"}
			err := h.Get(t.Context(), key, left)
			h.reconcile("cluster1", "addon1")
			if c := h.readiness(); c.Reason != "ObjectTaken" || !strings.Contains(c.Message, "delete the object") {
				t.Errorf("condition %+v", c)
			}
			err = errors.Join(err, h.Get(t.Context(), key, found))
			if err != nil || found.ResourceVersion != left.ResourceVersion {
				t.Errorf("the ServiceAccount has changed: %+v, %v", found, err)
			}
			if got := there(t, h); len(got) != row.left {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// What OCM's hub left is removed too if the add-on was deleted, or the cluster
// denied as well, while no hub ran.
func TestHubRemovesWhatOpenClusterManagementLeft(t *testing.T) {
	for name, accepted := range map[string]bool{"of a deleted add-on": true, "of a denied cluster, too": false} {
		t.Run(name, func(t *testing.T) {
			h := movedHub(t, accepted, theirs, func(*ocmObjects) {})
			gone := &v1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1"}}
			regtest.Must(t, h.Delete(t.Context(), gone))
			h.reconcile("cluster1", "addon1")
			if got := there(t, h); len(got) > 0 {
				t.Errorf("there are %q", got)
			}
		})
	}
}
