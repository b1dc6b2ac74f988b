package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// sharedToken is a driver that a project could write: agent and hub derive a
// token from a nonce that the agent has drawn. It stores the nonce before it
// asks with it.
type sharedToken struct {
	name        string                    // "" means shared-token
	issue       func(nonce string) string // what the hub takes
	asked       map[string]bool           // the nonces that the hub has seen
	at          time.Time
	err         error
	annotations map[string]string
	in          registration.Input // the last one
}

func (d *sharedToken) Name() string {
	if d.name == "" {
		return "shared-token"
	}
	return d.name
}

func (d *sharedToken) Annotations() map[string]string { return d.annotations }

func (d *sharedToken) Next(_ context.Context, in registration.Input) (registration.Step, error) {
	d.in = in
	ready := &metav1.Condition{Type: "TokenReady", Status: metav1.ConditionTrue, Reason: "TokenIssued",
		Message: "the token is stored"}
	token := in.Stored["shared"]
	switch nonce := string(in.State["nonce"]); {
	case d.err != nil:
		return registration.Step{}, d.err
	case len(token) > 0 && len(in.Stored["kubeconfig"]) > 0:
		return registration.Step{Condition: ready, At: d.at}, nil
	case len(token) > 0:
	case nonce == "":
		return registration.Step{State: map[string][]byte{"nonce": []byte(fmt.Sprintf("%s-%d", in.Agent, len(d.asked)))}}, nil
	case !meta.IsStatusConditionTrue(in.Conditions, ocm.ConditionHubAccepted):
		d.asked[nonce] = true
		return registration.Step{State: in.State, At: d.at,
			Condition: &metav1.Condition{Type: "TokenReady", Status: metav1.ConditionFalse,
				Reason: "NotAccepted", Message: "the cluster is not accepted"}}, nil
	default:
		d.asked[nonce] = true
		token = []byte(d.issue(nonce))
	}
	return registration.Step{Condition: ready, Credential: &registration.Credential{
		User: &clientcmdapi.AuthInfo{TokenFile: "shared"}, Files: map[string][]byte{"shared": token}}}, nil
}

// agentEnvironment is a managed cluster and a hub from memory.
type agentEnvironment struct {
	t          *testing.T
	local, hub client.Client
	driver     *sharedToken
	agent      *agent.Agent
	opts       agent.Options
	now        time.Time
	events     *events.FakeRecorder

	mu      sync.Mutex
	writes  []string         // to both clusters
	fault   func(int) error  // fails a write by its number
	late    bool             // ... after it was made
	refused map[string]error // by token, what the hub answers
	built   []*rest.Config   // for hub clients
}

const (
	agentNamespace = "open-cluster-management-agent"
	bootstrapToken = "bootstrap-secret"
)

// hubLease returns the Lease that the hub creates: the agent may not.
func hubLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: ocm.LeaseName}}
}

func newAgentEnvironment(t *testing.T) *agentEnvironment {
	w := &agentEnvironment{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), refused: map[string]error{}}
	builder := func() *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithStatusSubresource(&ocm.ManagedCluster{})
	}
	w.local = w.observe("local", builder().Build(), "")
	w.hub = builder().WithObjects(hubLease()).Build()
	w.driver = &sharedToken{issue: func(nonce string) string { return "token-" + nonce }, asked: map[string]bool{}}
	w.opts = agent.Options{Cluster: "cluster1", Driver: w.driver, Local: w.local, Now: func() time.Time { return w.now },
		NewHubClient: w.newHubClient}
	w.writeBootstrap(bootstrapKubeconfig("https://hub.example.com:6443"))
	w.restart()
	return w
}

func (w *agentEnvironment) newHubClient(config *rest.Config) (client.Client, error) {
	w.built = append(w.built, config)
	hub, ok := w.hub.(client.WithWatch)
	if !ok {
		w.t.Fatal("no WithWatch")
	}
	return w.observe("hub", hub, config.BearerToken), nil
}

