package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/advice"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
)

// agentConn is a usable client of the hub.
type agentConn struct {
	client.Client
	own     bool // with the stored credential
	cluster *ocm.ManagedCluster
	stored  map[string][]byte // the part of the Secret that the driver sees
}

// agentClient caches a client and the data it was built from.
type agentClient struct {
	client.Client
	made map[string][]byte
}

// hubSession is the agent's access to the hub with its own credential, which
// the hub has accepted.
type hubSession struct {
	config *rest.Config
	hub    *kubeconfig.Hub
	agent  string            // the agent's name
	made   map[string][]byte // the data that the configuration is built from
}

// hubSessions passes the agent's access to the add-ons. The zero value has
// none.
type hubSessions struct {
	mu       sync.Mutex
	current  *hubSession
	replaced context.Context // of current
	replace  context.CancelFunc
}

// get returns the access, or nil if there is none, and a context that ends when
// the access is replaced.
func (s *hubSessions) get() (current *hubSession, replaced context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replaced == nil {
		s.replaced, s.replace = context.WithCancel(context.Background())
	}
	return s.current, s.replaced
}

// set keeps the current access if next is built from the same data.
func (s *hubSessions) set(next *hubSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == next || s.current != nil && next != nil && maps.EqualFunc(s.current.made, next.made, bytes.Equal) {
		return
	}
	s.current = next
	if s.replace != nil {
		s.replace()
		s.replaced, s.replace = nil, nil
	}
}

// readBootstrap returns the content of the bootstrap Secret.
func (a *Agent) readBootstrap(ctx context.Context) (*kubeconfig.Hub, error) {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: a.opts.Namespace, Name: a.opts.BootstrapSecret}
	switch err := a.opts.Local.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, &hubError{ReasonCredentialRefused,
			fmt.Errorf("there is no Secret %q on the managed cluster: join again, which creates it", key)}
	case err != nil:
		return nil, fmt.Errorf("read Secret %q on the managed cluster: %w", key, err)
	}
	hub, err := kubeconfig.ParseBootstrap(secret.Data[registration.SecretKeyKubeconfig])
	if err != nil {
		return nil, fmt.Errorf("the key %q of Secret %q on the managed cluster is refused: %w",
			registration.SecretKeyKubeconfig, key, err)
	}
	return hub, nil
}

// readSecret returns the agent's Secret.
func (a *Agent) readSecret(ctx context.Context) (*credentialSecret, error) {
	key := client.ObjectKey{Namespace: a.opts.Namespace, Name: ocm.HubKubeconfigSecret}
	secret := &credentialSecret{
		Secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
		local:  a.opts.Local, driver: a.opts.Driver, cluster: a.opts.Cluster}
	if err := secret.read(ctx); err != nil {
		return nil, err
	}
	if name, ok := secret.Data[ocm.SecretKeyClusterName]; ok && string(name) != a.opts.Cluster {
		return nil, fmt.Errorf("the Secret %q belongs to cluster %.100q, not %q: delete it to join under the new name", key,
			name, a.opts.Cluster)
	}
	return secret, nil
}

// ensureNames adds the names to the Secret and reports whether the Secret has
// changed. The agent's name is drawn once, because the hub compares renewals
// with it.
func (a *Agent) ensureNames(secret *credentialSecret) bool {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	data[ocm.SecretKeyClusterName] = []byte(a.opts.Cluster)
	if registration.CheckAgentName(string(data[ocm.SecretKeyAgentName])) != nil {
		const length = 12
		data[ocm.SecretKeyAgentName] = []byte(strings.ToLower(rand.Text()[:length]))
	}
	secret.agent = string(data[ocm.SecretKeyAgentName])
	return secret.replaceData(data)
}

// connect picks the stored credential if the hub accepts it, else the bootstrap
// credential. It returns nil if the hub knows the stored credential but denies
// access, as before acceptance and after denial. The credential is then kept.
func (a *Agent) connect(ctx context.Context, hub *kubeconfig.Hub, secret *credentialSecret) (*agentConn, error) {
	config, stored, err := secret.open(ctx, hub)
	if err == nil {
		conn, err := a.open(ctx, &a.own, config, stored)
		switch {
		case err == nil:
			conn.own = true
			a.sessions.set(&hubSession{config: config, hub: hub, agent: string(secret.Data[ocm.SecretKeyAgentName]),
				made: maps.Clone(stored)})
			return conn, a.introduce(ctx, hub, conn)
		case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
			return nil, a.explain(hub, err) // the add-ons try for themselves
		}
		switch {
		case apierrors.IsForbidden(err) && !secret.isForeign():
			a.sessions.set(nil)
			a.event(corev1.EventTypeNormal, "WaitingForAcceptance",
				fmt.Sprintf("the hub at %q does not let cluster %q in: accept it there with %s; "+
					"if it was deleted there, run %s", hub.Cluster.Server, a.opts.Cluster, advice.Accept(a.opts.Cluster),
					advice.Join()))
			return nil, nil //nolint:nilerr // the agent waits
		case apierrors.IsUnauthorized(err):
			a.event(corev1.EventTypeWarning, ReasonOwnCredentialRefused,
				fmt.Sprintf("the hub at %q refuses the agent's own credential%s: the agent asks for "+
					"another with its bootstrap credential", hub.Cluster.Server, validity(config.CertData)))
			// The driver gets a new credential.
			maps.DeleteFunc(stored, func(key string, _ []byte) bool {
				return key != ocm.SecretKeyClusterName && key != ocm.SecretKeyAgentName
			})
		}
	}
	a.sessions.set(nil)
	if hub.User == nil {
		return nil, &hubError{ReasonCredentialRefused,
			fmt.Errorf("the agent has no credential that the hub at %q takes, and Secret %q holds no user: "+
				"join again with a bootstrap credential", hub.Cluster.Server, a.opts.BootstrapSecret)}
	}
	composed, err := hub.Compose(*hub.User)
	if err != nil {
		return nil, err
	}
	conn, err := a.open(ctx, &a.bootstrap, hub.Config(*hub.User),
		map[string][]byte{registration.SecretKeyKubeconfig: composed})
	if err != nil {
		return nil, a.explain(hub, err)
	}
	conn.stored = stored
	return conn, a.introduce(ctx, hub, conn)
}

