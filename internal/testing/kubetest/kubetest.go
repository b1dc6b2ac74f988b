// Package kubetest starts a real control plane for tests: kube-apiserver and
// etcd, and kube-controller-manager with chosen controllers. The programs are
// those that test/kube builds; without them the tests that need them are
// skipped.
//
// A test binary shares one cluster, and each test has a namespace of its own:
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }
//
//	func TestSomething(t *testing.T) {
//		cluster := kubetest.Start(t)
//		namespace := cluster.Namespace(t)
//		...
//	}
package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/controlplane"
)

// Cluster is a running control plane. Its methods that take a test fail it.
type Cluster struct {
	*controlplane.Cluster

	mu       sync.Mutex
	managers map[string]func() (log string) // stop them; by their controllers
}

// Flag is a flag of the API server, without the dashes.
type Flag = controlplane.Flag

// patience is how long anything may take on a machine that is busy.
const patience = 2 * time.Minute

// sharedCluster is started by the first test that needs it.
type sharedCluster struct {
	sync.Mutex
	flags   []Flag
	cluster *Cluster
	err     error
}

// shared and second are the clusters of the test binary.
var shared, second sharedCluster

func (s *sharedCluster) get(t testing.TB) *Cluster {
	t.Helper()
	dir := Assets(t)
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil && s.err == nil {
		s.cluster, s.err = start(dir, s.flags...)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func (s *sharedCluster) stop(failed bool) {
	s.Lock()
	defer s.Unlock()
	if s.cluster != nil {
		log, err := s.cluster.stop()
		if failed {
			fmt.Fprint(os.Stderr, log)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
		}
		s.cluster = nil
	}
}

// Main wraps m, so that the shared clusters end with the tests. The flags apply
// to the API server of Start's cluster.
func Main(m *testing.M, flags ...Flag) interface{ Run() int } {
	shared.flags = flags
	return runner{m}
}

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	shared.stop(code != 0)
	second.stop(code != 0)
	return code
}

// Start returns the cluster that the tests of this binary share. The binary's
// TestMain has to use Main.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return shared.get(t)
}

// StartSecond returns another cluster that the tests of this binary share, for
// tests of two clusters.
func StartSecond(t testing.TB) *Cluster {
	t.Helper()
	return second.get(t)
}

// StartNew returns a cluster of the test's own, with additional flags.
func StartNew(t testing.TB, flags ...Flag) *Cluster {
	t.Helper()
	c, err := start(Assets(t), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log, err := c.stop()
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return c
}

func start(assets string, flags ...Flag) (*Cluster, error) {
	c, err := controlplane.Start(assets, flags...)
	return &Cluster{Cluster: c}, err
}

// stop returns what the controller managers have logged.
func (c *Cluster) stop() (log string, err error) {
	for _, stop := range c.managers {
		log += stop()
	}
	return log, c.Stop()
}

// Assets returns the folder of the programs, or skips the test.
func Assets(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		t.Skip(`this test needs a control plane: run "make test", or export KUBEBUILDER_ASSETS=$(go -C test/kube run .)`)
	}
	return dir
}

// IssuerClient returns a client that trusts the API server's certificate and
// has no credentials, as a cloud would use it to get the issuer's documents.
func (c *Cluster) IssuerClient(t testing.TB) *http.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: transport, Timeout: patience}
}

// Namespace creates a namespace for the test.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Client().Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// DeleteNamespace removes a namespace, which need not exist, and all that it
// holds, as kube-controller-manager does.
func (c *Cluster) DeleteNamespace(t testing.TB, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client().Delete(ctx, namespace); apierrors.IsNotFound(err) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	for _, kind := range c.namespacedKinds(t) {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := c.Client().DeleteAllOf(ctx, object, client.InNamespace(name), client.GracePeriodSeconds(0)); err != nil {
			t.Fatalf("delete each %s: %v", kind.Kind, err)
		}
	}
	if err := c.Client().SubResource("finalize").Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
}

// namespacedKinds are the kinds of objects in namespaces that the API server
// can delete together.
func (c *Cluster) namespacedKinds(t testing.TB) (kinds []schema.GroupVersionKind) {
	t.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := api.ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "deletecollection") {
				kinds = append(kinds, schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind))
			}
		}
	}
	return kinds
}

// User returns the configuration of a user who has exactly the given rules, in
// one namespace or, for "", everywhere. The API server goes by the rules when
// it returns.
func (c *Cluster) User(t testing.TB, name, namespace string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config, _, err := c.Cluster.User(name)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{GenerateName: "kubetest-", Namespace: namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	if namespace == "" {
		role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
		c.create(t, role)
		c.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}})
	} else {
		role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
		c.create(t, role)
		c.create(t, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}})
	}
	// All rules are in one role, so the API server goes by all of them as soon
	// as it goes by one.
	if len(rules) > 0 {
		c.Await(t, anAccess(name, namespace, rules[0]))
	}
	return config
}

func (c *Cluster) create(t testing.TB, obj client.Object) {
	t.Helper()
	if err := c.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// ControllerManager starts kube-controller-manager with the named controllers,
// such as "csrsigning", unless another test of the cluster has done so. It ends
// with the cluster. The API server trusts the client certificates that it
// signs.
func (c *Cluster) ControllerManager(t testing.TB, controllers ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	names := strings.Join(controllers, ",")
	if c.managers[names] != nil {
		return
	}
	stop, err := c.Cluster.ControllerManager(controllers...)
	if err != nil {
		t.Fatal(err)
	}
	if c.managers == nil {
		c.managers = map[string]func() string{}
	}
	c.managers[names] = stop
}

// Kubeconfig writes a file with a cluster administrator's credentials and
// returns its path.
func (c *Cluster) Kubeconfig(t testing.TB) string {
	t.Helper()
	_, content, err := c.Cluster.User("kubetest-admin", "system:masters")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// AccountKubeconfig writes a file with the credentials of a ServiceAccount and
// returns its path.
func (c *Cluster) AccountKubeconfig(t testing.TB, namespace, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.Client().SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: c.Config().Host,
			CertificateAuthorityData: c.Config().CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}
