package csr_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// bootstrapToken makes a bootstrap token of the group that BootstrapManifest names. Its user is "system:bootstrap:<id>".
func (m *member) bootstrapToken(id string) {
	m.T.Helper()
	const half = "0123456789abcdef"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": id, "token-secret": half, "usage-bootstrap-authentication": "true", "auth-extra-groups": registration.BootstrapGroup}}
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
		m.run()
		regtest.Eventually(t, "the request waits", func() bool {
			return m.said.Says("ClientCertificateNotApproved", "wid hub accept") || len(k.requests("join1")) > 0
		})
		since := time.Now()
		k.SetAccepted("join1", true)
		regtest.Eventually(t, "the hub accepts", func() bool { return k.Reason("join1", ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted" })
		accepted := time.Since(since)
		regtest.Eventually(t, "the certificate is stored", func() bool { return m.certificate() != "" })
		certificate := time.Since(since)
		regtest.Eventually(t, "the cluster joins", m.joined)
		t.Logf("after acceptance: RBAC %s, certificate %s, joined %s", accepted.Round(time.Millisecond), certificate.Round(time.Millisecond), time.Since(since).Round(time.Millisecond))
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
	review := &authenticationv1.SelfSubjectReview{}
	if err := own.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	user := review.Status.UserInfo
	groups := []string{"system:authenticated", registration.ClusterGroup(m.Name), regname.ManagedClustersGroup}
	if user.Username != registration.AgentUser(m.Name, string(m.Secret().Data["agent-name"])) ||
		!slices.Equal(slices.Sorted(slices.Values(user.Groups)), slices.Sorted(slices.Values(groups))) {
		t.Errorf("authenticated as %+v", user)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName}, &coordinationv1.Lease{}); err != nil {
		t.Error(err)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Namespace: m.Name + "0", Name: ocm.LeaseName}, &coordinationv1.Lease{}); !apierrors.IsForbidden(err) {
		t.Errorf("the neighbour's Lease: %v", err)
	}
}

func (m *member) expiry() time.Time {
	m.T.Helper()
	block, _ := pem.Decode([]byte(m.certificate()))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		m.T.Fatal(err)
	}
	return leaf.NotAfter
}

func (m *member) deny() {
	m.T.Helper()
	request := m.kube.open(m.Name)
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "ByHand", Message: "not this one"})
	if err := m.Admin.SubResource("approval").Update(m.T.Context(), request); err != nil {
		m.T.Fatal(err)
	}
}

func (m *member) deleteRequests() {
	m.T.Helper()
	for _, r := range m.kube.requests(m.Name) {
		if err := m.Admin.Delete(m.T.Context(), &r); err != nil {
			m.T.Fatal(err)
		}
	}
}

// approve does what wid hub accept does for a cluster that has joined.
func (m *member) approve() {
	m.T.Helper()
	if err := agentrequest.Approve(m.T.Context(), m.Admin, m.kube.open(m.Name), "by a person"); err != nil {
		m.T.Fatal(err)
	}
}

