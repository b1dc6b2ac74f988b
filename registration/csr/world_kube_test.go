package csr_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

const bootstrapAccount = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"

// kube is a hub and a managed API server, which all tests of the binary share, and what runs on the hub: a registration.Hub with the
// rights of HubManifest, and the signer.
type kube struct {
	t, whole     *testing.T // the sub-test that runs, and the test
	hub, managed *kubetest.Cluster
	admin, local client.Client // of administrators
	other        *otherDriver
	said         *recorder
	stopHub      func()
}

func newKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{t: t, whole: t, hub: kubetest.Start(t), managed: kubetest.StartSecond(t), other: &otherDriver{}, said: &recorder{}}
	k.local = newClient(t, k.managed.Config())
	k.admin = newClient(t, k.hub.Config())
	k.apply(k.admin, ocm.CRD)
	eventually(t, "the hub serves ManagedClusters", func() bool {
		k.admin = newClient(t, k.hub.Config()) // a client may remember that there are none
		return k.admin.List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	k.apply(k.admin, registration.HubManifest)
	k.apply(k.admin, "apiVersion: v1\nkind: Namespace\nmetadata: {name: open-cluster-management}\n")
	k.apply(k.admin, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent-registration-bootstrap, namespace: open-cluster-management}\n")
	k.apply(k.admin, registration.BootstrapManifest)
	k.hub.ControllerManager(t, "csrsigning")
	k.runHub()
	return k
}

// step is a sub-test. The helpers fail it rather than its parent.
func (k *kube) step(name string, run func(t *testing.T)) {
	k.t.Helper()
	outer := k.t
	outer.Run(name, func(t *testing.T) {
		k.t = t
		defer func() { k.t = outer }()
		run(t)
	})
}

func (k *kube) apply(c client.Client, manifest string) {
	k.t.Helper()
	for document := range strings.SplitSeq(strings.TrimPrefix(manifest, "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			k.t.Fatal(err)
		}
		if err := c.Create(k.t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			k.t.Fatal(err)
		}
	}
}

// token returns the credential of a ServiceAccount.
func (k *kube) token(c client.Client, namespace, name string) string {
	k.t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.SubResource("token").Create(k.t.Context(), account, request); err != nil {
		k.t.Fatal(err)
	}
	return request.Status.Token
}

func withToken(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.QPS = token, -1
	return config
}

// runManager runs until the test ends or stop is called.
func runManager(t *testing.T, mgr ctrl.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// runHub runs the controller as a program does, with two drivers, until the whole test ends.
func (k *kube) runHub() {
	k.t.Helper()
	config := withToken(k.hub.Config(), k.token(k.admin, "open-cluster-management-hub", "registration-controller-sa"))
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme(k.t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		k.t.Fatal(err)
	}
	driver, err := csr.NewHub(csr.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: k.said,
		BootstrapUsers: []string{bootstrapAccount}, BootstrapGroups: []string{registration.BootstrapGroup}, AutoApproveUsers: []string{"system:bootstrap:auto00"}})
	if err != nil {
		k.t.Fatal(err)
	}
	hub, err := registration.NewHub(registration.HubOptions{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver, k.other},
		Default: registration.AuthTypeCSR, Recorder: k.said})
	if err == nil {
		err = hub.SetupWithManager(mgr, 2)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	addOns, err := csr.NewAddOnApprover(csr.AddOnOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: k.said})
	if err == nil {
		err = addOns.SetupWithManager(mgr)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.stopHub = runManager(k.whole, mgr)
}

// otherDriver is the hub's half of an auth type that approves all clusters with its mark.
type otherDriver struct {
	mu    sync.Mutex
	calls []string
}

const otherMark = "example.com/other"

func (d *otherDriver) Name() string { return "other" }

func (d *otherDriver) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	claim, ok := cluster.Annotations[otherMark]
	return claim, ok, nil
}

func (d *otherDriver) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) {
	return true, nil
}

func (d *otherDriver) Grant(_ context.Context, cluster, claim string) (time.Duration, error) {
	d.note("grant", cluster, claim)
	return 0, nil
}

func (d *otherDriver) Revoke(_ context.Context, cluster, claim string) error {
	d.note("revoke", cluster, claim)
	return nil
}

func (d *otherDriver) note(call ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, strings.Join(call, " "))
}

