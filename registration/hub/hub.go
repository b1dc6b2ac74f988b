package hub

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
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
	// Default is the auth type of clusters without the annotations of any driver. "" refuses such clusters.
	Default string
	// OCMAgents gives clusters what agents of Open Cluster Management need: to
	// list and watch all certificate requests, and to list, watch and update
	// their own ManagedCluster. The hub needs the rights of
	// manifests.OCMAgentsRBAC.
	OCMAgents bool
	// Relay lets the relay of manifests.RelayRBAC act as the recorded
	// agent of each accepted cluster, and as no other user, on an API server
	// since 1.36. The hub needs the rights of
	// manifests.RelayConstrainedRBAC.
	Relay bool
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Recorder gets an Event for each decision and each failure. Nil records nothing.
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

// memory holds what the hub has seen of a cluster. It may be lost at any time:
// the next reconcile then reads everything again. Only the reconcile of that
// cluster uses it.
type memory struct {
	state string
	// available is that of a cluster that has joined.
	available string
	grant     registration.Claim // that the driver verified last
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

// checkNames refuses drivers without a name and two of one name.
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

// errPostponed says that a failure is reported, and that its retry is scheduled.
var errPostponed = errors.New("postponed")

const (
	// resync is the longest time between two calls of Grant for one cluster.
	// The hub shortens it a little for each cluster, to spread the calls.
	resync = time.Hour
	// callTimeout bounds each call of a driver.
	callTimeout = time.Minute
)

// Reasons of the condition HubAcceptedManagedCluster, in addition to those of package ocm.
const (
	reasonInvalidName        = "InvalidName"
	reasonInvalidClaim       = "InvalidClaim"
	reasonConflictingDrivers = "ConflictingDrivers"
	reasonUnknownDriver      = "UnknownDriver"
	reasonNamespaceTaken     = "NamespaceTaken"
	reasonRBACTaken          = "RBACTaken"
	reasonRecordLost         = "RecordLost"
)

// reasonReconcileFailed is the reason of ocm.ConditionReconciled.
const reasonReconcileFailed = "ReconcileFailed"

// Reconcile implements reconcile.Reconciler. It requeues the cluster for the exact time when a grant or a Lease is due.
func (h *Hub) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if next, ok := h.skip(ctx, req.Name); ok {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	cluster := &ocm.ManagedCluster{}
	// A cache that lags behind must not revoke a cluster that exists, and CacheOptions drop annotations.
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
// and returns when to look again.
func (h *Hub) reconcile(ctx context.Context, cluster *ocm.ManagedCluster) (time.Duration, error) {
	h.setAvailable(cluster)
	decideErr := h.decide(ctx, cluster)
	h.setState(cluster.Name, stateOf(cluster).Stage)
	next, err := h.checkLease(ctx, cluster)
	if err := errors.Join(decideErr, err); err != nil {
		return 0, err
	}
	if at := h.memory(cluster.Name).nextAt; !at.IsZero() {
		// What became due during the reconcile is not lost.
		next = earliest(next, max(at.Sub(h.options.Now()), time.Millisecond))
	}
	return next, nil
}

// reportFailure shows the error of a reconcile as a condition of its own, since
// the others show what is granted. It returns the error, so that the reconcile
// is retried. A conflict alone is not shown.
func (h *Hub) reportFailure(ctx context.Context, cluster *ocm.ManagedCluster, failure error) error {
	shown := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionReconciled) != nil
	switch {
	case cluster.ResourceVersion == "", ctx.Err() != nil, apierrors.IsConflict(failure), failure == nil && !shown:
		return failure
	case failure == nil:
		return client.IgnoreNotFound(optimistic.PatchStatus(ctx, h.options.Client, cluster, func() bool {
			return meta.RemoveStatusCondition(&cluster.Status.Conditions, ocm.ConditionReconciled)
		}))
	}
	c := metav1.Condition{Type: ocm.ConditionReconciled, Status: metav1.ConditionFalse, Reason: reasonReconcileFailed,
		Message: kubeerror.Message(failure)}
	err := h.report(ctx, cluster, corev1.EventTypeWarning, c)
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, c.Reason, c.Message)
	}
	return errors.Join(failure, client.IgnoreNotFound(err))
}