func TestWhatInterruptsAFirstRequest(t *testing.T) {
	k := newKube(t)
	k.Step("restart", func(t *testing.T) {
		m := k.join("first1")
		m.pending()
		name := k.open("first1").Name
		m.restart()
		m.reconciles()
		m.accept()
		k.expectRequests("first1", 1)
		if got := k.requests("first1")[0].Name; got != name {
			t.Errorf("the request %q was replaced by %q", name, got)
		}
	})
	k.Step("request deleted", func(t *testing.T) {
		m := k.join("first2")
		m.pending()
		name := k.open("first2").Name
		m.deleteRequests()
		m.reconciles()
		if got := k.open("first2").Name; got != name {
			t.Errorf("it asks again as %q instead of %q", got, name)
		}
		m.accept()
		k.expectRequests("first2", 1)
	})
	k.Step("request denied", func(t *testing.T) {
		m := k.join("first3")
		m.pending()
		m.deny()
		k.SetAccepted("first3", true)
		m.Until("the agent says so", func() bool { return m.said.Says("ClientCertificateDenied", "not this one", "Delete it on the hub") })
		m.restart()
		m.reconciles()
		k.expectRequests("first3", 1)
		if m.certificate() != "" || m.joined() {
			t.Error("it has joined")
		}
		m.deleteRequests()
		m.Until("the cluster joins", m.joined)
		k.expectRequests("first3", 1)
	})
	k.Step("hub's controller restarted", func(*testing.T) {
		m := k.join("first5")
		m.pending()
		k.stopHub()
		k.SetAccepted("first5", true)
		m.reconciles()
		k.runHub()
		m.Until("the cluster joins", m.joined)
		k.expectRequests("first5", 1)
	})
	k.Step("clock 8 minutes ahead and a certificate of 10 minutes", func(t *testing.T) {
		m := k.join("first4")
		m.ahead, m.driver.Lifetime = 8*time.Minute, 10*time.Minute
		m.restart()
		m.accept()
		m.reconciles()
		m.ahead += 3 * time.Minute // it renews 3 min 45 s after receipt at the earliest
		m.reconciles()
		k.expectRequests("first4", 1)
		m.ahead += time.Minute
		m.Until("the certificate is renewed", func() bool { return len(k.requests("first4")) == 2 && m.joined() })
		m.reconciles()
		k.expectRequests("first4", 2)
		regtest.Eventually(t, "the hub sees it alive", func() bool { return k.Reason("first4", ocm.ConditionAvailable) == "True/ManagedClusterAvailable" })
	})
}