func (d *otherDriver) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// recorder keeps Events as "<name of the object> <reason>: <message>".
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if object, err := meta.Accessor(about); err == nil {
		r.said = append(r.said, fmt.Sprintf("%s %s: %s", object.GetName(), reason, fmt.Sprintf(note, args...)))
	}
}

// says reports whether one Event has all the parts.
func (r *recorder) says(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.said, func(said string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(said, part) })
	})
}

func (k *kube) cluster(name string) *ocm.ManagedCluster {
	k.t.Helper()
	cluster := &ocm.ManagedCluster{}
	if err := k.admin.Get(k.t.Context(), client.ObjectKey{Name: name}, cluster); client.IgnoreNotFound(err) != nil {
		k.t.Fatal(err)
	}
	return cluster
}

// reason returns status and reason of a condition, such as "True/HubClusterAdminAccepted".
func (k *kube) reason(cluster, kind string) string {
	if c := meta.FindStatusCondition(k.cluster(cluster).Status.Conditions, kind); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

// setAccepted does what an administrator does with wid hub accept or deny.
func (k *kube) setAccepted(name string, accepted bool) {
	k.t.Helper()
	body := fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, accepted)
	if err := k.admin.Patch(k.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
		k.t.Fatal(err)
	}
}

// requests returns those of a cluster.
func (k *kube) requests(cluster string) []certificatesv1.CertificateSigningRequest {
	k.t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := k.admin.List(k.t.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}); err != nil {
		k.t.Fatal(err)
	}
	return list.Items
}

func (k *kube) expectRequests(cluster string, n int) {
	k.t.Helper()
	if got := len(k.requests(cluster)); got != n {
		k.t.Errorf("cluster %q made %d requests instead of %d", cluster, got, n)
	}
}

// open returns the request that waits.
func (k *kube) open(cluster string) *certificatesv1.CertificateSigningRequest {
	k.t.Helper()
	for _, r := range k.requests(cluster) {
		if len(r.Status.Conditions) == 0 {
			return &r
		}
	}
	k.t.Fatalf("no request of cluster %q waits", cluster)
	return nil
}

// rbac returns what is left of a cluster's RBAC.
func (k *kube) rbac(cluster string) (there []string) {
	k.t.Helper()
	name := registration.ClusterRoleName(cluster)
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":registration"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":work"}},
	} {
		err := k.admin.Get(k.t.Context(), client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			k.t.Fatal(err)
		}
		if err == nil {
			there = append(there, fmt.Sprintf("%T %s", object, object.GetName()))
		}
	}
	return there
}

// member is a managed cluster. Its agent has exactly the rights of AgentManifest in a namespace of its own. The test is its program:
// it makes passes more often than the agent asks for.
type member struct {
	*kube
	name, namespace string
	bootstrap       string        // token
	ahead           time.Duration // of the agent's clock
	driver          csr.Options
	agent           *registration.Agent
	said            *recorder
	failed          error // of the last pass
}

func (k *kube) join(name string) *member {
	k.t.Helper()
	m := &member{kube: k, name: name, namespace: "agent-" + name, said: &recorder{},
		bootstrap: k.token(k.admin, "open-cluster-management", "agent-registration-bootstrap")}
	k.apply(k.local, strings.ReplaceAll(registration.AgentManifest, registration.DefaultAgentNamespace, m.namespace))
	m.writeBootstrap(k.hub.Config().Host, k.hub.Config().CAData)
	m.restart()
	return m
}

func (m *member) writeBootstrap(server string, ca []byte) {
	m.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: registration.DefaultBootstrapSecret}}
	secret.Data = map[string][]byte{"kubeconfig": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: bootstrap, user: {token: %q}}]