// decide brings everything but the Lease to the documented state.
func (h *Hub) decide(ctx context.Context, cluster *ocm.ManagedCluster) error {
	err := registration.CheckClusterName(cluster.Name)
	switch {
	case err != nil:
		err = refusal.New(reasonInvalidName, "%s", err.Error())
	case cluster.Spec.HubAcceptsClient:
		err = h.admit(ctx, cluster)
	default:
		err = h.exclude(ctx, cluster)
	}
	if errors.Is(err, errPostponed) {
		return nil
	}
	var refused *refusal.Error
	if !errors.As(err, &refused) {
		return err
	}
	h.schedule(cluster.Name, registration.Claim{}, 0)
	return h.report(ctx, cluster, corev1.EventTypeWarning, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: refused.Reason, Message: refused.Message})
}

// admit grants an accepted cluster what it needs. Each step relies on those
// before: the finalizer and the record precede the grant, so that a restart at
// any moment still revokes all that was granted; the RBAC comes last.
func (h *Hub) admit(ctx context.Context, cluster *ocm.ManagedCluster) error {
	role, err := h.role(ctx, cluster.Name)
	if err != nil {
		return err
	}
	if err := checkLost(cluster, role); err != nil {
		return err
	}
	claimed, claimErr := h.claim(cluster)
	if _, ok := registration.RecordedClaim(role); !ok && claimErr != nil {
		return claimErr
	}
	granted := registration.StateOf(cluster, role, claimed).Claim
	driver, err := registration.Pick(h.options.Drivers, granted.AuthType)
	if err != nil {
		return refusal.New(reasonUnknownDriver, "the cluster was accepted with an auth type that this hub does not run: %v", err)
	}
	if err := h.addFinalizer(ctx, cluster); err != nil {
		return err
	}
	if err := h.ensureNamespace(ctx, cluster.Name); err != nil {
		return err
	}
	if err := h.writeRole(ctx, cluster.Name, role, h.wantedRole(cluster.Name, role, granted)); err != nil {
		return err
	}
	if err := h.grant(ctx, cluster, role, driver, granted); err != nil {
		return err
	}
	if !stateOf(cluster).HasAccess() { // else checkLease repairs it
		if _, err := h.readLease(ctx, cluster, true); err != nil {
			return err
		}
	}
	if err := errors.Join(h.bind(ctx, cluster.Name), h.bindRelay(ctx, cluster.Name, role)); err != nil {
		return err
	}
	return h.reportAccepted(ctx, cluster, granted, claimed, claimErr)
}

// reportAccepted sets the condition of an accepted cluster.
func (h *Hub) reportAccepted(
	ctx context.Context, cluster *ocm.ManagedCluster, granted, claimed registration.Claim, claimErr error,
) error {
	condition := acceptance(granted, claimed, claimErr)
	eventType := corev1.EventTypeNormal
	if condition.Reason != ocm.ReasonHubAccepted {
		eventType = corev1.EventTypeWarning
	}
	return h.report(ctx, cluster, eventType, condition)
}

// acceptance returns the condition of an accepted cluster, which also says whether the claim has changed since.
func acceptance(granted, claimed registration.Claim, claimErr error) metav1.Condition {
	condition := metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted,
		Message: fmt.Sprintf("accepted as %s", granted)}
	if claimErr == nil && claimed == granted {
		return condition
	}
	now := claimed.String()
	if claimErr != nil {
		now = claimErr.Error()
	}
	condition.Reason = ocm.ReasonClaimChanged
	condition.Message = fmt.Sprintf("the cluster was accepted as %s and keeps that; its annotations now say: %s. To accept the change set hubAcceptsClient to false, then to true", granted, now)
	return condition
}

// stateOf returns the state of a cluster without its claim.
func stateOf(cluster *ocm.ManagedCluster) registration.State {
	return registration.StateOf(cluster, nil, registration.Claim{})
}

