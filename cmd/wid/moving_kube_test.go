package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// move is a hub of Open Cluster Management with one cluster, which moves as
// docs/registration-operate.md says.
type move struct {
	*documented
	key  *ecdsa.PrivateKey // of the cluster's agent
	cert []byte
}

func newMove(t *testing.T) *move {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	w := newHubEnvironment(t)
	w.runKubelet()
	return &move{
		documented: w.document(document.Read(t,
			"docs/registration-operate.md").Section("Moving from Open Cluster Management")), key: key}
}

func (m *move) create(c client.Client, objects ...client.Object) {
	m.t.Helper()
	for _, o := range objects {
		regtest.Must(m.t, c.Create(m.t.Context(), o))
	}
}

// installOCM leaves a hub of Open Cluster Management with the cluster
// managed-0, which has joined, and its agent.
func (m *move) installOCM() {
	m.t.Helper()
	crds, err := manifests.Parse(ocm.CRD(), addon.CRD())
	regtest.Must(m.t, err)
	m.create(m.hub, crds[0], crds[1])
	kubetest.Eventually(m.t, "the hub serves ManagedClusters and add-ons", func() bool {
		m.hub = m.client(m.hubConfig)
		return m.hub.List(m.t.Context(), &ocm.ManagedClusterList{}) == nil &&
			m.hub.List(m.t.Context(), &addon.ManagedClusterAddOnList{}) == nil
	})
	m.create(m.hub, regtest.OCMHub()...)
	m.create(m.hub, regtest.LeftByOCM("managed-0")...)
	m.cert = m.sign(m.request(m.hub, "managed-0-first"), true)
	cluster := &ocm.ManagedCluster{}
	regtest.Must(m.t, m.hub.Get(m.t.Context(), client.ObjectKey{Name: "managed-0"}, cluster))
	cluster.Spec.Taints = []ocm.Taint{{Key: "cluster.open-cluster-management.io/unreachable", Effect: "NoSelect"}}
	cluster.Labels["feature.open-cluster-management.io/addon-search"] = "available"
	regtest.Must(m.t, m.hub.Update(m.t.Context(), cluster))
	cluster.Status.ClusterClaims = []ocm.ManagedClusterClaim{{Name: "id.k8s.io", Value: "managed-0"}}
	cluster.Status.Conditions = []metav1.Condition{regtest.AcceptedByOCM(),
		{Type: ocm.ConditionClockSynced, Status: metav1.ConditionTrue, Reason: "ManagedClusterClockSynced",
			LastTransitionTime: metav1.Now()}}
	for _, c := range []metav1.Condition{{Type: ocm.ConditionJoined, Reason: "ManagedClusterJoined"},
		{Type: ocm.ConditionAvailable, Reason: "ManagedClusterAvailable"}} {
		c.Status = metav1.ConditionTrue
		meta.SetStatusCondition(&cluster.Status.Conditions, c)
	}
	regtest.Must(m.t, m.hub.Status().Update(m.t.Context(), cluster))
	m.installAddOn("search", registration.AuthTypeToken)
	m.installAgent()
}

// installAddOn leaves an add-on that the agent has registered.
func (m *move) installAddOn(name, driver string) {
	m.t.Helper()
	o := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "managed-0", Name: name}}
	m.create(m.hub, o)
	o.Status.SetItems([]ocm.Registration{{Type: ocm.KubeClient, Driver: driver}})
	regtest.Must(m.t, m.hub.Status().Update(m.t.Context(), o))
}

func (m *move) keyPEM() []byte {
	m.t.Helper()
	key, err := x509.MarshalECPrivateKey(m.key)
	regtest.Must(m.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
}

// installAgent leaves the agent of Open Cluster Management and its Secrets on
// the managed cluster.
func (m *move) installAgent() {
	m.t.Helper()
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: name}, Data: data}
	}
	deployment := func(namespace, name string) *appsv1.Deployment {
		labels := map[string]string{"app": name}
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "program", Image: "ocm"}}}}}}
	}
	m.create(m.managed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.DefaultNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.DefaultAddOnNamespace}},
		secret(agent.DefaultBootstrapSecret,
			map[string][]byte{"kubeconfig": []byte(kubeconfigOf(m.t, m.hubConfig.Host, m.hubConfig.CAData, nil, nil, ""))}),
		secret(ocm.HubKubeconfigSecret,
			map[string][]byte{"cluster-name": []byte("managed-0"), "agent-name": []byte("agent1"), "tls.crt": m.cert,
				"tls.key": m.keyPEM(),
				"kubeconfig": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: default-cluster, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: default-auth, user: {client-certificate: tls.crt, client-key: tls.key}}]
