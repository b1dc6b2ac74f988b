package soak

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// environment is everything that the load runs in.
type environment struct {
	cluster      *kubetest.Cluster
	issuer       string
	issuerClient *http.Client
	cloud        *cloudtest.Cloud
	httpClient   *http.Client // to the cloud
	connections  connections

	admin    client.Client
	reading  client.Client // of the controller, which asks the API server each time
	informed client.Client // of the controller, with its informer
	stored   client.Client // of the controller, with an informer that strips and shares, as in docs/workload-identity.md
	tokens   *cache.TokenCache
	observer *observer

	maxDuration time.Duration
	allSides    []*side
	tenants     []*tenant
	byKey       map[client.ObjectKey]*tenant
	byName      map[string]*tenant // by the names of their identities in the cloud

	phases     []*phase
	current    atomic.Pointer[phase]
	changes    tally // by cloud
	presented  atomic.Int64
	heldBack   atomic.Int64 // calls that were not made because too many waited
	cutOff     atomic.Int64 // connections
	loadBegan  time.Time
	loadTook   time.Duration
	leftLate   atomic.Int64 // the longest time that a caller that gave up had to wait for it, in nanoseconds
	longest    atomic.Int64 // the longest time that a caller waited while another cloud hung, in nanoseconds
	early      early
	violations violations
	stalls     stalls

	mu      sync.Mutex
	windows []*window
}

func newEnvironment(t *testing.T) *environment {
	w := &environment{observer: &observer{},
		cluster: kubetest.StartNew(t, kubetest.Flag{Name: "audit-log-path", Value: "/dev/null"})}
	w.issuer, w.issuerClient = w.cluster.IssuerURL(), w.cluster.IssuerClient(t)
	t.Cleanup(w.issuerClient.CloseIdleConnections)
	w.cloud = testenv.Cloud(t)
	w.httpClient = w.newHTTPClient(t)

	// Long enough for two thousand tenants on two cores, short enough for
	// several renewals in each phase.
	w.maxDuration = min(30*time.Second, max(20*time.Second, *soakTime/10))
	var err error
	w.tokens, err = cache.NewTokenCache(10**soakTenants, cache.WithMaxDuration(w.maxDuration),
		cache.WithObserver(w.observer), cache.WithRate(rate.Inf, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.tokens.Close)
	w.startClients(t)
	w.allSides = w.sides()
	w.newTenants(w.allSides, *soakTenants)
	w.plan(t, *soakTime)
	w.enter(w.phases[0])
	w.createAll(t)
	return w
}

// lasting is what a controller keeps for as long as it runs, and what the load
// must leave nothing in.
func (w *environment) lasting() any {
	var kept []any
	for _, s := range w.allSides {
		kept = append(kept, s.provider.cloudProvider)
	}
	return append(kept, w.tokens)
}

// newHTTPClient is like Cloud.Client, with connections that can be cut.
func (w *environment) newHTTPClient(t *testing.T) *http.Client {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(w.cloud.CA()) {
		t.Fatal("the cloud has no certificate authority")
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := w.cloud.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return w.connections.add(conn, addr), nil
		},
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 256,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: &counted{transport, w}}
}

// startClients makes the controller's clients: it may read ServiceAccounts and
// ask for their tokens.
func (w *environment) startClients(t *testing.T) {
	w.admin = newClient(t, w.cluster.Config(), client.Options{})
	config := w.cluster.User(t, "soak-controller", "",
		rule("serviceaccounts", "get", "list", "watch"), rule("serviceaccounts/token", "create"))
	w.reading = &watched{newClient(t, config, client.Options{}), w}
	w.informed = w.newInformed(t, config, crcache.ByObject{})
	w.stored = w.newInformed(t, config, crcache.ByObject{Transform: strip, UnsafeDisableDeepCopy: new(true)})
}

// newInformed makes a client with an informer of ServiceAccounts.
func (w *environment) newInformed(t *testing.T, config *rest.Config, of crcache.ByObject) client.Client {
	informers, err := crcache.New(config,
		crcache.Options{HTTPClient: httpClientFor(t, config),
			ByObject: map[client.Object]crcache.ByObject{&corev1.ServiceAccount{}: of}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = informers.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if _, err := informers.GetInformer(t.Context(), &corev1.ServiceAccount{}); err != nil {
		t.Fatal(err)
	}
	return &watched{newClient(t, config, client.Options{Cache: &client.CacheOptions{Reader: informers}}), w}
}

// strip keeps what auth reads, and all annotations: the tenants have no others.
func strip(obj any) (any, error) {
	sa, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return obj, nil
	}
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: sa.Name, Namespace: sa.Namespace, UID: sa.UID,
		ResourceVersion: sa.ResourceVersion, DeletionTimestamp: sa.DeletionTimestamp, Annotations: sa.Annotations}}, nil
}

func rule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
}

func newClient(t *testing.T, config *rest.Config, options client.Options) client.Client {
	options.HTTPClient = httpClientFor(t, config)
	c, err := client.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func httpClientFor(t *testing.T, config *rest.Config) *http.Client {
	config.QPS = -1
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(hc.Transport) })
	return hc
}

// createAll creates the tenants. Every fiftieth begins as a thief, with the
// annotation of another one.
func (w *environment) createAll(t *testing.T) {
	start := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := 0; i < len(w.tenants); i += perNamespace {
		group.Go(func() error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.tenants[i].key.Namespace}}
			if err := w.admin.Create(ctx, ns); err != nil {
				return err
			}
			for _, one := range w.tenants[i:min(i+perNamespace, len(w.tenants))] {
				who := one
				if one.n%50 == 49 {
					who = w.tenants[one.n-3] // of the same cloud
				}
				if err := w.admin.Create(ctx, one.serviceAccount(one.side.annotations(who, 0))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.awaitReaders(t)
	t.Logf("%d tenants in %s, seed %d", len(w.tenants), time.Since(start).Round(time.Millisecond), *soakSeed)
}

func (w *environment) awaitReaders(t *testing.T) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, one := range w.tenants {
		for {
			err := w.informed.Get(t.Context(), one.key, &corev1.ServiceAccount{})
			if err == nil {
				err = w.stored.Get(t.Context(), one.key, &corev1.ServiceAccount{})
			}
			if err == nil {
				break
			}
			if !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			<-tick.C
		}
	}
}
