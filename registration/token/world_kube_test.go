package token_test

import (
	"context"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

const hubUser = "system:serviceaccount:open-cluster-management-hub:registration-controller-sa"

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually polls a real API server.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute it never happened that %s", what)
		}
	}
}

func apply(t testing.TB, c client.Client, manifest string) {
	t.Helper()
	for document := range strings.SplitSeq(strings.TrimPrefix(manifest, "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

func withToken(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.QPS = token, -1
	return config
}

// kube is a hub, which all tests of the binary share: its controllers run with the rights of the manifests, in one process and as one
// user.
type kube struct {
	t       *testing.T
	hub     *kubetest.Cluster
	admin   client.Client
	config  *rest.Config // of the controllers
	stopHub func()
}

func newKube(t *testing.T) *kube {
	t.Helper()
	k := newHub(t)
	k.runHub(2)
	return k
}

// newHub is a hub without controllers.
func newHub(t *testing.T) *kube {
	t.Helper()
	k := &kube{t: t, hub: kubetest.Start(t)}
	k.admin = newClient(t, k.hub.Config())
	apply(t, k.admin, ocm.CRD)
	apply(t, k.admin, addon.CRD)
	eventually(t, "the hub serves add-ons", func() bool {
		k.admin = newClient(t, k.hub.Config()) // a client may remember that there are none
		return k.admin.List(t.Context(), &addon.ManagedClusterAddOnList{}) == nil && k.admin.List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	apply(t, k.admin, registration.HubManifest)
	apply(t, k.admin, registration.TokenManifest)
	request := &authenticationv1.TokenRequest{}
	controller := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub", Name: "registration-controller-sa"}}
	if err := k.admin.SubResource("token").Create(t.Context(), controller, request); err != nil {
		t.Fatal(err)
	}
	k.config = withToken(k.hub.Config(), request.Status.Token)
	k.hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: hubUser, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "any"}})
	own := newClient(t, k.config)
	eventually(t, "the policies are in effect", func() bool {
		return apierrors.IsForbidden(own.SubResource("token").Create(t.Context(), controller, &authenticationv1.TokenRequest{}))
	})
	return k
}

// stub registers clusters without credentials of their own.
type stub struct{}

func (stub) Name() string                                                        { return "stub" }
func (stub) Claim(*ocm.ManagedCluster) (string, bool, error)                     { return "", false, nil }
func (stub) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) { return false, nil }
func (stub) Grant(context.Context, string, string) (time.Duration, error)        { return 0, nil }
func (stub) Revoke(context.Context, string, string) error                        { return nil }

// runHub runs the controllers for clusters and for add-on tokens.
func (k *kube) runHub(workers int, configure ...func(*token.HubOptions)) {
	k.t.Helper()
	mgr, err := ctrl.NewManager(k.config, ctrl.Options{Scheme: scheme(k.t), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{UsePriorityQueue: new(false)}}) // it can block a worker until the grace period ends
	if err != nil {
		k.t.Fatal(err)
	}
	clusters, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{stub{}}, Default: "stub"})
	if err == nil {
		err = clusters.SetupWithManager(mgr, workers)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	options := token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()}
	for _, f := range configure {
		f(&options)
	}
	tokens, err := token.NewHub(options)
	if err == nil {
		err = tokens.SetupWithManager(mgr, workers)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	k.stopHub = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			k.t.Error(err)
		}
	})
	k.t.Cleanup(func() { k.stopHub() })
}

// accept makes a cluster that the hub has accepted.
func (k *kube) accept(name string) {
	k.t.Helper()
	if err := k.admin.Create(k.t.Context(), managedCluster(name, true)); err != nil {
		k.t.Fatal(err)
	}
	eventually(k.t, "the cluster has its RBAC", func() bool {
		binding := &rbacv1.RoleBinding{}
		return k.admin.Get(k.t.Context(), client.ObjectKey{Namespace: name, Name: registration.ClusterRoleName(name) + ":registration"}, binding) == nil
	})
}

// testAgent is the agent of one add-on. It has the rights of its cluster.
type testAgent struct {
	*kube
	cluster, addOn string
	driver         *token.Driver
	own            client.Client
	ahead          time.Duration
	stored, state  map[string][]byte
	last           registration.Step
}

