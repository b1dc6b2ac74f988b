package csr_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// newAddOn creates an add-on as its hub controller does.
func (k *kube) newAddOn(cluster, name string, items ...ocm.Registration) *addon.ManagedClusterAddOn {
	k.T.Helper()
	a := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	regtest.Eventually(k.T, "the hub serves add-ons", func() bool {
		a.ResourceVersion = ""
		return client.IgnoreAlreadyExists(regtest.NewClient(k.T, k.Hub.Config()).Create(k.T.Context(), a)) == nil
	})
	a.Status.SetItems(items)
	if err := regtest.NewClient(k.T, k.Hub.Config()).Status().Update(k.T.Context(), a); err != nil {
		k.T.Fatal(err)
	}
	return a
}

// An add-on reaches the hub with a certificate, which its cluster's agent asks for with the rights that the hub gives it.
func TestAddOnByCertificate(t *testing.T) {
	k := newKube(t)
	k.Apply(k.Admin, addon.CRD)
	m := k.join("addons")
	m.accept()
	hub := m.Own()
	a := k.newAddOn("addons", "search", ocm.Registration{Type: ocm.KubeClient})
	in := registration.Input{Cluster: "addons", Agent: string(m.Secret().Data["agent-name"]), Addon: "search", Hub: hub}
	var got *registration.Credential
	regtest.Eventually(t, "the add-on's certificate", func() bool {
		in.Now, in.Item = time.Now(), addon.StatusOf(a).Items[0]
		step, err := csr.New(csr.Options{}).Next(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if step.Declare != nil {
			err := addon.PatchStatus(t.Context(), hub, a, func(s *addon.Status) bool { s.Items[0] = *step.Declare; return true })
			if err != nil {
				t.Fatal(err)
			}
			a.Status.SetItems([]ocm.Registration{*step.Declare})
		}
		in.State, got = step.State, step.Credential
		return got != nil
	})
	k.Step("says the default subject", func(t *testing.T) {
		config := rest.AnonymousClientConfig(k.Hub.Config())
		config.CertData, config.KeyData = got.Files["tls.crt"], got.Files["tls.key"]
		review := &authenticationv1.SelfSubjectReview{}
		if err := regtest.NewClient(t, config).Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		want := registration.AddOnSubject("addons", "search", in.Agent)
		groups := append(slices.Clone(want.Groups), "system:authenticated")
		slices.Sort(groups)
		slices.Sort(review.Status.UserInfo.Groups)
		if user := review.Status.UserInfo; user.Username != want.User || !reflect.DeepEqual(user.Groups, groups) {
			t.Errorf("%+v", user)
		}
	})
	k.Step("that another cluster asks for is refused", func(t *testing.T) {
		other := k.join("addons2")
		other.accept()
		in.Hub, in.State = other.Own(), nil
		if err := lastOf(t, in); !apierrors.IsForbidden(err) { // the approver would refuse it too
			t.Errorf("the error is %v", err)
		}
	})
}
