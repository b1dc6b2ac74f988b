package token_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
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

// kube is a hub, which all tests of the binary share. Its controllers run with
// the rights of the manifests, in one process and as one user. It has no
// agents: a testAgent takes their part.
type kube struct {
	*regtest.Environment
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
	k := &kube{Environment: regtest.New(t)}
	k.ServeAddOns(addon.CRD())
	k.config = regtest.WithToken(k.Hub.Config(), k.Token(k.Admin, regtest.HubNamespace, regtest.HubAccount))
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
	k.T.Helper()
	k.stopHub = k.RunControllers(func(mgr ctrl.Manager) error {
		clusters,
			err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{stub{}}, Default: "stub"})
		if err != nil {
			return err
		}
		options := token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()}
		for _, f := range configure {
			f(&options)
		}
		tokens, err := token.NewHub(options)
		if err != nil {
			return err
		}
		return errors.Join(clusters.SetupWithManager(mgr, workers), tokens.SetupWithManager(mgr, workers))
	})
}

// accept makes a cluster that the hub has accepted.
func (k *kube) accept(name string) {
	k.T.Helper()
	regtest.Must(k.T, k.Admin.Create(k.T.Context(), managedCluster(name, true)))
	kubetest.Eventually(k.T, "the cluster has its RBAC", func() bool {
		binding := &rbacv1.RoleBinding{}
		return k.Admin.Get(k.T.Context(),
			client.ObjectKey{Namespace: name, Name: registration.ClusterRoleName(name) + ":registration"}, binding) == nil
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
	k.T.Helper()
	k.accept(cluster)
	a := addOn(cluster, name)
	a.UID = ""
	regtest.Must(k.T, k.Admin.Create(k.T.Context(), a))
	a.Status.Registrations = []addon.RegistrationConfig{{Type: ocm.KubeClient, KubeClient: &addon.KubeClientConfig{}}}
	regtest.Must(k.T, k.Admin.Status().Update(k.T.Context(), a))
	driver, err := token.New(options)
	regtest.Must(k.T, err)
	return &testAgent{kube: k, cluster: cluster, addOn: name, driver: driver, own: k.clientOf(cluster)}
}

// clientOf returns the client of a cluster's agent.
func (k *kube) clientOf(cluster string) client.Client {
	k.T.Helper()
	config, _, err := k.Hub.Cluster.User(registration.AgentUser(cluster, "agent1"), registration.ClusterGroup(cluster),
		ocm.ManagedClustersGroup)
	regtest.Must(k.T, err)
	config.QPS = -1
	k.Hub.Await(k.T, authorizationv1.SubjectAccessReviewSpec{User: "agent",
		Groups: []string{registration.ClusterGroup(cluster)},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: cluster, Verb: "patch",
			Group: addon.GroupVersion.Group, Resource: "managedclusteraddons", Subresource: "status"}})
	return regtest.NewClient(k.T, config)
}

func (a *testAgent) get() *addon.ManagedClusterAddOn {
	a.T.Helper()
	o := &addon.ManagedClusterAddOn{}
	regtest.Must(a.T, a.own.Get(a.T.Context(), client.ObjectKey{Namespace: a.cluster, Name: a.addOn}, o))
	return o
}

// reconcile does what the reconciler for add-ons does.
func (a *testAgent) reconcile() {
	a.T.Helper()
	o := a.get()
	status := addon.StatusOf(o)
	step, err := a.driver.Next(a.T.Context(),
		registration.Input{Now: time.Now().Add(a.ahead), Cluster: a.cluster, Agent: "agent1", Addon: a.addOn,
			Item: status.Items[0], Stored: a.stored, State: a.state, Hub: a.own, Conditions: status.Conditions})
	regtest.Must(a.T, err)
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
	a.T.Helper()
	regtest.Must(a.T, addon.PatchStatus(a.T.Context(), a.own, o, change))
}

func (a *testAgent) until(what string, done func() bool) {
	a.T.Helper()
	kubetest.Eventually(a.T, what, func() bool { a.reconcile(); return done() })
}

// condition returns a condition as "status/reason".
func (a *testAgent) condition(kind string) string {
	a.T.Helper()
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
	a.T.Helper()
	return regtest.NewClient(a.T, regtest.WithToken(a.Hub.Config(), string(a.stored["token"])))
}

// infrastructure is what a provided add-on has.
func infrastructure(cluster, name string) []string {
	return []string{"Role " + cluster + "/" + name + "-token-role", "RoleBinding " + cluster + "/" + name + "-token-role",
		"ServiceAccount " + cluster + "/" + cluster + "-" + name + "-agent"}
}

// left returns what exists in the namespace of a cluster beside what each
// cluster has.
func (k *kube) left(cluster string) []string {
	k.T.Helper()
	return slices.DeleteFunc(there(k.T, k.Admin, cluster), func(s string) bool {
		return strings.Contains(s, "open-cluster-management:managedcluster:") || strings.HasSuffix(s, "/default")
	})
}

func (k *kube) uid(namespace, account string) string {
	k.T.Helper()
	sa := &corev1.ServiceAccount{}
	regtest.Must(k.T,
		client.IgnoreNotFound(k.Admin.Get(k.T.Context(), client.ObjectKey{Namespace: namespace, Name: account}, sa)))
	return string(sa.UID)
}
