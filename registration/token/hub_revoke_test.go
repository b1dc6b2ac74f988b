package token_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

func TestHubTearsDownWhenTheAgentHasWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		condition *metav1.Condition // of the agent
		driver    string
		gone      bool
	}{
		"csr, still refreshed": {&metav1.Condition{Type: "AddonTokenRefreshed", Status: "True",
			Reason: "AddonTokenRefreshed"}, registration.AuthTypeCSR, false},
		"csr, still refreshed, released name": {&metav1.Condition{Type: "TokenRefreshed", Status: "True",
			Reason: "AddonTokenRefreshed"}, registration.AuthTypeCSR, false},
		"csr, the last refresh failed": {&metav1.Condition{Type: "AddonTokenRefreshed", Status: "False",
			Reason: "TokenRequestForbidden"}, registration.AuthTypeCSR, false},
		"csr, withdrawn by removal": {nil, registration.AuthTypeCSR, true},
		"csr, withdrawn by its status": {&metav1.Condition{Type: "AddonTokenRefreshed", Status: "False",
			Reason: "DriverChanged"}, registration.AuthTypeCSR, true},
		"no driver, still refreshed": {&metav1.Condition{Type: "AddonTokenRefreshed", Status: "True",
			Reason: "AddonTokenRefreshed"}, "", false},
		"no driver, withdrawn":    {nil, "", true},
		"token, no condition yet": {nil, registration.AuthTypeToken, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
			h.reconcile("cluster1", "addon1")
			h.declare("cluster1", "addon1", tc.driver)
			if tc.condition != nil {
				a := addOn("cluster1", "addon1")
				regtest.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(a), a))
				meta.SetStatusCondition(&a.Status.Conditions, *tc.condition)
				regtest.Must(t, h.Status().Update(t.Context(), a))
			}
			h.reconcile("cluster1", "addon1")
			if got := there(t, h); (len(got) == 0) != tc.gone || (h.condition("cluster1", "addon1") == "") != tc.gone {
				t.Errorf("there are %q, condition %q", got, h.condition("cluster1", "addon1"))
			}
			before := h.writes.Load()
			if h.reconcile("cluster1", "addon1"); h.writes.Load() != before {
				t.Error("the second reconcile writes")
			}
		})
	}
}

// A denied cluster loses its add-ons' tokens, whatever the agent has declared
// since.
func TestHubRevokesWithTheCluster(t *testing.T) {
	for _, driver := range []string{registration.AuthTypeToken, registration.AuthTypeCSR} {
		t.Run(driver, func(t *testing.T) {
			cluster := managedCluster("cluster1", true)
			h := newMemoryHub(t, cluster, addOn("cluster1", "addon1", tokenItem(user)))
			h.reconcile("cluster1", "addon1")
			h.declare("cluster1", "addon1", driver)
			regtest.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			cluster.Spec.HubAcceptsClient = false
			regtest.Must(t, h.Update(t.Context(), cluster))
			h.reconcile("cluster1", "addon1")
			if got := there(t, h); len(got) > 0 {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// A finalizer may keep an add-on or a cluster in deletion for long.
func TestHubRevokesWhatIsBeingDeleted(t *testing.T) {
	for name, end := range map[string]func(*memoryHub, *ocm.ManagedCluster, *addon.ManagedClusterAddOn) error{
		"an add-on in deletion whose cluster is denied": func(h *memoryHub, cluster *ocm.ManagedCluster,
			a *addon.ManagedClusterAddOn) error {
			if err := h.WithWatch.Delete(t.Context(), a); err != nil {
				return err
			}
			if h.reconcile("cluster1", "addon1"); len(there(t, h)) != 3 {
				t.Error("the deletion alone ended the tokens, which the add-on may need to clean up")
			}
			cluster.Spec.HubAcceptsClient = false
			return h.Update(t.Context(), cluster)
		},
		"an add-on whose cluster is in deletion": func(h *memoryHub, cluster *ocm.ManagedCluster,
			_ *addon.ManagedClusterAddOn) error {
			return h.WithWatch.Delete(t.Context(), cluster)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, a := managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user))
			cluster.Finalizers, a.Finalizers = []string{"example.com/other"}, []string{"example.com/other"}
			h := newMemoryHub(t, cluster, a)
			h.reconcile("cluster1", "addon1")
			regtest.Must(t, errors.Join(h.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster), end(h, cluster, a)))
			h.reconcile("cluster1", "addon1")
			if got := there(t, h); len(got) > 0 {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// A hub that no longer offers the driver leaves running add-ons alone, and
// still revokes.
func TestHubThatOnlyRemoves(t *testing.T) {
	for name, tc := range map[string]struct {
		provided, accepted bool
		driver             string
		want               int
	}{
		"a new add-on gets nothing":           {false, true, registration.AuthTypeToken, 0},
		"a running add-on keeps its tokens":   {true, true, registration.AuthTypeToken, 3},
		"one of a denied cluster loses them":  {true, false, registration.AuthTypeToken, 0},
		"one that left the driver loses them": {true, true, registration.AuthTypeCSR, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := managedCluster("cluster1", true)
			h := newMemoryHub(t, cluster, addOn("cluster1", "addon1", tokenItem(user)))
			if tc.provided {
				h.reconcile("cluster1", "addon1")
			}
			before := h.condition("cluster1", "addon1")
			h.declare("cluster1", "addon1", tc.driver)
			regtest.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			cluster.Spec.HubAcceptsClient = tc.accepted
			err := h.Update(t.Context(), cluster)
			if err == nil {
				h.hub, err = token.NewHub(token.HubOptions{Client: h, Reader: h, RemoveOnly: true})
			}
			regtest.Must(t, err)
			h.reconcile("cluster1", "addon1")
			if got := there(t, h); len(got) != tc.want {
				t.Errorf("there are %q", got)
			}
			if got := h.condition("cluster1", "addon1"); tc.accepted && tc.driver == registration.AuthTypeToken &&
				got != before {
				t.Errorf("condition %q, before %q", got, before)
			}
		})
	}
}
