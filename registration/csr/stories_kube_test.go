package csr_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A hub administrator finds out whether the hub can use csr, which is the default beside another auth type.
func TestStory2HubUsesCSROrAnotherAuthType(t *testing.T) {
	k := newKube(t)
	k.Step("a hub that signs", func(t *testing.T) {
		if err := csr.Probe(t.Context(), k.Admin); err != nil {
			t.Error(err)
		}
	})
	k.Step("a hub that does not sign", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := csr.Probe(ctx, k.Local); !errors.Is(err, csr.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	})
	k.Step("csr is the default", func(t *testing.T) {
		m := k.join("story2")
		m.accept()
		if said := k.other.called(); len(said) > 0 {
			t.Errorf("the other driver was called: %q", said)
		}
	})
	k.Step("another auth type at the same time", func(t *testing.T) {
		annotated := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "story2-other", Annotations: map[string]string{otherAnnotation: "claim"}}}
		if err := k.Admin.Create(t.Context(), annotated); err != nil {
			t.Fatal(err)
		}
		regtest.Eventually(t, "the other driver grants", func() bool { return slices.Contains(k.other.called(), "grant story2-other claim") })
		regtest.Eventually(t, "the hub accepts", func() bool {
			return k.Reason("story2-other", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted"
		})
		bootstrap := regtest.NewClient(t, regtest.WithToken(k.Hub.Config(), k.Token(k.Admin, "open-cluster-management", "agent-registration-bootstrap")))
		k.expectRefused(k.ask("story2-other", "agent1", bootstrap).Name, `accepted with auth type "other"`)
	})
}

// expectRefused waits until the approver says why it does not approve a request.
func (k *kube) expectRefused(request, reason string) {
	k.T.Helper()
	regtest.Eventually(k.T, "the approver says "+reason, func() bool { return k.said.Says(request, reason) })
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := k.Admin.Get(k.T.Context(), client.ObjectKey{Name: request}, csr); err != nil || len(csr.Status.Conditions)+len(csr.Status.Certificate) > 0 {
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
			apierrors.IsForbidden(own.Get(m.T.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName}, &coordinationv1.Lease{}))
	})
}

// expectWaiting expects that an agent without access keeps its certificate and asks for nothing.
func (m *member) expectWaiting() {
	m.T.Helper()
	before := m.Secret().ResourceVersion
	m.Until("the agent says that it waits", func() bool { return m.said.Says("WaitingForAcceptance", "wid hub accept --clusters "+m.Name) })
	m.restart()
	m.reconciles()
	m.kube.expectRequests(m.Name, 1)
	if got := m.Secret().ResourceVersion; got != before {
		m.T.Error("the Secret was written")
	}
}

// The administrator of a managed cluster leaves the hub, which cleans up.
func TestStory5ManagedClusterLeaves(t *testing.T) {
	k := newKube(t)
	m := k.join("story5")
	m.accept()
	if err := m.Agent.Unjoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expectRevoked()
	m.expectWaiting()
	if got := k.Reason("story5", ocm.ConditionHubAccepted); got != "False/HubClusterAdminDenied" {
		t.Errorf("condition %q", got)
	}
	k.Step("it cannot come back by itself", func(t *testing.T) {
		accept := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hubAcceptsClient":true}}`))
		if err := m.Own().Patch(t.Context(), k.Cluster("story5"), accept); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
	})
	k.Step("a person deletes what is left", func(t *testing.T) {
		if err := k.Admin.Delete(t.Context(), k.Cluster("story5")); err != nil {
			t.Fatal(err)
		}
		regtest.Eventually(t, "the ManagedCluster is gone", func() bool { return k.Cluster("story5").Name == "" })
	})
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
		if err := k.Admin.Delete(t.Context(), k.Cluster("story7")); err != nil {
			t.Fatal(err)
		}
		regtest.Eventually(t, "the ManagedCluster is gone", func() bool { return k.Cluster("story7").Name == "" })
		m.expectRevoked()
		m.expectWaiting()
		if k.Cluster("story7").Name != "" {
			t.Error("the agent has created the cluster again")
		}
	})
	k.Step("a new start", func(t *testing.T) {
		if err := m.Local.Delete(t.Context(), m.Secret()); err != nil {
			t.Fatal(err)
		}
		m.said = &regtest.Recorder{}
		m.restart()
		m.accept()
		if k.expectRequests("story7", 2); m.certificate() == first {
			t.Error("it has the old certificate")
		}
	})
}

// One managed cluster has no access to what belongs to another one.
func TestStory8ClustersAreIsolated(t *testing.T) {
	k := newKube(t)
	a, b := k.join("story8"), k.join("story80")
	a.accept()
	b.accept()
	k.Step("story8", func(*testing.T) { a.ExpectIsolated("story80") })
	k.Step("story80", func(*testing.T) { b.ExpectIsolated("story8") })
}
