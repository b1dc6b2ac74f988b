// Package controlplane starts a real control plane: kube-apiserver and etcd,
// and kube-controller-manager with chosen controllers. The programs are those
// that test/kube builds. Tests use package kubetest instead.
package controlplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Cluster is a running control plane. RBAC decides, anonymous requests are let
// in as far as RBAC allows, the issuer's discovery document and keys are
// readable by everyone, and bootstrap tokens authenticate.
type Cluster struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	issuer string
	dir    string
	assets string
	users  sync.Mutex // held while one is added, which envtest does for one at a time
}

// patience is how long anything may take on a machine that is busy.
const patience = 2 * time.Minute

// Flag is a flag of the API server, or of etcd, without the dashes.
type Flag struct {
	Name, Value string
	Etcd        bool
}

// auditPolicy logs who asked for what, once it is answered, and never what was
// sent or answered: that holds tokens.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules: [{level: Metadata}]
`

// Start starts etcd and an API server with additional flags, from the programs
// in the folder assets. It tries again if another process took the port
// meanwhile. The caller stops the cluster.
func Start(assets string, flags ...Flag) (*Cluster, error) {
	var c *Cluster
	var err error
	for range 3 {
		if c, err = tryStart(assets, flags); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func tryStart(assets string, flags []Flag) (*Cluster, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{env: &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience,
		ControlPlaneStopTimeout: patience},
		issuer: "https://127.0.0.1:" + port, dir: dir, assets: assets}
	if err := c.configure(port); err != nil {
		return nil, err
	}
	c.env.ControlPlane.Etcd = &envtest.Etcd{}
	for _, f := range flags {
		if f.Etcd {
			c.env.ControlPlane.Etcd.Configure().Set(f.Name, f.Value)
		} else {
			c.env.ControlPlane.GetAPIServer().Configure().Set(f.Name, f.Value)
		}
	}
	if c.config, err = c.env.Start(); err != nil {
		_ = c.Stop() // the first error counts
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	c.config.QPS = -1 // not throttled
	if c.client, err = client.New(c.config, client.Options{}); err == nil {
		err = c.WaitReady()
	}
	if err == nil {
		err = c.publishIssuer()
	}
	if err != nil {
		_ = c.Stop() // the first error counts
		return nil, err
	}
	return c, nil
}

// configure sets what an issuer that others trust needs: its URL names the
// port.
func (c *Cluster) configure(port string) error {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	server := c.env.ControlPlane.GetAPIServer()
	// A folder of our own, because envtest would throw its own away whenever
	// the API server stops.
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
		Set("audit-log-path", c.AuditLog()).
		Set("audit-policy-file", policy).
		Set("audit-log-mode", "blocking").
		// Otherwise it waits a minute for open watches when it is to end.
		Set("shutdown-send-retry-after", "true")
	return nil
}

// FreePort picks one of those that no system gives to connections by itself:
// otherwise one that another test makes may take the port before the server
// does, or while it restarts.
func FreePort() (string, error) {
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
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:service-account-issuer-discovery"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	})
	if err != nil {
		return err
	}
	return c.WaitAllowed(authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous",
		Groups:                []string{"system:unauthenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/openid/v1/jwks", Verb: "get"}})
}

// Stop ends the control plane and removes its files.
func (c *Cluster) Stop() error {
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

// AuditLog returns the path of a file with one audit Event a line.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// EtcdURL returns the address of etcd.
func (c *Cluster) EtcdURL() string { return c.env.ControlPlane.Etcd.URL.String() }

// APIServer returns the process of the API server.
func (c *Cluster) APIServer() *envtest.APIServer { return c.env.ControlPlane.GetAPIServer() }

// User returns the configuration and the kubeconfig of a user, who
// authenticates with a client certificate.
func (c *Cluster) User(name string, groups ...string) (*rest.Config, []byte, error) {
	c.users.Lock()
	defer c.users.Unlock()
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, nil, err
	}
	kubeconfig, err := user.KubeConfig()
	return user.Config(), kubeconfig, err
}
