package csr_test

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestRelayOnARealAPIServer(t *testing.T) {
	k := newKube(t)
	k.Apply(k.Admin, registration.RelayManifest())
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
		k.Apply(k.Admin, registration.RelayManifest())
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
