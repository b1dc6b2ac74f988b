// Package regtest is a hub and a managed cluster on real API servers, for tests
// of registration and for examples/registration. The binary's TestMain has to
// use kubetest.Main.
package regtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// BootstrapUser is the ServiceAccount of BootstrapRBAC.
const BootstrapUser = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"

// Environment is the two clusters that all tests of the binary share. The hub
// has the CustomResourceDefinitions, HubRBAC and BootstrapRBAC.
type Environment struct {
	T            *testing.T // the sub-test that runs
	Hub, Managed *kubetest.Cluster
	Admin, Local client.Client // of administrators of the hub and of the managed cluster

	whole *testing.T
}

// New returns the environment for one test.
func New(t *testing.T) *Environment {
	t.Helper()
	return NewWith(t, kubetest.Start(t), kubetest.StartSecond(t))
}

// NewWith returns one with other clusters.
func NewWith(t *testing.T, hub, managed *kubetest.Cluster) *Environment {
	t.Helper()
	w := NewHub(t, hub)
	w.Managed, w.Local = managed, NewClient(t, managed.Config())
	w.Apply(w.Admin, "apiVersion: v1\nkind: Namespace\nmetadata: {name: open-cluster-management}\n")
	w.Apply(w.Admin,
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent-registration-bootstrap, namespace: open-cluster-management}\n")
	w.Apply(w.Admin, manifests.BootstrapRBAC())
	return w
}

// NewHub returns a hub without BootstrapRBAC, whose policies would answer
// before others, and without a managed cluster.
func NewHub(t *testing.T, hub *kubetest.Cluster) *Environment {
	t.Helper()
	w := &Environment{T: t, whole: t, Hub: hub, Admin: NewClient(t, hub.Config())}
	w.Apply(w.Admin, ocm.CRD())
	kubetest.Eventually(t, "the hub serves ManagedClusters", func() bool {
		w.Admin = NewClient(t, w.Hub.Config()) // a client may remember that there are none
		return w.Admin.List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	w.Apply(w.Admin, manifests.HubRBAC())
	return w
}

// Must ends the test if a call that only prepares something fails.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Scheme knows the types of Open Cluster Management and the types of Kubernetes
// that the tests use. A fake client reads the whole scheme at each write, so
// one with all of Kubernetes is slow.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{ocm.AddToScheme, addon.AddToScheme,
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		batchv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme,
		flowcontrolv1.AddToScheme, rbacv1.AddToScheme} {
		Must(t, add(s))
	}
	return s
}

// NewClient returns a client with that scheme, which is not throttled.
func NewClient(t testing.TB, config *rest.Config) client.WithWatch {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme(t)})
	Must(t, err)
	return c
}

// Eventually polls a real API server.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	kubetest.Eventually(t, what, condition)
}

// WithToken returns the configuration of another user of a cluster.
func WithToken(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.QPS = token, -1
	return config
}

// As returns a client of a user with groups.
func As(t testing.TB, cluster *kubetest.Cluster, user string, groups ...string) client.WithWatch {
	t.Helper()
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return NewClient(t, config)
}

// As returns a client of the hub.
func (w *Environment) As(user string, groups ...string) client.WithWatch {
	w.T.Helper()
	return As(w.T, w.Hub, user, groups...)
}

// Step is a sub-test. The helpers fail it rather than its parent.
func (w *Environment) Step(name string, run func(t *testing.T)) {
	w.T.Helper()
	outer := w.T
	outer.Run(name, func(t *testing.T) {
		w.T = t
		defer func() { w.T = outer }()
		run(t)
	})
}

// Apply creates what does not exist.
func (w *Environment) Apply(c client.Client, manifest string) {
	w.T.Helper()
	kubetest.Apply(w.T, c, manifest)
}

// Token returns a token of a ServiceAccount. Without audiences it is one for
// the cluster's own API server.
func (w *Environment) Token(c client.Client, namespace, name string, audiences ...string) string {
	w.T.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Must(w.T, c.SubResource("token").Create(w.T.Context(), account, request))
	return request.Status.Token
}

// The ServiceAccount of the hub controller in HubRBAC.
const (
	HubNamespace = "open-cluster-management-hub"
	HubAccount   = "registration-controller-sa"
)

