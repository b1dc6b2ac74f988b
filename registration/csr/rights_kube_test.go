package csr_test

import (
	"fmt"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestApproverNeedsEachRight(t *testing.T) {
	k := newKube(t, kubetest.Start(t))
	k.runHub()
	k.Enroll("rights")
	k.stopHub()
	hub := regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:registration")
	own := regtest.VerbsOf(regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:csr"))
	approve := func(t *testing.T, user string, rules []rbacv1.PolicyRule) error {
		t.Helper()
		renewal := k.Request("rights", "agent1", k.AsAgent("rights"))
		return approveAs(t, k.Hub.User(t, user, "", append(slices.Clone(hub), rules...)...), renewal.Name)
	}
	k.Step("all", func(t *testing.T) {
		if err := approve(t, "approver", own); err != nil {
			t.Error(err)
		}
	})
	for i, rule := range own {
		k.Step(fmt.Sprintf("without %s %s", rule.Verbs[0], rule.Resources[0]), func(t *testing.T) {
			err := approve(t, fmt.Sprintf("approver-%d", i), slices.Delete(slices.Clone(own), i, i+1))
			if !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want Forbidden", err)
			}
		})
	}
}

// approveAs does what the approver does in a manager, with its informers, for a
// renewal.
func approveAs(t *testing.T, config *rest.Config, request string) error {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: regtest.Scheme(t)})
	regtest.Must(t, err)
	requests := &metav1.PartialObjectMetadataList{}
	requests.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequestList"))
	for _, list := range []client.ObjectList{requests, &ocm.ManagedClusterList{}} {
		if err := c.List(t.Context(), list); err != nil {
			return err
		}
		w, err := c.Watch(t.Context(), list)
		if err != nil {
			return err
		}
		w.Stop()
	}
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: c, Reader: c})
	regtest.Must(t, err)
	if _, err := csr.Reconcile(t.Context(), driver, request); err != nil {
		return err
	}
	approved := &certificatesv1.CertificateSigningRequest{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: request}, approved); err != nil ||
		len(approved.Status.Conditions) == 0 {
		t.Errorf("not approved: %v", err)
	}
	return nil
}