// checkLost refuses a cluster whose ClusterRole is gone: a record of what it claims now would hide what it was granted.
func checkLost(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) error {
	s := stateOf(cluster)
	switch {
	case wasGranted(role), role.ResourceVersion != "" && !isPending(role):
		return nil
	case s.Reason == reasonRecordLost:
		return refusal.New(s.Reason, "%s", s.Message)
	case s.Stage != registration.StageAccepted:
		return nil
	}
	return refusal.New(reasonRecordLost, "the ClusterRole %q with the record of the grant is gone. The hub said before: %.300q. Remove by hand what this gave outside "+
		"the hub's RBAC: for aws-irsa the access entry or aws-auth entry, and the IAM role ocm-hub-* with this cluster's tags; a client certificate works until it expires. "+
		"Then deny the cluster and accept it again", registration.ClusterRoleName(cluster.Name), s.Message)
}

// exclude revokes a cluster that was accepted and is not any more, or looks
// whether a new one is approved without a person.
func (h *Hub) exclude(ctx context.Context, cluster *ocm.ManagedCluster) error {
	role, err := h.role(ctx, cluster.Name)
	if err != nil {
		return err
	}
	if err := h.unbind(ctx, cluster.Name); err != nil {
		return err
	}
	if !wasGranted(role) && !wasAccepted(cluster) {
		return h.autoApprove(ctx, cluster, role)
	}
	// The condition precedes the loss of the record: otherwise a restart in
	// between may take the cluster for a new one, and approve it.
	// A condition that cannot be written keeps nothing granted: the finalizer is a sign too.
	err = h.report(ctx, cluster, corev1.EventTypeNormal, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: ocm.ReasonHubDenied, Message: "denied, by an administrator of the hub or by the cluster itself: its RBAC is removed, and then whatever its driver granted besides. " +
			"A client certificate stays valid until it expires: it has no rights now, and works again if the cluster is accepted again"})
	if claimed, claimErr := h.claim(cluster); claimErr == nil && !isForeign(role, cluster.Name) {
		err = errors.Join(err, h.publish(ctx, cluster, role, claimed))
	}
	return errors.Join(err, h.revoke(ctx, cluster, true))
}

// wasAccepted reports whether the cluster was accepted or denied before. Either
// sign suffices: where the admission policy is missing, an agent may write the
// conditions.
func wasAccepted(cluster *ocm.ManagedCluster) bool {
	s := stateOf(cluster)
	return controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) || s.Stage == registration.StageAccepted ||
		s.Reason == reasonRecordLost || s.Reason == ocm.ReasonHubDenied
}

// autoApprove accepts a new cluster if its driver approves. The hub creates the
// namespace after that, so one that exists is of an earlier cluster of the
// name, or of none.
func (h *Hub) autoApprove(ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) error {
	claimed, err := h.claim(cluster)
	if err != nil {
		return err
	}
	if err := h.publish(ctx, cluster, role, claimed); err != nil {
		return err
	}
	driver, err := registration.Pick(h.options.Drivers, claimed.AuthType)
	if err != nil {
		return err
	}
	var approved bool
	err = h.call(ctx, driver, cluster.Name, "approve", func(ctx context.Context) (err error) {
		approved, err = driver.Approves(ctx, cluster.DeepCopy(), claimed.Value)
		return err
	})
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, "ApprovalFailed", err.Error())
		return fmt.Errorf("approve cluster %q: %w", cluster.Name, err)
	}
	if !approved {
		return h.wait(ctx, cluster)
	}
	if err := h.checkUnused(ctx, cluster.Name, claimed); err != nil {
		return err
	}
	if err := h.patch(ctx, cluster, func() { cluster.Spec.HubAcceptsClient = true }); err != nil {
		return fmt.Errorf("accept cluster %q: %w", cluster.Name, err)
	}
	h.event(cluster, corev1.EventTypeNormal, "AutoApproved", fmt.Sprintf("the configuration of the hub approves %s", claimed))
	return h.admit(ctx, cluster)
}

