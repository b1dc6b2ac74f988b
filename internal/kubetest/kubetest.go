// Package kubetest starts a real control plane for tests: kube-apiserver and etcd, and kube-controller-manager with chosen
// controllers. The programs are those that test/kube builds; without them the tests that need them are skipped.
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
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Cluster is a running control plane. RBAC decides, anonymous requests are let in as far as RBAC allows, the issuer's
// discovery document and keys are readable by everyone, and bootstrap tokens authenticate.
type Cluster struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	issuer string
	dir    string
}

// patience is how long anything may take on a machine that is busy.
const patience = 2 * time.Minute

// sharedCluster is started by the first test that needs it.
type sharedCluster struct {
	sync.Mutex
	cluster *Cluster
	err     error
}

// shared and second are the clusters of the test binary.
var shared, second sharedCluster

func (s *sharedCluster) get(t testing.TB) *Cluster {
	t.Helper()
	assets(t)
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil && s.err == nil {
		s.cluster, s.err = start()
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func (s *sharedCluster) stop() {
	s.Lock()
	defer s.Unlock()
	if s.cluster != nil {
		if err := s.cluster.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
		}
		s.cluster = nil
	}
}

// Main wraps m, so that the shared clusters end with the tests.
func Main(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	shared.stop()
	second.stop()
	return code
}

// Start returns the cluster that the tests of this binary share. The binary's TestMain has to use Main.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return shared.get(t)
}

// StartSecond returns another cluster that the tests of this binary share, for tests of two clusters.
func StartSecond(t testing.TB) *Cluster {
	t.Helper()
	return second.get(t)
}

// Flag is a flag of the API server, without the dashes.
type Flag struct{ Name, Value string }

// StartNew returns a cluster of the test's own, with additional flags of its API server.
func StartNew(t testing.TB, flags ...Flag) *Cluster {
	t.Helper()
	assets(t)
	c, err := start(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// assets returns the folder of the programs.
func assets(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		t.Skip(`this test needs a control plane: run "make test", or export KUBEBUILDER_ASSETS=$(go -C test/kube run .)`)
	}
	return dir
}

// start tries again if somebody else took the port meanwhile.
func start(flags ...Flag) (*Cluster, error) {
	var c *Cluster
	var err error
	for range 3 {
		if c, err = tryStart(flags); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func tryStart(flags []Flag) (*Cluster, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{env: &envtest.Environment{ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience},
		issuer: "https://127.0.0.1:" + port, dir: dir}
	if err := c.configure(port); err != nil {
		return nil, err
	}
	for _, f := range flags {
		c.env.ControlPlane.GetAPIServer().Configure().Set(f.Name, f.Value)
	}
	if c.config, err = c.env.Start(); err != nil {
		_ = c.stop() // the first error counts
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	c.config.QPS = -1 // tests are not throttled
	if c.client, err = client.New(c.config, client.Options{}); err == nil {
		err = c.waitReady()
	}
	if err == nil {
		err = c.publishIssuer()
	}
	if err != nil {
		_ = c.stop() // the first error counts
		return nil, err
	}
	return c, nil
}

// configure sets what an issuer that others trust needs: its URL names the port.
func (c *Cluster) configure(port string) error {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	server := c.env.ControlPlane.GetAPIServer()
	// A folder of our own, because envtest would throw its own away whenever the API server stops.
	server.CertDir = filepath.Join(c.dir, "pki")
	if err := os.Mkdir(server.CertDir, 0o700); err != nil {
		return err
	}
	server.Address, server.Port = "127.0.0.1", port
	server.Configure().
		Set("service-account-issuer", c.issuer).
		Set("service-account-jwks-uri", c.issuer+"/openid/v1/jwks").
		Set("enable-bootstrap-token-auth", "true").
		Set("authorization-mode", "RBAC").
		Set("audit-log-path", c.auditLog()).
		Set("audit-policy-file", policy).
		Set("audit-log-mode", "blocking").
		// Otherwise it waits a minute for open watches when it is to end.
		Set("shutdown-send-retry-after", "true")
	return nil
}

// freePort picks one of those that no system gives to connections by itself: otherwise one that another test makes may take
// the port before the server does, or while it restarts.
func freePort() (string, error) {
	const first, count = 20_000, 10_000
	var err error
	for range 100 {
		port := strconv.Itoa(first + rand.IntN(count)) //nolint:gosec // no secret
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil { //nolint:noctx // does not wait
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}

// publishIssuer lets everyone read the issuer's documents.
func (c *Cluster) publishIssuer() error {
	err := c.client.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubetest-issuer-discovery"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	})
	if err != nil {
		return err
	}
	return c.waitAllowed(authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous", Groups: []string{"system:unauthenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/openid/v1/jwks", Verb: "get"}})
}

func (c *Cluster) stop() error {
	err := c.env.Stop()
	if rmErr := os.RemoveAll(c.dir); err == nil {
		err = rmErr
	}
	return err
}

// Config returns the configuration of a cluster administrator.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client returns a cluster administrator's client.
func (c *Cluster) Client() client.Client { return c.client }

// IssuerURL returns the issuer of the cluster's ServiceAccount tokens.
func (c *Cluster) IssuerURL() string { return c.issuer }

// IssuerClient returns a client that trusts the API server's certificate and has no credentials, as a cloud would use it
// to get the issuer's documents.
func (c *Cluster) IssuerClient(t testing.TB) *http.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(c.config)
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
	if err := c.client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// User returns the configuration of a user who has exactly the given rules, in one namespace or, for "", everywhere. The API
// server goes by the rules when it returns.
func (c *Cluster) User(t testing.TB, name, namespace string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user, err := c.env.AddUser(envtest.User{Name: name}, nil)
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
	for _, spec := range accesses(name, namespace, rules) {
		if err := c.waitAllowed(spec); err != nil {
			t.Fatal(err)
		}
	}
	return user.Config()
}

func (c *Cluster) create(t testing.TB, obj client.Object) {
	t.Helper()
	if err := c.client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}