// RunHub runs a hub controller with exactly the rights of its ServiceAccount,
// until the whole test ends or stop is called. configure sets the drivers and
// everything else but the client.
func (w *Environment) RunHub(configure func(mgr ctrl.Manager) (hub.Options, error)) (stop func()) {
	w.T.Helper()
	return w.RunControllers(func(mgr ctrl.Manager) error {
		options, err := configure(mgr)
		if err != nil {
			return err
		}
		options.Client = mgr.GetClient()
		hub, err := hub.New(options)
		if err != nil {
			return err
		}
		return hub.SetupWithManager(mgr, 2)
	})
}

// RunControllers runs other controllers of the hub in the same way.
func (w *Environment) RunControllers(setup ...func(ctrl.Manager) error) (stop func()) {
	w.T.Helper()
	mgr := NewManager(w.T, WithToken(w.Hub.Config(), w.Token(w.Admin, HubNamespace, HubAccount)), hub.CacheOptions())
	for _, f := range setup {
		Must(w.T, f(mgr))
	}
	return kubetest.RunManager(w.whole, mgr)
}

// NewManager returns a manager without metrics. It stops in time: the priority
// queue of controller-runtime 0.24 can block a worker until the grace period
// ends.
func NewManager(t testing.TB, of *rest.Config, options cache.Options) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(of, ctrl.Options{Scheme: Scheme(t), Cache: options, Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{UsePriorityQueue: new(false)}})
	Must(t, err)
	return mgr
}

// RunManager runs until the test ends or stop is called.
func RunManager(t *testing.T, mgr ctrl.Manager) (stop func()) { return kubetest.RunManager(t, mgr) }

// Cluster returns a ManagedCluster, an empty one if there is none.
func (w *Environment) Cluster(name string) *ocm.ManagedCluster {
	w.T.Helper()
	cluster := &ocm.ManagedCluster{}
	Must(w.T, client.IgnoreNotFound(w.Admin.Get(w.T.Context(), client.ObjectKey{Name: name}, cluster)))
	return cluster
}

// Reason returns status and reason of a condition, such as
// "True/HubClusterAdminAccepted".
func (w *Environment) Reason(cluster, kind string) string {
	w.T.Helper()
	if c := meta.FindStatusCondition(w.Cluster(cluster).Status.Conditions, kind); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

// AwaitReason waits until a condition has the reason.
func (w *Environment) AwaitReason(cluster, kind, reason string) {
	w.T.Helper()
	kubetest.Eventually(w.T, fmt.Sprintf("%s of cluster %q says %s", kind, cluster, reason), func() bool {
		return strings.HasSuffix(w.Reason(cluster, kind), "/"+reason)
	})
}

// AwaitRevoked waits until nothing is left of a cluster's RBAC.
func (w *Environment) AwaitRevoked(cluster string) {
	w.T.Helper()
	kubetest.Eventually(w.T, "the RBAC of cluster "+cluster+" is gone", func() bool { return len(w.RBAC(cluster)) == 0 })
}

// SetAccepted does what an administrator does with wid hub accept or deny.
func (w *Environment) SetAccepted(name string, accepted bool) {
	w.T.Helper()
	Must(w.T, Patch(w.T.Context(), w.Admin, name, fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, accepted)))
}

// Patch merges JSON into a ManagedCluster.
func Patch(ctx context.Context, c client.Client, name, body string) error {
	return c.Patch(ctx, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		client.RawPatch(types.MergePatchType, []byte(body)))
}

// RBAC returns what there is of a cluster's RBAC: bindings first, then the
// ClusterRole, which records what was granted. A denied cluster may keep a
// ClusterRole without rules.
func (w *Environment) RBAC(cluster string) (there []string) {
	w.T.Helper()
	name := registration.ClusterRoleName(cluster)
	for _, object := range []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":registration"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":work"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}},
	} {
		err := w.Admin.Get(w.T.Context(), client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			w.T.Fatal(err)
		}
		role, ok := object.(*rbacv1.ClusterRole)
		denied := ok && len(role.Rules) == 0 && w.Cluster(cluster).Name != ""
		if err == nil && !denied {
			there = append(there, fmt.Sprintf("%T %s", object, object.GetName()))
		}
	}
	return there
}