// wait leaves a new cluster alone until an administrator accepts it. Only a refusal whose cause is gone is replaced.
func (h *Hub) wait(ctx context.Context, cluster *ocm.ManagedCluster) error {
	h.schedule(cluster.Name, registration.Claim{}, 0)
	if stateOf(cluster).Reason == "" {
		return nil
	}
	return h.report(ctx, cluster, corev1.EventTypeNormal, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: ocm.ReasonWaiting, Message: "the cluster waits for an administrator of the hub to accept it"})
}

// release revokes a cluster that is being deleted, then lets it go. It also
// revokes what a cluster left behind whose ManagedCluster is gone: the
// finalizer may have been removed. It returns when to look again at what keeps
// the cluster.
func (h *Hub) release(ctx context.Context, cluster *ocm.ManagedCluster) (again time.Duration, err error) {
	exists := cluster.ResourceVersion != ""
	if exists {
		h.setState(cluster.Name, stateOf(cluster).Stage)
	}
	if registration.CheckClusterName(cluster.Name) == nil { // else it was never granted anything, and its name may be that of something else
		if err := h.unbind(ctx, cluster.Name); err != nil {
			return 0, err
		}
		if err := h.revoke(ctx, cluster, false); err != nil {
			return 0, err
		}
	}
	if !exists {
		h.forget(cluster.Name)
		return 0, nil
	}
	done := []string{ocm.Finalizer}
	if controllerutil.ContainsFinalizer(cluster, resourceFinalizer) {
		if again, err = h.checkRemains(ctx, cluster); err != nil {
			return 0, err
		}
		if again == 0 {
			done = append(done, resourceFinalizer)
		}
	}
	left := slices.DeleteFunc(slices.Clone(cluster.Finalizers), func(f string) bool { return slices.Contains(done, f) })
	if len(left) < len(cluster.Finalizers) {
		err = h.patch(ctx, cluster, func() { cluster.Finalizers = left })
	}
	return again, client.IgnoreNotFound(err)
}

// grant calls the driver when that is due, unless the role shows that the driver has nothing to do.
func (h *Hub) grant(
	ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole, driver registration.HubDriver,
	granted registration.Claim,
) error {
	if m := h.memory(cluster.Name); m.grant == granted && h.options.Now().Before(m.nextAt) {
		return nil
	}
	if isGranted(driver, cluster.Name, role) {
		h.schedule(cluster.Name, granted, 0)
		return nil
	}
	var next time.Duration
	err := h.call(ctx, driver, cluster.Name, "grant", func(ctx context.Context) (err error) {
		next, err = driver.Grant(ctx, cluster.Name, granted.Value)
		return err
	})
	if err == nil {
		h.schedule(cluster.Name, granted, next)
		return nil
	}
	err = fmt.Errorf("grant cluster %q: %w", cluster.Name, err)
	h.event(cluster, corev1.EventTypeWarning, ocm.ReasonGrantFailed, err.Error())
	if stateOf(cluster).HasAccess() {
		return err // it keeps what it has
	}
	setErr := h.setCondition(ctx, cluster, metav1.Condition{Type: ocm.ConditionHubAccepted,
		Status: metav1.ConditionFalse, Reason: ocm.ReasonGrantFailed, Message: err.Error()})
	if next > 0 && setErr == nil {
		h.schedule(cluster.Name, registration.Claim{}, next)
		return errPostponed
	}
	return errors.Join(err, setErr)
}

// isGranted reports whether the role shows that the driver has granted the cluster its access.
func isGranted(driver registration.HubDriver, cluster string, role *rbacv1.ClusterRole) bool {
	d, ok := driver.(registration.HubRecorded)
	return ok && d.Granted(cluster, role)
}

