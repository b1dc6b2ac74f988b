package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// moveHeading is the section of docs/registration.md whose commands TestMovingFromOpenClusterManagement runs, word for word.
const moveHeading = "### Moving from Open Cluster Management\n"

// move is a hub of Open Cluster Management with one cluster.
type move struct {
	*hubWorld
	kubectl string
	key     *ecdsa.PrivateKey // of the cluster's agent
	cert    []byte
}

func newMove(t *testing.T) *move {
	t.Helper()
	m := &move{hubWorld: newHubWorld(t), kubectl: filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")}
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "registration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), moveHeading)
	m.documented = nil
	for i, block := range strings.Split(strings.ReplaceAll(section, "\\\n", ""), "```") {
		if i%2 == 1 {
			for line := range strings.Lines(strings.TrimPrefix(block, "sh\n")) {
				if line = strings.TrimSpace(line); line != "" {
					m.documented = append(m.documented, line)
				}
			}
		}
	}
	if m.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	must(t, "bootstrap", "publish", "--kubeconfig="+m.hubKubeconfig)
	return m
}

// next runs the next command of the documentation, and returns what it prints.
func (m *move) next(begins string, variables ...string) string {
	m.t.Helper()
	if len(m.documented) == 0 || !strings.HasPrefix(m.documented[0], begins) {
		m.t.Fatalf("%s is not the first of %q", begins, m.documented)
	}
	args := strings.Fields(strings.NewReplacer(variables...).Replace(m.documented[0]))
	m.documented = m.documented[1:]
	if args[0] == "wid" {
		return must(m.t, args[1:]...)
	}
	out, err := exec.CommandContext(m.t.Context(), m.kubectl, args[1:]...).CombinedOutput() //nolint:gosec // as printed
	if err != nil {
		m.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (m *move) create(c client.Client, objects ...client.Object) {
	m.t.Helper()
	for _, o := range objects {
		if err := c.Create(m.t.Context(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// installOCM leaves a hub of Open Cluster Management with the cluster managed-0, which has joined, and its agent.
func (m *move) installOCM() {
	m.t.Helper()
	crds, err := manifests.Parse(ocm.CRD)
	if err != nil {
		m.t.Fatal(err)
	}
	m.create(m.hub, crds[0])
	m.until("the hub serves ManagedClusters", func() bool {
		m.hub = m.client(m.hubConfig)
		return m.hub.List(m.t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	m.create(m.hub, regtest.OCMHub()...)
	m.create(m.hub, regtest.LeftByOCM("managed-0")...)
	m.cert = m.sign(m.request(m.hub, "managed-0-first"), true)
	cluster := &ocm.ManagedCluster{}
	if err := m.hub.Get(m.t.Context(), client.ObjectKey{Name: "managed-0"}, cluster); err != nil {
		m.t.Fatal(err)
	}
	cluster.Status.Conditions = []metav1.Condition{regtest.AcceptedByOCM()}
	for _, c := range []metav1.Condition{{Type: ocm.ConditionJoined, Reason: "ManagedClusterJoined"}, {Type: ocm.ConditionAvailable, Reason: "ManagedClusterAvailable"}} {
		c.Status = metav1.ConditionTrue
		meta.SetStatusCondition(&cluster.Status.Conditions, c)
	}
	if err := m.hub.Status().Update(m.t.Context(), cluster); err != nil {
		m.t.Fatal(err)
	}
	m.installAgent()
}

func (m *move) keyPEM() []byte {
	m.t.Helper()
	key, err := x509.MarshalECPrivateKey(m.key)
	if err != nil {
		m.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
}

// installAgent leaves the agent of Open Cluster Management and its Secrets on the managed cluster.
func (m *move) installAgent() {
	m.t.Helper()
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: name}, Data: data}
	}
	deployment := func(namespace, name string) *appsv1.Deployment {
		labels := map[string]string{"app": name}
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "program", Image: "ocm"}}}}}}
	}
	m.create(m.managed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.DefaultNamespace}},
		secret(agent.DefaultBootstrapSecret, map[string][]byte{"kubeconfig": []byte(kubeconfigOf(m.t, m.hubConfig.Host, m.hubConfig.CAData, nil, nil, ""))}),
		secret(ocm.HubKubeconfigSecret, map[string][]byte{"cluster-name": []byte("managed-0"), "agent-name": []byte("agent1"), "tls.crt": m.cert, "tls.key": m.keyPEM(),
			"kubeconfig": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: default-cluster, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: default-auth, user: {client-certificate: tls.crt, client-key: tls.key}}]
contexts: [{name: default-context, context: {cluster: default-cluster, user: default-auth, namespace: configuration}}]
current-context: default-context
`, m.hubConfig.Host, base64.StdEncoding.EncodeToString(m.hubConfig.CAData))}),
		deployment("open-cluster-management", "klusterlet"), deployment(agent.DefaultNamespace, "klusterlet-registration-agent"))
}

// request asks for a certificate of the cluster's agent, as agents of Open Cluster Management do.
func (m *move) request(c client.Client, name string) *certificatesv1.CertificateSigningRequest {
	m.t.Helper()
	request := requestOfSize(m.t, m.key, "managed-0", name, 1000)
	request.Spec.Usages = append(request.Spec.Usages, certificatesv1.UsageKeyEncipherment)
	m.create(c, request)
	return request
}

// sign waits for the certificate.
func (m *move) sign(request *certificatesv1.CertificateSigningRequest, approve bool) []byte {
	m.t.Helper()
	if approve {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApprovedByHubCSRApprovingController"}}
		if err := m.hub.SubResource("approval").Update(m.t.Context(), request); err != nil {
			m.t.Fatal(err)
		}
	}
	m.until("the certificate is there", func() bool {
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

// goesOn restarts the agent of Open Cluster Management: it lists, reports, renews its Lease, and then its certificate.
func (m *move) goesOn(name string) {
	m.t.Helper()
	own, cluster, lease := m.asAgent(), &ocm.ManagedCluster{}, &coordinationv1.Lease{}
	ctx := m.t.Context()
	m.until("the agent may do what it did", func() bool {
		if err := errors.Join(own.List(ctx, &ocm.ManagedClusterList{}, client.MatchingFields{"metadata.name": "managed-0"}),
			own.List(ctx, &certificatesv1.CertificateSigningRequestList{}), own.Get(ctx, client.ObjectKey{Name: "managed-0"}, cluster),
			own.Get(ctx, client.ObjectKey{Namespace: "managed-0", Name: ocm.LeaseName}, lease)); err != nil {
			return false
		}
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		return errors.Join(own.Update(ctx, lease), own.Update(ctx, cluster), own.Status().Update(ctx, cluster)) == nil
	})
	m.cert = m.sign(m.request(own, name), false)
}

func (m *move) runMovedHub(ocmAgents bool) (stop func()) {
	return m.run(m.as(m.hub, m.hubConfig, regname.HubNamespace, regname.HubServiceAccount), func(mgr ctrl.Manager) error {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), BootstrapGroups: []string{registration.BootstrapGroup}})
		if err != nil {
			return err
		}
		hub, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver}, Default: driver.Name(), OCMAgents: ocmAgents})
		if err != nil {
			return err
		}
		return hub.SetupWithManager(mgr, 1)
	})
}

// is compares the only cluster.
func (m *move) is(what string) {
	m.t.Helper()
	if all := m.status(); len(all) != 1 || !all[0].Accepted || all[0].Joined != "True" || all[0].Available != "True" || len(all[0].PendingRequests) > 0 {
		m.t.Errorf("%s: status is %+v", what, all)
	}
}

// install runs the documented command, which waits for the Deployment.
func (m *move) install() string {
	m.t.Helper()
	must(m.t, strings.Fields(strings.ReplaceAll(strings.TrimPrefix(m.documented[0], "wid "), " --wait", ""))...)
	m.available(regname.HubNamespace, regname.HubDeployment)
	return m.next("wid hub init")
}

// record returns the annotations of the cluster's ClusterRole.
func (m *move) record() map[string]string {
	m.t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := m.hub.Get(m.t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("managed-0")}, role); err != nil {
		m.t.Fatal(err)
	}
	return role.Annotations
}

// A fleet moves from Open Cluster Management by the documented commands alone.
func TestMovingFromOpenClusterManagement(t *testing.T) {
	m := newMove(t)
	m.installOCM()
	const image = "--image=registry.example/wid-hub:v1"
	stop := m.documented[:3]
	_, err := wid(t, "", "hub", "init", "--context", "hub", image, "--ocm-agents", "--addon-registration-auth=csr,token", "--apply")
	if err == nil || !strings.Contains(err.Error(), strings.Join(stop, "\n  ")) {
		t.Errorf("init beside the other hub program says %v", err)
	}
	m.next("kubectl")
	m.next("kubectl")
	if _, err := wid(t, "", "hub", "init", "--context", "hub", image, "--ocm-agents", "--addon-registration-auth=csr,token", "--apply"); err == nil || !strings.Contains(err.Error(), stop[2]) {
		t.Errorf("init beside the other program for tokens says %v", err)
	}
	m.next("kubectl")
	if _, err := wid(t, "", "hub", "init", m.onHub, image, "--ocm-agents", "--apply"); err == nil || !strings.Contains(err.Error(), "--force-conflicts") {
		t.Errorf("init on a hub with other ClusterRoles says %v", err)
	}
	first := must(t, "hub", "init", m.onHub, image, "--apply", "--force-conflicts")
	if !strings.Contains(first, "stop to work without --ocm-agents") {
		t.Errorf("init says %s", first)
	}
	out := m.install()
	if !slices.ContainsFunc(m.documented, func(line string) bool {
		return strings.Contains(line, "-registration:controller") && strings.Contains(out, "\n  "+line+"\n")
	}) || strings.Contains(out, "stop to work") {
		t.Errorf("init says %s", out)
	}
	stopHub := m.runMovedHub(true)
	m.until("the hub records the cluster", func() bool { return m.record()[regname.AuthTypeAnnotation] == registration.AuthTypeCSR })
	m.is("after the move")
	m.goesOn("managed-0-renewal")
	if got := m.record()[regname.AgentAnnotation]; got != "agent1" {
		t.Errorf("the record is of the agent %q", got)
	}
	if out := m.next("wid hub status"); !strings.Contains(out, "managed-0") {
		t.Errorf("status is\n%s", out)
	}
	m.joinNew("new-0", tokenIn(first))
	stopWebhook := regtest.OCMWebhook(t, m.hub)
	m.joinNew("new-1", tokenIn(first))
	stopWebhook()
	m.replaceAgent(first)
	stopHub()
	m.install()
	m.runMovedHub(false)
	m.until("agents see no requests of others", func() bool {
		return m.asAgent().List(t.Context(), &certificatesv1.CertificateSigningRequestList{}) != nil
	})
	m.next("kubectl")
	m.next("kubectl")
	m.is("at the end")
	for range 3 { // back
		m.next("kubectl")
	}
	if len(m.documented) > 0 {
		t.Errorf("not tried: %q", m.documented)
	}
}

// tokenIn returns the bootstrap token that init printed.
func tokenIn(out string) string {
	_, rest, _ := strings.Cut(out, "--hub-token ")
	token, _, _ := strings.Cut(rest, " ")
	return token
}

// joinNew has a cluster join and leave that the other hub program never knew.
func (m *move) joinNew(name, token string) {
	m.t.Helper()
	config := rest.AnonymousClientConfig(m.hubConfig)
	config.BearerToken = token
	bootstrap, ctx := m.client(config), m.t.Context()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	request := requestOfSize(m.t, m.key, name, name, 1000)
	m.create(bootstrap, cluster, request)
	if err := bootstrap.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/note":"set before acceptance"}}}`))); err != nil {
		m.t.Fatal(err)
	}
	must(m.t, "hub", "accept", m.onHub, "--clusters="+name)
	m.sign(request, false)
	if err := m.hub.Delete(ctx, cluster); err != nil {
		m.t.Fatal(err)
	}
	m.until("the cluster is gone", func() bool { return apierrors.IsNotFound(m.hub.Get(ctx, client.ObjectKey{Name: name}, cluster)) })
}

