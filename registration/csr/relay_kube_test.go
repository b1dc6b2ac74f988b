package csr_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestRelayOnARealAPIServer(t *testing.T) {
	k := newKube(t)
	k.Apply(k.Admin, registration.RelayManifest)
	own := regtest.WithToken(k.Hub.Config(), k.Token(k.Admin, "open-cluster-management-relay", "registration-relay"))
	address := k.Relay(own)
	behind := func(name string) *member {
		m := k.join(name)
		m.WriteBootstrap(address.Host, address.CAData)
		return m
	}
	k.Step("the agent joins, the API server sees the agent", func(t *testing.T) {
		m := behind("relay1")
		m.accept()
		m.checkIdentity(t)
		k.expectRequests("relay1", 1)
		if config, err := m.Agent.HubConfig(t.Context()); err != nil || config.Host != address.Host {
			t.Errorf("the agent uses %+v, %v", config, err)
		}
		neighbour := behind("relay10")
		neighbour.accept()
		m.ExpectIsolated("relay10")
	})
	k.Step("by a bootstrap token", func(t *testing.T) {
		m := behind("relay2")
		m.bootstrapToken("auto00")
		m.WriteBootstrap(address.Host, address.CAData)
		m.Until("the cluster joins", m.joined)
		k.expectRequests("relay2", 1)
		if got := k.requests("relay2")[0].Spec.Username; got != "system:bootstrap:auto00" {
			t.Errorf("the hub saw the user %q", got)
		}
	})
	k.Step("renewal", func(t *testing.T) {
		m := behind("relay3")
		m.accept()
		first := m.certificate()
		m.ahead = time.Until(m.expiry()) - time.Minute
		m.Until("the certificate is renewed", func() bool { return m.certificate() != first })
		m.reconciles()
		k.expectRequests("relay3", 2)
		if err := m.Own().Get(t.Context(), client.ObjectKey{Name: "relay3"}, &ocm.ManagedCluster{}); err != nil {
			t.Error(err)
		}
	})
	k.Step("certificate refused", func(t *testing.T) {
		m := behind("relay4")
		m.accept()
		m.needsAPerson(t, func(data map[string][]byte) {
			key := ecKey(t)
			der, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			data["tls.key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
			data["tls.crt"] = newCA(t).sign(t, subject(m.Name, string(data["agent-name"])), key.Public(), time.Now().Add(-time.Hour), time.Minute)
		})
	})
	k.Step("revoked cluster", func(*testing.T) {
		m := behind("relay5")
		m.accept()
		k.SetAccepted("relay5", false)
		m.expectRevoked()
		m.expectWaiting()
		k.SetAccepted("relay5", true)
		since := time.Now()
		m.ahead = time.Minute // the Lease is due
		m.Until("the Lease is renewed", func() bool { return m.renewed(since) })
	})
	k.Step("token of a ServiceAccount in the cluster's namespace", k.tokenBehindRelay(address))
	k.Step("the relay's credential is refused, and agents keep theirs", func(t *testing.T) {
		m := k.join("relay6")
		broken := k.Relay(regtest.WithToken(k.Hub.Config(), "expired"))
		m.WriteBootstrap(address.Host, address.CAData)
		m.accept()
		before := m.certificate()
		m.WriteBootstrap(broken.Host, broken.CAData)
		m.Until("the agent says that it cannot use the hub", func() bool { return m.Failed != nil })
		m.Reconcile()
		if k.expectRequests("relay6", 1); m.certificate() != before || m.Failed == nil || strings.Contains(m.Failed.Error(), "bootstrap") {
			t.Errorf("the last reconcile: %v", m.Failed)
		}
	})
}

// tokenBehindRelay asks for the token of an add-on, and uses it.
func (k *kube) tokenBehindRelay(address *rest.Config) func(t *testing.T) {
	return func(t *testing.T) {
		m := k.join("relay7")
		m.WriteBootstrap(address.Host, address.CAData)
		m.accept()
		k.Apply(k.Admin, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: relay7-addon-agent, namespace: relay7}\n")
		k.Apply(k.Admin, `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: addon-token, namespace: relay7}
rules: [{apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [relay7-addon-agent], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: addon-token, namespace: relay7}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: addon-token}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:open-cluster-management:relay7"}]
`)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "relay7", Name: "relay7-addon-agent"}}
		request, agent := &authenticationv1.TokenRequest{}, m.Own()
		regtest.Eventually(t, "the agent gets the token", func() bool { return agent.SubResource("token").Create(t.Context(), account, request) == nil })
		addon := regtest.NewClient(t, regtest.WithToken(address, request.Status.Token))
		review := &authenticationv1.SelfSubjectReview{}
		if err := addon.Create(t.Context(), review); err != nil || review.Status.UserInfo.Username != "system:serviceaccount:relay7:relay7-addon-agent" {
			t.Errorf("authenticated as %+v, %v", review.Status.UserInfo, err)
		}
		err := addon.Get(t.Context(), client.ObjectKey{Name: "relay7"}, &ocm.ManagedCluster{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
	}
}

func TestRelayNeedsEachRight(t *testing.T) {
	k := newKube(t)
	m := k.join("relayrights")
	m.accept()
	cert, err := m.Agent.HubConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	impersonate := func(resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, Verbs: []string{"impersonate"}}
	}
	get := func(config *rest.Config) error {
		behind := k.Relay(config)
		behind.CertData, behind.KeyData = cert.CertData, cert.KeyData
		return regtest.NewClient(t, behind).Get(t.Context(), client.ObjectKey{Name: "relayrights"}, &ocm.ManagedCluster{})
	}
	k.Step("the manifest", func(t *testing.T) {
		k.Apply(k.Admin, registration.RelayManifest)
		own := regtest.WithToken(k.Hub.Config(), k.Token(k.Admin, "open-cluster-management-relay", "registration-relay"))
		regtest.Eventually(t, "RBAC knows the relay", func() bool { return get(own) == nil })
		for _, resource := range []string{"secrets", "managedclusters", "serviceaccounts", "uids", "userextras"} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "*", Group: "*", Resource: resource}}}
			if err := regtest.NewClient(t, own).Create(t.Context(), review); err != nil || review.Status.Allowed {
				t.Errorf("the relay itself may use %s, %v", resource, err)
			}
		}
	})
	k.Step("users and groups", func(t *testing.T) {
		if err := get(k.Hub.User(t, "relay-both", "", impersonate("users", "groups"))); err != nil {
			t.Error(err)
		}
	})
	for _, resource := range []string{"users", "groups"} {
		k.Step("only "+resource, func(t *testing.T) {
			if err := get(k.Hub.User(t, "relay-"+resource, "", impersonate(resource))); !apierrors.IsForbidden(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}