// observe counts writes and fails where the test wants it.
func (w *agentEnvironment) observe(where string, c client.WithWatch, token string) client.Client {
	write := func(verb string, obj client.Object, do func() error) error {
		if err := w.answer(token); err != nil {
			return err
		}
		w.mu.Lock()
		w.writes = append(w.writes, fmt.Sprintf("%s %s %T", where, verb, obj))
		n, fault := len(w.writes), w.fault
		w.mu.Unlock()
		if fault == nil || fault(n) == nil {
			return do()
		}
		if w.late {
			if err := do(); err != nil {
				return err
			}
		}
		return fault(n)
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
			opts ...client.GetOption) error {
			if err := w.answer(token); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return write("update", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			return write("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write("patch "+sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// answer is the hub's to a token: the bootstrap token and those that the driver
// has issued are good.
func (w *agentEnvironment) answer(token string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err, ok := w.refused[token]; ok {
		return err
	}
	if token == "" || token == bootstrapToken || strings.HasPrefix(token, "token-") {
		return nil
	}
	return unauthorized()
}

func unauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: ocm.GroupVersion.Group, Resource: "managedclusters"},
		"cluster1", errors.New("no RBAC"))
}

// restart makes a new agent, as a new process would.
func (w *agentEnvironment) restart() {
	w.t.Helper()
	w.events = events.NewFakeRecorder(100)
	w.opts.Recorder = w.events
	agent, err := agent.New(w.opts)
	regtest.Must(w.t, err)
	w.agent = agent
}

func (w *agentEnvironment) reconcile() (reconcile.Result, error) {
	w.t.Helper()
	return w.agent.Reconcile(w.t.Context(), reconcile.Request{})
}

// mustReconcile is a reconcile that has to succeed.
func (w *agentEnvironment) mustReconcile() time.Duration {
	w.t.Helper()
	result, err := w.reconcile()
	regtest.Must(w.t, err)
	return result.RequeueAfter
}

func (w *agentEnvironment) join() {
	w.t.Helper()
	w.mustReconcile()
	w.accept(metav1.ConditionTrue)
	w.mustReconcile()
	if !w.joined() {
		w.t.Fatalf("the cluster has not joined: %+v", w.cluster().Status)
	}
}

func (w *agentEnvironment) accept(status metav1.ConditionStatus) {
	w.t.Helper()
	cluster := w.cluster()
	cluster.Spec.HubAcceptsClient = status == metav1.ConditionTrue
	regtest.Must(w.t, w.hub.Update(w.t.Context(), cluster))
	meta.SetStatusCondition(&cluster.Status.Conditions,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: status, Reason: ocm.ReasonHubAccepted})
	regtest.Must(w.t, w.hub.Status().Update(w.t.Context(), cluster))
}

func (w *agentEnvironment) joined() bool {
	w.t.Helper()
	return meta.IsStatusConditionTrue(w.cluster().Status.Conditions, ocm.ConditionJoined)
}

func (w *agentEnvironment) cluster() *ocm.ManagedCluster {
	w.t.Helper()
	cluster := &ocm.ManagedCluster{}
	regtest.Must(w.t, w.hub.Get(w.t.Context(), client.ObjectKey{Name: "cluster1"}, cluster))
	return cluster
}

func (w *agentEnvironment) lease() *coordinationv1.Lease {
	w.t.Helper()
	lease := &coordinationv1.Lease{}
	regtest.Must(w.t, w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: ocm.LeaseName}, lease))
	return lease
}

// secret returns nil if there is none.
func (w *agentEnvironment) secret() *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := w.local.Get(w.t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: ocm.HubKubeconfigSecret}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	regtest.Must(w.t, err)
	return secret
}

// edit changes the agent's Secret as a person would.
func (w *agentEnvironment) edit(change func(data map[string][]byte)) {
	w.t.Helper()
	secret := w.secret()
	change(secret.Data)
	regtest.Must(w.t, w.local.Update(w.t.Context(), secret))
	w.writes = nil
}

func (w *agentEnvironment) writeBootstrap(kubeconfig string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: "bootstrap-hub-kubeconfig"}}
	data := map[string][]byte{"kubeconfig": []byte(kubeconfig)}
	err := w.local.Get(w.t.Context(), client.ObjectKeyFromObject(secret), secret)
	secret.Data = data
	if apierrors.IsNotFound(err) {
		err = w.local.Create(w.t.Context(), secret)
	} else if err == nil {
		err = w.local.Update(w.t.Context(), secret)
	}
	regtest.Must(w.t, err)
	w.writes = nil
}

// seen returns the Events so far.
func (w *agentEnvironment) seen() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func bootstrapKubeconfig(server string) string {
	return `apiVersion: v1
kind: Config
clusters: [{name: h, cluster: {server: "` + server + `"}}]
users: [{name: u, user: {token: ` + bootstrapToken + `}}]
contexts: [{name: c, context: {cluster: h, user: u}}]
current-context: c
`
}
