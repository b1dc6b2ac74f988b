package csr_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestRelayOnARealAPIServer(t *testing.T) {
	k := newKube(t, kubetest.Start(t))
	k.runHub()
	address := k.Relay(k.relayRights(manifests.RelayLegacyRBAC()))
	own := k.Enroll("relay1")
	k.Enroll("relay10")
	agent := regtest.NewClient(t, through(address, own))
	kubetest.Eventually(t, "RBAC knows the relay", func() bool { return reads(t, agent, "relay1") == nil })
	k.ExpectAgent(agent, "relay1", "agent1")
	k.ExpectIsolated(agent, "relay1", "relay10")
}

// through returns the configuration of an agent that uses a relay.
func through(address, own *rest.Config) *rest.Config {
	config := rest.CopyConfig(address)
	config.CertData, config.KeyData = own.CertData, own.KeyData
	return config
}

func reads(t *testing.T, c client.Client, cluster string) error {
	t.Helper()
	return c.Get(t.Context(), client.ObjectKey{Name: cluster}, &ocm.ManagedCluster{})
}

// The old verb works on all servers. One of the two here has no constrained
// impersonation, like servers before 1.36.
func TestRelayNeedsEachRight(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *kubetest.Cluster{
		"newer server": func(t *testing.T) *kubetest.Cluster { return kubetest.Start(t) },
		"older server": func(t *testing.T) *kubetest.Cluster {
			return kubetest.StartNew(t, kubetest.Flag{Name: "feature-gates", Value: "ConstrainedImpersonation=false"})
		},
	} {
		t.Run(name, func(t *testing.T) { testLegacyRights(newKube(t, start(t))) })
	}
}

func testLegacyRights(k *kube) {
	k.runHub()
	get := k.getThroughRelay("relayrights")
	impersonate := func(resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, Verbs: []string{"impersonate"}}
	}
	k.Step("the manifest", func(t *testing.T) {
		own := k.relayRights(manifests.RelayLegacyRBAC())
		kubetest.Eventually(t, "RBAC knows the relay", func() bool { return get(own) == nil })
		k.expectNoOwnRights(t, own)
	})
	k.Step("users and groups", func(t *testing.T) {
		if err := get(k.Hub.User(t, "relay-both", "", impersonate("users", "groups"))); err != nil {
			t.Error(err)
		}
	})
	for _, resource := range []string{"users", "groups"} {
		k.Step("only "+resource, func(t *testing.T) {
			if err := get(k.Hub.User(t, "relay-"+resource, "", impersonate(resource))); !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want Forbidden", err)
			}
		})
	}
}

// getThroughRelay returns a function that reads a cluster as its agent, through
// a relay with a credential.
func (k *kube) getThroughRelay(cluster string) func(*rest.Config) error {
	k.T.Helper()
	own := k.Enroll(cluster)
	return func(config *rest.Config) error {
		return reads(k.T, regtest.NewClient(k.T, through(k.Relay(config), own)), cluster)
	}
}

// expectNoOwnRights expects that the relay has no rights as itself.
func (k *kube) expectNoOwnRights(t *testing.T, own *rest.Config) {
	t.Helper()
	for _, resource := range []string{"secrets", "managedclusters", "serviceaccounts", "uids", "userextras"} {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "*", Group: "*", Resource: resource}}}
		if err := regtest.NewClient(t, own).Create(t.Context(), review); err != nil || review.Status.Allowed {
			t.Errorf("the relay itself may use %s, %v", resource, err)
		}
	}
}

// The hub names the agents of accepted clusters. Its roles have the names of
// those for the old verb, which the other tests delete.
func TestConstrainedRelay(t *testing.T) {
	k := newKube(t, kubetest.Start(t))
	own := k.relayRights(manifests.RelayConstrainedRBAC())
	k.relay = true
	k.runHub()
	k.Step("each right is needed", func(t *testing.T) { k.testConstrainedRights(t, own) })
	k.Step("a stolen credential", func(t *testing.T) { k.testStolen(t, own) })
}

func (k *kube) testConstrainedRights(t *testing.T, own *rest.Config) {
	get := k.getThroughRelay("constrained")
	kubetest.Eventually(t, "RBAC knows the relay", func() bool { return get(own) == nil })
	k.expectNoOwnRights(t, own)
	named := &rbacv1.ClusterRole{}
	regtest.Must(t,
		k.Admin.Get(t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("constrained") + ":relay"}, named))
	all := append(named.Rules,
		rbacv1.PolicyRule{APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters"},
			Verbs: []string{"impersonate-on:user-info:get"}},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*"},
			Verbs: []string{"impersonate-on:user-info:get"}})
	k.Step("all", func(t *testing.T) {
		if err := get(k.Hub.User(t, "constrained-all", "", all...)); err != nil {
			t.Error(err)
		}
	})
	for i, without := range []string{"the user", "the groups", "the cluster"} {
		k.Step("without "+without, func(t *testing.T) {
			if err := get(k.Hub.User(t, fmt.Sprintf("constrained-%d", i), "",
				slices.Delete(slices.Clone(all), i, i+1)...)); !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want Forbidden", err)
			}
		})
	}
}

