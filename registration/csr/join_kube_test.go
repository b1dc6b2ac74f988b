package csr_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// bootstrapToken makes a bootstrap token of the group that BootstrapRBAC names.
// Its user is "system:bootstrap:<id>".
func (m *member) bootstrapToken(id string) {
	m.T.Helper()
	const half = "0123456789abcdef"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": id, "token-secret": half, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": registration.BootstrapGroup}}
	if err := m.Admin.Create(m.T.Context(), secret); client.IgnoreAlreadyExists(err) != nil { // of another test
		m.T.Fatal(err)
	}
	m.Bootstrap = id + "." + half
	m.WriteBootstrap(m.Hub.Config().Host, m.Hub.Config().CAData)
}

func TestJoinOnTwoAPIServers(t *testing.T) {
	k := newKube(t)
	k.Step("by a bootstrap token, in a manager", func(t *testing.T) {
		m := k.join("join1")
		m.bootstrapToken("join01")
		defer m.Run()()
		regtest.Eventually(t, "the request waits", func() bool {
			return m.said.Says("ClientCertificateNotApproved", "wid hub accept") || len(k.requests("join1")) > 0
		})
		since := time.Now()
		k.SetAccepted("join1", true)
		regtest.Eventually(t, "the hub accepts", func() bool {
			return k.Reason("join1", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted"
		})
		accepted := time.Since(since)
		regtest.Eventually(t, "the certificate is stored", func() bool { return m.certificate() != "" })
		certificate := time.Since(since)
		regtest.Eventually(t, "the cluster joins", m.joined)
		t.Logf("after acceptance: RBAC %s, certificate %s, joined %s", accepted.Round(time.Millisecond),
			certificate.Round(time.Millisecond), time.Since(since).Round(time.Millisecond))
		k.expectRequests("join1", 1)
		m.checkIdentity(t)
	})
	k.Step("without a person, by a listed user", func(*testing.T) {
		m := k.join("join2")
		m.bootstrapToken("auto00")
		m.Until("the cluster joins", m.joined)
		k.expectRequests("join2", 1)
	})
	k.Step("renewal", func(t *testing.T) {
		m := k.join("join3")
		m.accept()
		first := m.certificate()
		m.ahead = time.Until(m.expiry()) - time.Minute
		m.Until("the certificate is renewed", func() bool { return m.certificate() != first })
		m.reconciles()
		k.expectRequests("join3", 2)
		if err := m.Own().Get(t.Context(), client.ObjectKey{Name: "join3"}, &ocm.ManagedCluster{}); err != nil {
			t.Error(err)
		}
	})
}

// checkIdentity uses the hub as the agent.
func (m *member) checkIdentity(t *testing.T) {
	t.Helper()
	own := m.Own()
	user := regtest.UserOf(t, own)
	groups := []string{"system:authenticated", registration.ClusterGroup(m.Name), ocm.ManagedClustersGroup}
	if user.Username != registration.AgentUser(m.Name, string(m.Secret().Data["agent-name"])) ||
		!slices.Equal(slices.Sorted(slices.Values(user.Groups)), slices.Sorted(slices.Values(groups))) {
		t.Errorf("authenticated as %+v", user)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName},
		&coordinationv1.Lease{}); err != nil {
		t.Error(err)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Namespace: m.Name + "0", Name: ocm.LeaseName},
		&coordinationv1.Lease{}); !apierrors.IsForbidden(err) {
		t.Errorf("the neighbour's Lease: %v", err)
	}
}

func (m *member) expiry() time.Time {
	m.T.Helper()
	block, _ := pem.Decode([]byte(m.certificate()))
	leaf, err := x509.ParseCertificate(block.Bytes)
	regtest.Must(m.T, err)
	return leaf.NotAfter
}