// open reads the ManagedCluster, and creates it if it does not exist. It makes
// a new client only if the client's data has changed.
func (a *Agent) open(ctx context.Context, c *agentClient, config *rest.Config,
	of map[string][]byte) (*agentConn, error) {
	if c.Client == nil || !maps.EqualFunc(c.made, of, bytes.Equal) {
		made, err := a.opts.NewHubClient(config)
		if err != nil {
			return nil, err
		}
		c.Client, c.made = made, maps.Clone(of)
	}
	cluster := &ocm.ManagedCluster{}
	key := client.ObjectKey{Name: a.opts.Cluster}
	err := c.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) {
		cluster = &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Annotations: a.annotations()}}
		err = c.Create(ctx, cluster)
	}
	return &agentConn{Client: c.Client, cluster: cluster, stored: of}, err
}

// validity names the times of a certificate, because a wrong clock is the usual
// cause of a refusal.
func validity(certificate []byte) string {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return ""
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", a certificate that is valid from %s to %s", parsed.NotBefore.Format(time.RFC3339),
		parsed.NotAfter.Format(time.RFC3339))
}

func (a *Agent) annotations() map[string]string {
	if driver, ok := a.opts.Driver.(registration.Annotator); ok {
		return maps.Clone(driver.Annotations())
	}
	return nil
}

// introduce sets the driver's annotations on a ManagedCluster that already
// existed.
func (a *Agent) introduce(ctx context.Context, hub *kubeconfig.Hub, conn *agentConn) error {
	base, changed := conn.cluster.DeepCopy(), false
	for key, value := range a.annotations() {
		if conn.cluster.Annotations[key] != value {
			metav1.SetMetaDataAnnotation(&conn.cluster.ObjectMeta, key, value)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	err := conn.Patch(ctx, conn.cluster, client.MergeFrom(base))
	if apierrors.IsForbidden(err) {
		a.event(corev1.EventTypeWarning, "AnnotationsMissing",
			fmt.Sprintf("ManagedCluster %q lacks annotations %q, and the agent may not set them: set them on the hub at %q",
				a.opts.Cluster, a.annotations(), hub.Cluster.Server))
		conn.cluster = base
		return nil
	}
	return a.explain(hub, err)
}

// hubError is an error with the reason of its Event.
type hubError struct {
	reason string
	error
}

func (e *hubError) Unwrap() error { return e.error }

func reasonOf(err error) string {
	var known *hubError
	if errors.As(err, &known) {
		return known.reason
	}
	return ReasonFailed
}

// isStatus reports whether an API server has answered. A webhook may refuse
// without a reason.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// explain adds a remedy to an error of the hub, if it knows one.
func (a *Agent) explain(hub *kubeconfig.Hub, err error) error {
	secret := client.ObjectKey{Namespace: a.opts.Namespace, Name: a.opts.BootstrapSecret}
	remedy, reason := "", ReasonFailed
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		remedy = "it serves no ManagedClusters, prepare it as a hub"
	case apierrors.IsUnauthorized(err):
		reason = ReasonCredentialRefused
		remedy = fmt.Sprintf("it refuses the bootstrap credential of Secret %q, join again with a new one", secret)
	case apierrors.IsForbidden(err):
		remedy = fmt.Sprintf("the bootstrap credential may not register cluster %q, bind its user to ClusterRole %q there",
			a.opts.Cluster, ocm.BootstrapRole)
	case !isStatus(err): // the hub did not answer
		reason = ReasonHubUnreachable
		remedy = fmt.Sprintf(
			"check that the network lets the agent through, and server and certificate-authority-data in Secret %q", secret)
	default:
		remedy = "the agent tries again"
	}
	return &hubError{reason, fmt.Errorf("cannot use the hub at %q: %s: %w", hub.Cluster.Server, remedy, err)}
}