// join accepts a cluster and creates an add-on, as its hub controller does.
func (k *kube) join(cluster, name string, options token.Options) *testAgent {
	k.t.Helper()
	k.accept(cluster)
	a := addOn(cluster, name)
	a.UID = ""
	if err := k.admin.Create(k.t.Context(), a); err != nil {
		k.t.Fatal(err)
	}
	a.Status.Registrations = []addon.RegistrationConfig{{Type: ocm.KubeClient, KubeClient: &addon.KubeClientConfig{}}}
	if err := k.admin.Status().Update(k.t.Context(), a); err != nil {
		k.t.Fatal(err)
	}
	driver, err := token.New(options)
	if err != nil {
		k.t.Fatal(err)
	}
	return &testAgent{kube: k, cluster: cluster, addOn: name, driver: driver, own: k.clientOf(cluster)}
}

// clientOf returns the client of a cluster's agent.
func (k *kube) clientOf(cluster string) client.Client {
	k.t.Helper()
	config, _, err := k.hub.Cluster.User(registration.AgentUser(cluster, "agent1"), registration.ClusterGroup(cluster), regname.ManagedClustersGroup)
	if err != nil {
		k.t.Fatal(err)
	}
	config.QPS = -1
	k.hub.Await(k.t, authorizationv1.SubjectAccessReviewSpec{User: "agent", Groups: []string{registration.ClusterGroup(cluster)},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: cluster, Verb: "patch", Group: addon.GroupVersion.Group, Resource: "managedclusteraddons", Subresource: "status"}})
	return newClient(k.t, config)
}

func (a *testAgent) get() *addon.ManagedClusterAddOn {
	a.t.Helper()
	o := &addon.ManagedClusterAddOn{}
	if err := a.own.Get(a.t.Context(), client.ObjectKey{Namespace: a.cluster, Name: a.addOn}, o); err != nil {
		a.t.Fatal(err)
	}
	return o
}

// pass does what the reconciler for add-ons does.
func (a *testAgent) pass() {
	a.t.Helper()
	o := a.get()
	status := addon.StatusOf(o)
	step, err := a.driver.Next(a.t.Context(), registration.Input{Now: time.Now().Add(a.ahead), Cluster: a.cluster, Agent: "agent1", Addon: a.addOn,
		Item: status.Items[0], Stored: a.stored, State: a.state, Hub: a.own, Conditions: status.Conditions})
	if err != nil {
		a.t.Fatal(err)
	}
	a.state, a.last = step.State, step
	if step.Credential != nil {
		a.stored = maps.Clone(step.Credential.Files)
	}
	a.patch(o, func(s *addon.Status) (changed bool) {
		if step.Declare != nil {
			s.Items[0], changed = *step.Declare, true
		}
		return step.Condition != nil && meta.SetStatusCondition(&s.Conditions, *step.Condition) || changed
	})
}

func (a *testAgent) patch(o client.Object, change func(*addon.Status) bool) {
	a.t.Helper()
	if err := addon.PatchStatus(a.t.Context(), a.own, o, change); err != nil {
		a.t.Fatal(err)
	}
}

func (a *testAgent) until(what string, done func() bool) {
	a.t.Helper()
	eventually(a.t, what, func() bool { a.pass(); return done() })
}

// condition returns a condition as "status/reason".
func (a *testAgent) condition(kind string) string {
	a.t.Helper()
	if c := meta.FindStatusCondition(a.get().Status.Conditions, kind); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

func (a *testAgent) refreshed() bool {
	return a.condition("AddonTokenRefreshed") == "True/AddonTokenRefreshed"
}

// addOnClient returns a client with the stored token.
func (a *testAgent) addOnClient() client.Client {
	a.t.Helper()
	return newClient(a.t, withToken(a.hub.Config(), string(a.stored["token"])))
}

func (a *testAgent) ask(account client.ObjectKey, spec authenticationv1.TokenRequestSpec) error {
	return a.own.SubResource("token").Create(a.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}},
		&authenticationv1.TokenRequest{Spec: spec})
}