contexts: [{name: hub, context: {cluster: hub, user: bootstrap}}]
current-context: hub
`, server, base64.StdEncoding.EncodeToString(ca), m.bootstrap)}
	err := m.local.Create(m.t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = m.local.Update(m.t.Context(), secret)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) options(config *rest.Config) registration.AgentOptions {
	return registration.AgentOptions{Cluster: m.name, Driver: csr.New(m.driver), Local: newClient(m.t, config), Namespace: m.namespace,
		Now: func() time.Time { return time.Now().Add(m.ahead) }, Recorder: m.said,
		NewHubClient: func(config *rest.Config) (client.Client, error) {
			config.QPS = -1 // tests are not throttled
			return client.New(config, client.Options{Scheme: scheme(m.t)})
		}}
}

func (m *member) config() *rest.Config {
	return withToken(m.managed.Config(), m.token(m.local, m.namespace, "registration-agent"))
}

// restart is a new process of the agent.
func (m *member) restart() {
	m.t.Helper()
	var err error
	if m.agent, err = registration.NewAgent(m.options(m.config())); err != nil {
		m.t.Fatal(err)
	}
}

// run runs the agent in a manager.
func (m *member) run() (stop func()) {
	m.t.Helper()
	mgr, err := ctrl.NewManager(m.config(), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.agent.SetupWithManager(mgr); err != nil {
		m.t.Fatal(err)
	}
	return runManager(m.t, mgr)
}

func (m *member) pass() {
	m.t.Helper()
	_, m.failed = m.agent.Reconcile(m.t.Context(), reconcile.Request{})
}

// passes makes some that must succeed.
func (m *member) passes() {
	m.t.Helper()
	const some = 20
	for range some {
		if m.pass(); m.failed != nil {
			m.t.Fatal(m.failed)
		}
	}
}

// until makes passes.
func (m *member) until(what string, done func() bool) {
	m.t.Helper()
	defer func() {
		if m.t.Failed() && m.failed != nil {
			m.t.Logf("the last pass of cluster %q failed: %v", m.name, m.failed)
		}
	}()
	eventually(m.t, what, func() bool { m.pass(); return done() })
}

// pending makes passes until the cluster waits for acceptance.
func (m *member) pending() {
	m.t.Helper()
	m.until("the request waits", func() bool { return m.said.says("ClientCertificateNotApproved") && len(m.requests(m.name)) > 0 })
}

// joined reports whether the agent has reached the hub with its own certificate.
func (m *member) joined() bool {
	return m.renewed(time.Time{}) && m.reason(m.name, ocm.ConditionJoined) == "True/ManagedClusterJoined" &&
		m.reason(m.name, ocm.ConditionAvailable) == "True/ManagedClusterAvailable" &&
		m.reason(m.name, ocm.ConditionCertificateRotated) == "True/ClientCertificateUpdated"
}

// renewed reports whether the Lease was renewed after a time.
func (m *member) renewed(since time.Time) bool {
	lease := &coordinationv1.Lease{}
	err := m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: m.name, Name: ocm.LeaseName}, lease)
	return err == nil && lease.Spec.RenewTime.After(since)
}

// accept lets a waiting cluster in.
func (m *member) accept() {
	m.t.Helper()
	m.pending()
	m.setAccepted(m.name, true)
	m.until("the cluster joins", m.joined)
}

func (m *member) secret() *corev1.Secret {
	m.t.Helper()
	secret := &corev1.Secret{}
	if err := m.local.Get(m.t.Context(), client.ObjectKey{Namespace: m.namespace, Name: ocm.HubKubeconfigSecret}, secret); client.IgnoreNotFound(err) != nil {
		m.t.Fatal(err)
	}
	return secret
}

func (m *member) certificate() string { m.t.Helper(); return string(m.secret().Data["tls.crt"]) }

func (m *member) edit(change func(data map[string][]byte)) {
	m.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret := m.secret()
		change(secret.Data)
		return m.local.Update(m.t.Context(), secret)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// own returns a client with the agent's certificate.
func (m *member) own() client.Client {
	m.t.Helper()
	config, err := m.agent.HubConfig(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	config.QPS = -1
	return newClient(m.t, config)
}

// ask makes a request as the driver does, without an agent.
func (k *kube) ask(cluster, agent string, hub client.Client) *certificatesv1.CertificateSigningRequest {
	k.t.Helper()
	in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: agent, Hub: hub}
	before := k.requests(cluster)
	for range 2 { // draws a key, then makes the request
		step, err := csr.New(csr.Options{}).Next(k.t.Context(), in)
		if err != nil {
			k.t.Fatal(err)
		}
		in.State = step.State
	}
	for _, r := range k.requests(cluster) {
		if !slices.ContainsFunc(before, func(b certificatesv1.CertificateSigningRequest) bool { return b.Name == r.Name }) {
			return &r
		}
	}
	k.t.Fatal("no request was made")
	return nil
}