contexts: [{name: default-context, context: {cluster: default-cluster, user: default-auth, namespace: configuration}}]
current-context: default-context
`, m.hubConfig.Host, base64.StdEncoding.EncodeToString(m.hubConfig.CAData))}),
		deployment("open-cluster-management", "klusterlet"),
		deployment(agent.DefaultNamespace, "klusterlet-registration-agent"))
}

// request asks for a certificate of the cluster's agent, as agents of Open
// Cluster Management do.
func (m *move) request(c client.Client, name string) *certificatesv1.CertificateSigningRequest {
	m.t.Helper()
	subject := pkix.Name{CommonName: registration.AgentUser("managed-0", "agent1"),
		Organization: []string{registration.ClusterGroup("managed-0"), ocm.ManagedClustersGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, m.key)
	regtest.Must(m.t, err)
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ocm.ClusterNameLabel: "managed-0"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageClientAuth}}}
	m.create(c, request)
	return request
}

// sign waits for the certificate.
func (m *move) sign(request *certificatesv1.CertificateSigningRequest, approve bool) []byte {
	m.t.Helper()
	if approve {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
				Reason: "AutoApprovedByHubCSRApprovingController"}}
		regtest.Must(m.t, m.hub.SubResource("approval").Update(m.t.Context(), request))
	}
	kubetest.Eventually(m.t, "the certificate is there", func() bool {
		err := m.hub.Get(m.t.Context(), client.ObjectKeyFromObject(request), request)
		return err == nil && len(request.Status.Certificate) > 0
	})
	return request.Status.Certificate
}

// asAgent is the cluster's agent of Open Cluster Management.
func (m *move) asAgent() client.Client {
	m.t.Helper()
	config := rest.AnonymousClientConfig(m.hubConfig)
	config.CertData, config.KeyData = m.cert, m.keyPEM()
	return m.client(config)
}

// goesOn restarts the agent of Open Cluster Management: it lists, reports,
// renews its Lease, and then its certificate.
func (m *move) goesOn(name string) {
	m.t.Helper()
	own, cluster, lease := m.asAgent(), &ocm.ManagedCluster{}, &coordinationv1.Lease{}
	ctx := m.t.Context()
	kubetest.Eventually(m.t, "the agent may do what it did", func() bool {
		if err := errors.Join(own.List(ctx, &ocm.ManagedClusterList{}, client.MatchingFields{"metadata.name": "managed-0"}),
			own.List(ctx, &certificatesv1.CertificateSigningRequestList{}),
			own.Get(ctx, client.ObjectKey{Name: "managed-0"}, cluster),
			own.Get(ctx, client.ObjectKey{Namespace: "managed-0", Name: ocm.LeaseName}, lease)); err != nil {
			return false
		}
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		return errors.Join(own.Update(ctx, lease), own.Update(ctx, cluster), own.Status().Update(ctx, cluster)) == nil
	})
	m.cert = m.sign(m.request(own, name), false)
}

// is compares the only cluster.
func (m *move) is(what string) {
	m.t.Helper()
	if all := statusOf(m.t, m.onHub); len(all) != 1 || !all[0].Accepted || all[0].Joined != "True" ||
		all[0].Available != "True" || len(all[0].PendingRequests) > 0 {
		m.t.Errorf("%s: status is %+v", what, all)
	}
}

// A fleet moves from Open Cluster Management by the documented commands alone.
func TestMovingFromOpenClusterManagement(t *testing.T) {
	m := newMove(t)
	m.installOCM()
	before, bootstrap, kubeconfig := m.objects(), m.bootstrapRole(), m.bootstrapSecret()
	fails(t, cli.ExitMisconfigured, strings.Join(m.left[:6], "\n  "), "hub", "init", m.onHub, "--image=x",
		"--ocm-agents", "--addon-registration-auth=csr,token", "--apply")
	for range 6 {
		m.next("kubectl")
	}
	m.next("wid bootstrap publish")
	variables := joinVariables(t, m.next("wid hub init"))
	stopHub := m.runHub(hub.Options{OCMAgents: true})
	kubetest.Eventually(m.t, "the hub records the cluster", func() bool {
		return m.recordOf("managed-0")[ocm.AuthTypeAnnotation] == registration.AuthTypeCSR
	})
	m.is("after the move")
	m.goesOn("managed-0-renewal")
	if got := m.recordOf("managed-0")[ocm.AgentAnnotation]; got != "agent1" {
		t.Errorf("the record is of the agent %q", got)
	}
	m.next("wid hub status")
	m.replaceAgent(variables)
	stopHub()
	m.next("wid hub init")
	m.runHub(hub.Options{})
	kubetest.Eventually(m.t, "agents see no requests of others", func() bool {
		return m.asAgent().List(t.Context(), &certificatesv1.CertificateSigningRequestList{}) != nil
	})
	m.next("kubectl")
	m.next("kubectl")
	m.is("at the end")
	m.goBack(before, bootstrap, kubeconfig)
	m.expectAllTried()
}

// bootstrapRole returns the rules that let new clusters join a hub of Open
// Cluster Management.
func (m *move) bootstrapRole() []rbacv1.PolicyRule {
	m.t.Helper()
	role := &rbacv1.ClusterRole{}
	regtest.Must(m.t, m.hub.Get(m.t.Context(), client.ObjectKey{Name: "open-cluster-management:bootstrap"}, role))
	return role.Rules
}

// bootstrapSecret returns the kubeconfig with which the cluster's agent
// registers again.
func (m *move) bootstrapSecret() string {
	m.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: agent.DefaultBootstrapSecret}
	regtest.Must(m.t, m.managed.Get(m.t.Context(), key, secret))
	return string(secret.Data[registration.SecretKeyKubeconfig])
}

// goBack follows the documentation. Both clusters have again what they had,
// apart from what the page says.
func (m *move) goBack(before []string, bootstrap []rbacv1.PolicyRule, kubeconfig string) {
	m.t.Helper()
	for _, begins := range []string{"wid hub init", "kubectl", "wid unjoin", "kubectl", "kubectl"} {
		m.next(begins)
	}
	if now := m.bootstrapSecret(); now != kubeconfig {
		m.t.Errorf("OCM's agent finds the bootstrap kubeconfig %s", now)
	}
	if now := m.bootstrapRole(); !reflect.DeepEqual(now, bootstrap) {
		m.t.Errorf("bootstrap users have the rules %+v", now)
	}
	after := m.objects()
	left := slices.DeleteFunc(minus(after, before), func(name string) bool {
		return slices.ContainsFunc([]string{"cluster-info", "kubeadm:bootstrap-signer-clusterinfo", "/bootstrap-discovery",
			"/bootstrap-token-", " certificatesigningrequests "},
			func(stays string) bool { return strings.Contains(name, stays) })
	})
	// The operator creates its binding again.
	if missing := minus(before, after); len(left) > 0 ||
		!slices.Equal(missing,
			[]string{
				"hub rbac.authorization.k8s.io clusterrolebindings /open-cluster-management:cluster-manager-registration:controller"}) {
		m.t.Errorf("left are %q, missing are %q", left, missing)
	}
}

// replaceAgent follows the documentation. The agent starts when its Deployment
// is there, as the kubelet has it.
func (m *move) replaceAgent(variables []string) {
	m.t.Helper()
	m.next("wid join", variables...)
	m.next("(umask 077 && kubectl")
	for range 4 {
		m.next("kubectl")
	}
	before := len(regtest.RequestsOf(m.t, m.hub, "managed-0"))
	if r := m.try(strings.ReplaceAll(m.left[0], " --wait", ""), variables...); r.code != 0 {
		m.t.Fatalf("the join says %+v", r)
	}
	m.runAgent("managed-0")
	kubetest.Eventually(m.t, "our agent reports", func() bool {
		cluster := &ocm.ManagedCluster{}
		err := m.hub.Get(m.t.Context(), client.ObjectKey{Name: "managed-0"}, cluster)
		return err == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionCertificateRotated)
	})
	m.next("wid join", variables...)
	if now := len(regtest.RequestsOf(m.t, m.hub, "managed-0")); now != before {
		m.t.Errorf("our agent made %d requests, want none", now-before)
	}
	m.is("with our agent")
}
