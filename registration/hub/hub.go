package hub

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Options configures a Hub.
type Options struct {
	// Client reads and writes the hub. Required.
	Client client.Client
	// Reader reads ManagedClusters, records of claims and Leases past the cache
	// of Client. Default: the manager's API reader, or Client without a
	// manager.
	Reader client.Reader
	// Drivers are the auth types that the hub grants. At least one is required.
	Drivers []registration.HubDriver
	// Default is the auth type of clusters without the annotations of any
	// driver. "" refuses such clusters.
	Default string
	// OCMAgents gives clusters the rights that agents of Open Cluster
	// Management need: to list and watch all certificate requests, and to list,
	// watch and update their own ManagedCluster. The hub needs the rights of
	// manifests.OCMAgentsRBAC.
	OCMAgents bool
	// Relay lets the relay of manifests.RelayRBAC act as the recorded agent of
	// each accepted cluster, and as no other user. It requires an API server
	// since 1.36. The hub needs the rights of manifests.RelayConstrainedRBAC.
	Relay bool
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Recorder gets an Event for each decision and each failure. Nil records
	// nothing.
	Recorder events.EventRecorder
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
	// TracerProvider takes an OpenTelemetry span of each call of a driver:
	// "approve", "grant" and "revoke". Nil records none.
	TracerProvider trace.TracerProvider
}

// Hub accepts and revokes clusters, and grants their access. It is a
// reconcile.Reconciler of ManagedClusters and replaces Open Cluster
// Management's registration controller: do not run both on one hub. It is safe
// for concurrent use, except for two calls about one cluster.
type Hub struct {
	options Options
	calls   *prometheus.HistogramVec
	states  *prometheus.GaugeVec
	joined  *prometheus.GaugeVec

	mu       sync.Mutex
	memories map[string]*memory // by cluster
	settled  map[string]settled // by cluster, each until its first reconcile
}

// memory holds the hub's observations of a cluster. It may be lost at any time:
// the next reconcile then reads everything again. Only the reconcile of that
// cluster uses it.
type memory struct {
	state string
	// available is the status ManagedClusterConditionAvailable of a joined
	// cluster.
	available string
	grant     registration.Claim // the claim that the driver verified last
	nextAt    time.Time          // when to ask the driver again
	lease     leaseMemory
}

// New returns a hub. SetupWithManager runs it.
func New(options Options) (*Hub, error) {
	if options.Client == nil {
		return nil, errors.New("a hub needs a client: set hub.Options.Client")
	}
	if len(options.Drivers) == 0 {
		return nil, errors.New("a hub needs a driver: set hub.Options.Drivers")
	}
	if err := checkNames(options.Drivers); err != nil {
		return nil, err
	}
	if options.Default != "" {
		if _, err := registration.Pick(options.Drivers, options.Default); err != nil {
			return nil, fmt.Errorf("hub.Options.Default: %w", err)
		}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	h := &Hub{options: options, memories: map[string]*memory{}}
	return h, h.register(options.Registerer)
}

// checkNames refuses drivers without a name, and two drivers with the same
// name.
func checkNames(drivers []registration.HubDriver) error {
	seen := map[string]bool{}
	for _, d := range drivers {
		switch name := d.Name(); {
		case name == "":
			return fmt.Errorf("a driver of type %T has no name", d)
		case seen[name]:
			return fmt.Errorf("two drivers have the name %q: pass one of them", name)
		default:
			seen[name] = true
		}
	}
	return nil
}

// errPostponed means that a failure is reported, and that its retry is
// scheduled.
var errPostponed = errors.New("postponed")

const (
	// resync is the longest time between two calls of Grant for one cluster.
	// The hub shortens it a little for each cluster, to spread the calls.
	resync = time.Hour
	// callTimeout bounds each call of a driver.
	callTimeout = time.Minute
)

// Reasons of the condition HubAcceptedManagedCluster, in addition to the
// reasons in package ocm.
const (
	reasonInvalidName        = "InvalidName"
	reasonInvalidClaim       = "InvalidClaim"
	reasonConflictingDrivers = "ConflictingDrivers"
	reasonUnknownDriver      = "UnknownDriver"
	reasonNamespaceTaken     = "NamespaceTaken"
	reasonRBACTaken          = "RBACTaken"
	reasonRecordLost         = "RecordLost"
)

// Reconcile implements reconcile.Reconciler. It requeues the cluster for the
// exact time when a grant or a Lease is due.
func (h *Hub) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if next, ok := h.skip(ctx, req.Name); ok {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	cluster := &ocm.ManagedCluster{}
	// A cache that lags behind must not revoke an existing cluster, and
	// CacheOptions drop annotations.
	err := h.reader().Get(ctx, req.NamespacedName, cluster)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read ManagedCluster %q: %w", req.Name, err)
	}
	if err != nil || !cluster.DeletionTimestamp.IsZero() {
		cluster.Name = req.Name
		again, err := h.release(ctx, cluster)
		return reconcile.Result{RequeueAfter: again}, h.reportFailure(ctx, cluster, err)
	}
	next, err := h.reconcile(ctx, cluster)
	return reconcile.Result{RequeueAfter: next}, h.reportFailure(ctx, cluster, err)
}

// reconcile brings a cluster that is not being deleted to the documented state,
// and returns the time of the next check.
func (h *Hub) reconcile(ctx context.Context, cluster *ocm.ManagedCluster) (time.Duration, error) {
	h.setAvailable(cluster)
	decideErr := h.decide(ctx, cluster)
	h.setState(cluster.Name, stateOf(cluster).Stage)
	next, err := h.checkLease(ctx, cluster)
	if err := errors.Join(decideErr, err); err != nil {
		return 0, err
	}
	if at := h.memory(cluster.Name).nextAt; !at.IsZero() {
		// A time that passed during the reconcile is due at once.
		next = earliest(next, max(at.Sub(h.options.Now()), time.Millisecond))
	}
	return next, nil
}

// patch keeps fields that our types do not know. It fails if the object has
// changed since it was read.
func (h *Hub) patch(ctx context.Context, cluster *ocm.ManagedCluster, change func()) error {
	base := cluster.DeepCopy()
	change()
	return h.options.Client.Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}

func (h *Hub) reader() client.Reader {
	if h.options.Reader != nil {
		return h.options.Reader
	}
	return h.options.Client
}

func (h *Hub) memory(cluster string) *memory {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.memories[cluster]
	if m == nil {
		m = &memory{}
		h.memories[cluster] = m
	}
	return m
}

// schedule remembers the claim that the driver verified, if any, and the time
// of its next call. A hash of the name spreads the clusters over a fifth of the
// time.
func (h *Hub) schedule(cluster string, verified registration.Claim, after time.Duration) {
	if after <= 0 || after > resync {
		after = resync
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(cluster)) // never fails
	after -= time.Duration(float64(after) / 5 * float64(hash.Sum32()) / (1 << 32))
	m := h.memory(cluster)
	m.grant, m.nextAt = verified, h.options.Now().Add(max(after, time.Second))
}

// earliest returns the shorter of two waits. Zero means none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
