package csr_test

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// expectRefused waits until the approver says why it does not approve a
// request.
func (k *kube) expectRefused(request, reason string) {
	k.T.Helper()
	regtest.Eventually(k.T, "the approver says "+reason, func() bool { return k.said.Says(request, reason) })
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := k.Admin.Get(k.T.Context(), client.ObjectKey{Name: request}, csr); err != nil ||
		len(csr.Status.Conditions)+len(csr.Status.Certificate) > 0 {
		k.T.Errorf("request %q got %+v, %v", request, csr.Status.Conditions, err)
	}
}

// expectRevoked waits until a cluster has no access, and its namespace is left.
func (m *member) expectRevoked() {
	m.T.Helper()
	regtest.Eventually(m.T, "the RBAC is gone", func() bool { return len(m.RBAC(m.Name)) == 0 })
	if err := m.Admin.Get(m.T.Context(), client.ObjectKey{Name: m.Name}, &corev1.Namespace{}); err != nil {
		m.T.Error(err)
	}
	own := m.Own()
	regtest.Eventually(m.T, "the agent is shut out", func() bool {
		return apierrors.IsForbidden(own.Get(m.T.Context(), client.ObjectKey{Name: m.Name}, &ocm.ManagedCluster{})) &&
			apierrors.IsForbidden(own.Get(m.T.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName},
				&coordinationv1.Lease{}))
	})
}

// expectWaiting expects that an agent without access keeps its certificate and
// asks for nothing.
func (m *member) expectWaiting() {
	m.T.Helper()
	before := m.Secret().ResourceVersion
	m.Until("the agent says that it waits", func() bool {
		return m.said.Says("WaitingForAcceptance", "wid hub accept --clusters "+m.Name)
	})
	m.restart()
	m.reconciles()
	m.kube.expectRequests(m.Name, 1)
	if got := m.Secret().ResourceVersion; got != before {
		m.T.Error("the Secret was written")
	}
}

// A hub administrator revokes the access of a managed cluster.
func TestStory7HubRevokesAccess(t *testing.T) {
	k := newKube(t)
	m := k.join("story7")
	m.accept()
	first := m.certificate()
	k.Step("by denial", func(t *testing.T) {
		k.SetAccepted("story7", false)
		m.expectRevoked()
		m.expectWaiting()
		if got := k.Reason("story7", ocm.ConditionHubAccepted); got != "False/HubClusterAdminDenied" {
			t.Errorf("condition %q", got)
		}
	})
	k.Step("and gives it back", func(t *testing.T) {
		k.SetAccepted("story7", true)
		since := time.Now()
		m.ahead = time.Minute // the Lease is due
		m.Until("the Lease is renewed", func() bool { return m.renewed(since) })
		if k.expectRequests("story7", 1); m.certificate() != first {
			t.Error("the certificate was replaced")
		}
	})
	k.Step("by deletion", func(t *testing.T) {
		regtest.Must(t, k.Admin.Delete(t.Context(), k.Cluster("story7")))
		regtest.Eventually(t, "the ManagedCluster is gone", func() bool { return k.Cluster("story7").Name == "" })
		m.expectRevoked()
		m.expectWaiting()
		if k.Cluster("story7").Name != "" {
			t.Error("the agent has created the cluster again")
		}
	})
	k.Step("a new start", func(t *testing.T) {
		regtest.Must(t, m.Local.Delete(t.Context(), m.Secret()))
		m.said = &regtest.Recorder{}
		m.restart()
		m.accept()
		if k.expectRequests("story7", 2); m.certificate() == first {
			t.Error("it has the old certificate")
		}
	})
}