// revoke has the recorded driver take away what it granted, then deletes the record. Denial keeps the agent in it.
func (h *Hub) revoke(ctx context.Context, cluster *ocm.ManagedCluster, denied bool) error {
	name := cluster.Name
	m := h.memory(name)
	m.grant, m.nextAt = registration.Claim{}, time.Time{}
	role, err := h.role(ctx, name)
	if err != nil {
		return err
	}
	granted, ok := registration.RecordedClaim(role)
	if !ok {
		return h.deleteRecord(ctx, role, denied)
	}
	driver, err := registration.Pick(h.options.Drivers, granted.AuthType)
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, reasonUnknownDriver, err.Error())
		return reconcile.TerminalError(fmt.Errorf("revoke cluster %q, which was accepted as %s: %w", name, granted, err))
	}
	err = h.call(ctx, driver, name, "revoke", func(ctx context.Context) error { return driver.Revoke(ctx, name, granted.Value) })
	if err != nil {
		h.event(cluster, corev1.EventTypeWarning, "RevokeFailed", err.Error())
		return fmt.Errorf("revoke cluster %q: %w", name, err)
	}
	return h.deleteRecord(ctx, role, denied)
}

// claim returns what a cluster claimed that it is. Errors are refusals.
func (h *Hub) claim(cluster *ocm.ManagedCluster) (none registration.Claim, err error) {
	var claimed []registration.Claim
	for _, d := range h.options.Drivers {
		claim, ok, err := d.Claim(cluster.DeepCopy())
		if err != nil {
			return none, refusal.New(reasonInvalidClaim, "auth type %q: %v", d.Name(), err)
		}
		if ok {
			claimed = append(claimed, registration.Claim{AuthType: d.Name(), Value: claim})
		}
	}
	switch {
	case len(claimed) > 1:
		return none, refusal.New(reasonConflictingDrivers,
			"the cluster has the annotations of two auth types, %q and %q: remove those of one", claimed[0].AuthType, claimed[1].AuthType)
	case len(claimed) == 1:
		return claimed[0], nil
	case h.options.Default == "":
		return none, refusal.New(reasonUnknownDriver, "the cluster has the annotations of no auth type, "+
			"and this hub has no default: join again with one of its auth types")
	default:
		return registration.Claim{AuthType: h.options.Default}, nil
	}
}

func (h *Hub) addFinalizer(ctx context.Context, cluster *ocm.ManagedCluster) error {
	if controllerutil.ContainsFinalizer(cluster, ocm.Finalizer) {
		return nil
	}
	if err := h.patch(ctx, cluster, func() { controllerutil.AddFinalizer(cluster, ocm.Finalizer) }); err != nil {
		return fmt.Errorf("add the finalizer to ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}

// patch keeps the fields that our types do not know, and fails if the object has changed since it was read.
func (h *Hub) patch(ctx context.Context, cluster *ocm.ManagedCluster, change func()) error {
	base := cluster.DeepCopy()
	change()
	return h.options.Client.Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}

func (h *Hub) setCondition(ctx context.Context, cluster *ocm.ManagedCluster, c metav1.Condition) error {
	c.ObservedGeneration = cluster.Generation
	return optimistic.PatchStatus(ctx, h.options.Client, cluster, func() bool {
		return ocm.SetCondition(&cluster.Status.Conditions, c)
	})
}

// report sets a condition, and records an Event if it claimed something new.
func (h *Hub) report(ctx context.Context, cluster *ocm.ManagedCluster, eventType string, c metav1.Condition) error {
	known := shows(cluster, c)
	if err := h.setCondition(ctx, cluster, c); err != nil {
		return fmt.Errorf("set condition %s of ManagedCluster %q: %w", c.Type, cluster.Name, err)
	}
	if !known {
		h.event(cluster, eventType, c.Reason, c.Message)
	}
	return nil
}

// shows reports whether a cluster has the condition, perhaps about an earlier generation.
func shows(cluster *ocm.ManagedCluster, c metav1.Condition) bool {
	had := meta.FindStatusCondition(cluster.Status.Conditions, c.Type)
	return had != nil && had.Status == c.Status && had.Reason == c.Reason && had.Message == c.Message
}

func (h *Hub) event(cluster *ocm.ManagedCluster, eventType, reason, message string) {
	if cluster.ResourceVersion != "" {
		kubeevent.Record(h.options.Recorder, cluster, eventType, reason, "Register", message)
	}
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

// schedule remembers what the driver verified, if anything, and when to ask it
// again. What the name hashes to spreads the clusters over a fifth of the time.
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

// earliest returns the shorter of two waits. Zero is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
