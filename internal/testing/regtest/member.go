package regtest

import (
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Member is a managed cluster. Its agent has exactly the rights of AgentRBAC in
// a namespace of its own. The test is its program: it makes passes more often
// than the agent asks for.
type Member struct {
	*Environment
	Name, Namespace string
	Account         string // the agent's ServiceAccount
	Bootstrap       string // token
	Agent           *agent.Agent
	AddOns          *agent.AddOns // that run last
	Failed          error         // of the last pass
}

// NewMember installs what an agent needs. Start makes the agent.
func (w *Environment) NewMember(name, account string) *Member {
	w.T.Helper()
	m := &Member{Environment: w, Name: name, Namespace: "agent-" + name, Account: account,
		Bootstrap: w.Token(w.Admin, "open-cluster-management", "agent-registration-bootstrap")}
	w.Apply(w.Local, m.adapt(manifests.AgentRBAC()))
	m.WriteBootstrap(w.Hub.Config().Host, w.Hub.Config().CAData)
	return m
}

// GrantClusterStatus gives the agent exactly the rights of AgentStatusRBAC.
func (m *Member) GrantClusterStatus() {
	m.T.Helper()
	m.Apply(m.Local, m.adapt(manifests.AgentStatusRBAC()))
}

// adapt replaces names of a manifest by the member's.
func (m *Member) adapt(manifest string) string {
	return strings.NewReplacer(agent.DefaultNamespace, m.Namespace, "registration-agent", m.Account).Replace(manifest)
}

// WriteBootstrap writes the Secret with the address of the hub and the
// bootstrap token.
func (m *Member) WriteBootstrap(server string, ca []byte) {
	m.T.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: agent.DefaultBootstrapSecret}}
	secret.Data = map[string][]byte{"kubeconfig": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: bootstrap, user: {token: %q}}]
contexts: [{name: hub, context: {cluster: hub, user: bootstrap}}]
current-context: hub
`, server, base64.StdEncoding.EncodeToString(ca), m.Bootstrap)}
	err := m.Local.Create(m.T.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = m.Local.Update(m.T.Context(), secret)
	}
	Must(m.T, err)
}

// Config returns the config of the agent's ServiceAccount on the managed
// cluster.
func (m *Member) Config() *rest.Config {
	return WithToken(m.Managed.Config(), m.Token(m.Local, m.Namespace, m.Account))
}

// Start is a new process of the agent.
func (m *Member) Start(options agent.Options) {
	m.T.Helper()
	options.Cluster, options.Namespace, options.Local = m.Name, m.Namespace, NewClient(m.T, m.Config())
	scheme := Scheme(m.T)
	options.NewHubClient = func(config *rest.Config) (client.Client, error) {
		config.QPS = -1 // tests are not throttled
		return client.New(config, client.Options{Scheme: scheme})
	}
	var err error
	if m.Agent, err = agent.New(options); err != nil {
		m.T.Fatal(err)
	}
}

// Run runs the agent, which prepare may make, until the whole test ends or stop
// is called.
func (m *Member) Run(prepare ...func(ctrl.Manager)) (stop func()) {
	m.T.Helper()
	mgr := NewManager(m.T, m.Config(), cache.Options{})
	for _, f := range prepare {
		f(mgr)
	}
	Must(m.T, m.Agent.SetupWithManager(mgr))
	return kubetest.RunManager(m.whole, mgr)
}

// Reconcile is one look of the agent.
func (m *Member) Reconcile() {
	m.T.Helper()
	_, m.Failed = m.Agent.Reconcile(m.T.Context(), reconcile.Request{})
}

// Until makes passes.
func (m *Member) Until(what string, done func() bool) {
	m.T.Helper()
	defer func() {
		if m.T.Failed() {
			m.T.Logf("the last pass of cluster %q gave %v, its conditions are %+v", m.Name, m.Failed,
				m.Cluster(m.Name).Status.Conditions)
		}
	}()
	kubetest.Eventually(m.T, what, func() bool { m.Reconcile(); return done() })
}

// Joined reports whether the agent has reached the hub with its own credential.
func (m *Member) Joined() bool {
	return m.Reason(m.Name, ocm.ConditionJoined) == "True/ManagedClusterJoined" &&
		m.Reason(m.Name, ocm.ConditionAvailable) == "True/ManagedClusterAvailable"
}

// Own returns a client with the agent's own credential.
func (m *Member) Own() client.Client {
	m.T.Helper()
	config, err := m.Agent.HubConfig(m.T.Context())
	Must(m.T, err)
	config.QPS = -1
	return NewClient(m.T, config)
}

// Secret returns the one with the agent's credential, an empty one if there is
// none.
func (m *Member) Secret() *corev1.Secret {
	m.T.Helper()
	secret := &corev1.Secret{}
	Must(m.T,
		client.IgnoreNotFound(m.Local.Get(m.T.Context(),
			client.ObjectKey{Namespace: m.Namespace, Name: ocm.HubKubeconfigSecret}, secret)))
	return secret
}