// A stolen credential of the relay gives what the agents of accepted clusters
// may do. With the right to impersonate any user a thief would request the
// certificate of a node as an administrator, which kube-controller-manager
// approves, and read Secrets by that.
func (k *kube) testStolen(t *testing.T, own *rest.Config) {
	k.Enroll("stolen")
	regtest.Must(t,
		k.Admin.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "stolenpending"}}))
	pending := k.Request("stolenpending", "agent1", k.As(regtest.BootstrapUser))
	kubetest.Eventually(t, "the hub leaves a cluster to an administrator", func() bool {
		return k.said.Says(pending.Name, "NotAccepted")
	})
	const admins = "kubeadm:cluster-admins"
	k.Apply(k.Admin,
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: stolen-admins}\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects:\n- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: \""+admins+"\"}\n"+
			"- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}\n")
	agent := rest.ImpersonationConfig{UserName: registration.AgentUser("stolen", "agent1"),
		Groups: []string{registration.ClusterGroup("stolen"), ocm.ManagedClustersGroup}}
	as := func(own *rest.Config, who rest.ImpersonationConfig) client.Client {
		own = rest.CopyConfig(own)
		own.Impersonate = who
		return regtest.NewClient(t, own)
	}
	secrets := func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }
	node := func(c client.Client) error {
		return c.Create(t.Context(),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{Request: nodeRequest(t),
					SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
					Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}})
	}
	cluster := func(name string) func(client.Client) error {
		return func(c client.Client) error { return reads(t, c, name) }
	}
	kubetest.Eventually(t, "the relay acts as the agent", func() bool { return cluster("stolen")(as(own, agent)) == nil })
	attacks := map[string]struct {
		who rest.ImpersonationConfig
		do  func(client.Client) error
	}{
		"Secrets as itself": {rest.ImpersonationConfig{}, secrets},
		"Secrets as an administrator": {rest.ImpersonationConfig{UserName: "kubernetes-admin",
			Groups: []string{admins}}, secrets},
		"Secrets as a named administrator": {rest.ImpersonationConfig{UserName: "alice"}, secrets},
		"Secrets as system:masters": {rest.ImpersonationConfig{UserName: "x",
			Groups: []string{"system:masters"}}, secrets},
		"Secrets as a ServiceAccount": {
			rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:generic-garbage-collector"}, secrets},
		"Secrets as the agent": {agent, secrets},
		"a node's certificate as an administrator": {rest.ImpersonationConfig{UserName: "kubernetes-admin",
			Groups: []string{admins}}, node},
		"a node's certificate as a named one": {rest.ImpersonationConfig{UserName: "alice"}, node},
		"a node's certificate as a new node": {rest.ImpersonationConfig{UserName: "system:bootstrap:abcdef",
			Groups: []string{"system:bootstrappers"}}, node},
		"the agent with an administrator's group": {rest.ImpersonationConfig{UserName: agent.UserName,
			Groups: []string{admins}}, cluster("stolen")},
		"an agent that no hub has accepted": {
			rest.ImpersonationConfig{UserName: registration.AgentUser("stolenpending", "agent1"),
				Groups: []string{registration.ClusterGroup("stolenpending")}}, cluster("stolenpending")},
	}
	for name, attack := range attacks {
		k.Step(name, func(t *testing.T) {
			if err := attack.do(as(own, attack.who)); !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want Forbidden", err)
			}
		})
	}
	k.Step("an administrator's own credential does all of that", func(t *testing.T) {
		k.Hub.ControllerManager(t, "csrapproving")
		regtest.Must(t, errors.Join(secrets(k.Admin), node(k.Admin)))
		kubetest.Eventually(t, "kube-controller-manager approves the node's certificate", func() bool {
			all := &certificatesv1.CertificateSigningRequestList{}
			regtest.Must(t, k.Admin.List(t.Context(), all))
			return slices.ContainsFunc(all.Items, func(r certificatesv1.CertificateSigningRequest) bool {
				return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
					slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
						return c.Type == certificatesv1.CertificateApproved
					})
			})
		})
	})
	k.Step("a denied cluster", func(t *testing.T) {
		k.SetAccepted("stolen", false)
		name := registration.ClusterRoleName("stolen") + ":relay"
		kubetest.Eventually(t, "the hub takes the relay's right", func() bool {
			return apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Name: name}, &rbacv1.ClusterRole{})) &&
				apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Name: name}, &rbacv1.ClusterRoleBinding{}))
		})
	})
}

// nodeRequest is the request of a kubelet.
func nodeRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:stolen",
			Organization: []string{"system:nodes"}}}, key)
	regtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
