package token_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/addonapi/v1alpha1"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// movedHub is a hub with what Open Cluster Management left of an add-on of version v1alpha1.
func movedHub(t *testing.T, accepted bool, subject string) *memoryHub {
	t.Helper()
	a := &v1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1", UID: "u"}, Status: v1alpha1.ManagedClusterAddOnStatus{
		KubeClientDriver: "token", Registrations: []v1alpha1.RegistrationConfig{{SignerName: v1alpha1.KubeClientSigner, Subject: v1alpha1.Subject{User: subject}}}}}
	objects := []client.Object{managedCluster("cluster1", accepted), a}
	for _, o := range newOCMObjects("cluster1", "addon1").all() {
		o.SetUID(types.UID("ocm"))
		objects = append(objects, o)
	}
	return newMemoryHubOf(t, v1alpha1.GroupVersion, objects...)
}

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
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
}

// The objects that prove that a ServiceAccount is OCM's outlast it: a hub that stops in between goes on afterwards.
func TestAdoptionGoesOnAfterAFailure(t *testing.T) {
	const theirs, proposed = "system:serviceaccount:cluster1:addon1-agent", "system:serviceaccount:cluster1:cluster1-addon1-agent"
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
				h := movedHub(t, tc.accepted, tc.subject)
				hub, err := token.NewHub(token.HubOptions{Client: failing(h.WithWatch, nth)})
				if err != nil {
					t.Fatal(err)
				}
				request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}}
				if _, err := hub.Reconcile(t.Context(), request); err == nil {
					t.Error("no write fails")
				}
				if _, err := hub.Reconcile(t.Context(), request); err != nil {
					t.Error(err)
				}
				if got := h.accounts() + "/" + h.readiness(); got != tc.want {
					t.Errorf("%q instead of %q", got, tc.want)
				}
				if got := len(there(t, h)); got != map[bool]int{true: 3}[tc.accepted] {
					t.Errorf("there are %q", there(t, h))
				}
			})
		}
	}
}

// accounts returns the names of the ServiceAccounts, and the UID where it is OCM's.
func (h *memoryHub) accounts() (all string) {
	h.t.Helper()
	list := &corev1.ServiceAccountList{}
	if err := h.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	for _, a := range list.Items {
		all += strings.TrimSpace(a.Name + " " + string(a.UID))
	}
	return all
}

func (h *memoryHub) readiness() string {
	h.t.Helper()
	a := &v1alpha1.ManagedClusterAddOn{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "addon1"}, a); err != nil {
		h.t.Fatal(err)
	}
	if c := meta.FindStatusCondition(a.Status.Conditions, addon.ConditionTokenInfrastructureReady); c != nil {
		return string(c.Status)
	}
	return ""
}

// A cache that still shows OCM's labels is no reason to refuse what was adopted a moment ago.
func TestAdoptionReadsPastTheCache(t *testing.T) {
	h := movedHub(t, true, "system:serviceaccount:cluster1:addon1-agent")
	before := &corev1.ServiceAccount{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "addon1-agent"}, before); err != nil {
		t.Fatal(err)
	}
	h.reconcile("cluster1", "addon1")
	stale := interceptor.NewClient(h.WithWatch, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if account, ok := o.(*corev1.ServiceAccount); ok && key.Name == before.Name {
			before.DeepCopyInto(account)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}})
	hub, err := token.NewHub(token.HubOptions{Client: stale, Reader: h})
	if err != nil {
		t.Fatal(err)
	}
	writes := h.writes.Load()
	if _, err := hub.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}}); err == nil || !strings.Contains(err.Error(), "lags") {
		t.Errorf("error %v", err)
	}
	if h.writes.Load() != writes || h.readiness() != "True" || h.accounts() != "addon1-agent ocm" {
		t.Errorf("%d writes, condition %q, ServiceAccount %q", h.writes.Load()-writes, h.readiness(), h.accounts())
	}
}