// replaceAgent follows the documentation with what init printed.
func (m *move) replaceAgent(printed string) {
	m.t.Helper()
	_, line, _ := strings.Cut(printed, "\n\nwid ")
	join := strings.Fields(line) // join --hub-token … --hub-apiserver … --ca-cert-hash …
	m.next("kubectl")
	m.next("kubectl")
	before := m.requests()
	variables := []string{`"$TOKEN"`, join[2], `"$HUB"`, join[4], `"$PIN"`, join[6]}
	must(m.t, strings.Fields(strings.NewReplacer(append(variables, "wid join", "join", " --wait", "")...).Replace(m.documented[0]))...)
	m.runAgent()
	m.until("our agent reports", func() bool {
		cluster := &ocm.ManagedCluster{}
		err := m.hub.Get(m.t.Context(), client.ObjectKey{Name: "managed-0"}, cluster)
		return err == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, regname.ConditionCertificateRotated)
	})
	m.next("wid join", variables...)
	if now := m.requests(); !slices.Equal(before, now) {
		m.t.Errorf("our agent made requests: %q, then %q", before, now)
	}
	m.is("with our agent")
}

func (m *move) requests() (names []string) {
	m.t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := m.hub.List(m.t.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: "managed-0"}); err != nil {
		m.t.Fatal(err)
	}
	for _, r := range list.Items {
		names = append(names, r.Name)
	}
	return names
}