func TestWhatHappensToAJoinedCluster(t *testing.T) {
	k := newKube(t)
	var n int
	joined := func() *member {
		n++
		m := k.join(fmt.Sprintf("joined%d", n))
		m.accept()
		return m
	}
	k.Step("restart", func(t *testing.T) {
		m := joined()
		before := m.Secret().ResourceVersion
		m.restart()
		m.reconciles()
		if got := m.Secret().ResourceVersion; got != before {
			t.Error("the Secret was written")
		}
		k.expectRequests(m.Name, 1)
	})
	k.Step("certificate expired by the agent's clock alone", func(*testing.T) {
		m := joined()
		old := m.certificate()
		m.ahead = time.Until(m.expiry()) + time.Hour
		m.Until("the certificate is renewed", func() bool { return m.certificate() != old })
		m.reconciles()
		k.expectRequests(m.Name, 2)
	})
	k.Step("certificate expired", func(t *testing.T) {
		m := joined()
		m.needsAPerson(t, func(data map[string][]byte) {
			key := ecKey(t)
			der, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			data["tls.key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
			// The hub answers 401 to it as to all that have expired.
			data["tls.crt"] = newCA(t).sign(t, subject(m.Name, string(data["agent-name"])), key.Public(), time.Now().Add(-time.Hour), time.Minute)
		})
	})
	k.Step("certificate edited", func(t *testing.T) {
		joined().needsAPerson(t, func(data map[string][]byte) { data["tls.crt"] = []byte("x") })
	})
	k.Step("Secret deleted", func(t *testing.T) {
		joined().needsAPerson(t, nil)
	})
	k.Step("certificate refused for a moment", func(t *testing.T) {
		m := joined()
		crt := m.certificate()
		m.edit(func(data map[string][]byte) { data["tls.crt"] = []byte("x") })
		m.Until("it asks again", func() bool { return len(k.requests(m.Name)) == 2 })
		m.edit(func(data map[string][]byte) { data["tls.crt"] = []byte(crt) })
		since := time.Now()
		m.ahead = time.Minute // the Lease is due
		m.Until("the Lease is renewed", func() bool { return m.renewed(since) })
		m.reconciles()
		k.expectRequests(m.Name, 2)
		if m.Secret().Data["state.csr.key"] != nil {
			t.Error("it still asks")
		}
	})
	k.Step("agent's name edited", func(*testing.T) {
		m := joined()
		name := m.Secret().Data["agent-name"]
		m.edit(func(data map[string][]byte) { data["agent-name"] = []byte("another") })
		rotated := func() string { return k.Reason(m.Name, regname.ConditionCertificateRotated) }
		m.Until("a condition says that it takes a person", func() bool { return rotated() == "False/ClientCertificateNotApproved" })
		since := time.Now()
		m.ahead = time.Minute // the Lease is due
		m.Until("the Lease is renewed all the same", func() bool { return m.renewed(since) })
		m.edit(func(data map[string][]byte) { data["agent-name"] = name })
		m.Until("the condition is gone", func() bool { return rotated() == "True/ClientCertificateUpdated" })
		m.reconciles()
		k.expectRequests(m.Name, 2)
	})
	k.Step("renewal denied", func(t *testing.T) {
		m := joined()
		crt := m.certificate()
		k.stopHub()
		m.ahead = time.Until(m.expiry()) - time.Minute
		m.Until("it asks", func() bool { return len(k.requests(m.Name)) == 2 })
		m.deny()
		m.Until("a condition says so", func() bool {
			return k.Reason(m.Name, regname.ConditionCertificateRotated) == "False/ClientCertificateDenied"
		})
		k.runHub()
		m.restart()
		m.reconciles()
		if k.expectRequests(m.Name, 2); m.certificate() != crt || k.Reason(m.Name, ocm.ConditionAvailable) != "True/ManagedClusterAvailable" {
			t.Error("the cluster lost its access")
		}
	})
	k.Step("kubeconfig edited", func(*testing.T) {
		m := joined()
		good := string(m.Secret().Data["kubeconfig"])
		m.edit(func(data map[string][]byte) { data["kubeconfig"] = []byte("x") })
		m.Until("the kubeconfig is mended", func() bool { return string(m.Secret().Data["kubeconfig"]) == good })
		m.reconciles()
		k.expectRequests(m.Name, 1)
	})
	k.Step("hub's address changed", func(t *testing.T) {
		m := joined()
		crt, server := m.certificate(), "https://localhost:"+m.Hub.IssuerURL()[len("https://127.0.0.1:"):]
		m.WriteBootstrap(server, m.Hub.Config().CAData)
		m.Until("the agent follows", func() bool {
			config, err := m.Agent.HubConfig(t.Context())
			return err == nil && config.Host == server && m.Failed == nil
		})
		m.stays(t, crt)
	})
	k.Step("hub's CA changed", func(t *testing.T) {
		m := joined()
		crt := m.certificate()
		m.WriteBootstrap(m.Hub.Config().Host, m.Managed.Config().CAData)
		m.Until("the agent says that it does not trust the hub", func() bool { return m.said.Says("RegistrationFailed", "certificate-authority-data") })
		both := append(slices.Clone(m.Managed.Config().CAData), m.Hub.Config().CAData...)
		m.WriteBootstrap(m.Hub.Config().Host, both)
		m.Until("the agent trusts it again", func() bool { return m.Failed == nil })
		m.stays(t, crt)
	})
}

// stays expects that the agent works with the certificate that it has.
func (m *member) stays(t *testing.T, crt string) {
	t.Helper()
	m.reconciles()
	m.kube.expectRequests(m.Name, 1)
	since := time.Now()
	m.ahead = time.Minute // the Lease is due
	m.Until("the Lease is renewed", func() bool { return m.renewed(since) })
	if m.certificate() != crt {
		t.Error("the certificate was replaced")
	}
}

// needsAPerson takes the certificate from an agent that has joined: it asks once with the bootstrap credential, and a person approves.
func (m *member) needsAPerson(t *testing.T, edit func(map[string][]byte)) {
	t.Helper()
	m.said = &regtest.Recorder{}
	old := m.certificate()
	if edit != nil {
		m.edit(edit)
	} else if err := m.Local.Delete(t.Context(), m.Secret()); err != nil {
		t.Fatal(err)
	}
	m.restart()
	m.Until("the agent says that it waits", func() bool { return m.said.Says("ClientCertificateNotApproved") })
	name := m.kube.open(m.Name).Name
	regtest.Eventually(t, "the hub says that it takes a person", func() bool {
		return m.kube.said.Says(name, "AlreadyJoined", "wid hub accept --clusters "+m.Name+" --approve-request "+name)
	})
	m.reconciles()
	m.kube.expectRequests(m.Name, 2)
	m.approve()
	since := time.Now()
	m.ahead = time.Minute // the Lease is due
	m.Until("the agent is back", func() bool { return m.renewed(since) && m.certificate() != old })
	m.reconciles()
	m.kube.expectRequests(m.Name, 2)
}
