package agent

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Reasons of the conditions that the agent sets.
const (
	reasonJoined         = "ManagedClusterJoined"
	reasonAvailable      = "ManagedClusterAvailable"
	reasonAPIUnavailable = "ManagedClusterKubeAPIServerUnavailable"
)

// heartbeat reports that the cluster has joined and is alive, and returns the
// time at which the Lease is due again. If the hub has not created the
// cluster's RBAC or Lease yet, or has removed them, the cluster has not joined.
func (a *Agent) heartbeat(ctx context.Context, conn *agentConn) (due time.Time, joined bool, err error) {
	// The Lease comes first, because a condition without it would contradict
	// the hub's.
	if due, err = a.renewLease(ctx, conn); err == nil {
		err = a.report(ctx, conn)
	}
	if err != nil {
		return time.Time{}, false, ignoreRefused(err)
	}
	a.events.forget("")
	return due, true, nil
}

// ignoreRefused drops the errors of a hub that has no namespace, Lease or RBAC
// for the cluster.
func ignoreRefused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (a *Agent) report(ctx context.Context, conn *agentConn) error {
	joined := metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue, Reason: reasonJoined,
		Message: "the cluster has joined the hub"}
	available := metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionTrue, Reason: reasonAvailable,
		Message: "the cluster is available"}
	var version string
	if a.opts.Version != nil {
		var err error
		bounded, cancel := context.WithTimeout(ctx, hubTimeout)
		defer cancel()
		if version, err = a.opts.Version(bounded); err != nil {
			available.Status, available.Reason = metav1.ConditionFalse, reasonAPIUnavailable
			available.Message = "the cluster's API server does not answer the agent: " + kubeerror.Message(err)
		}
	}
	now, generation, s := metav1.NewTime(a.opts.Now()), conn.cluster.Generation, &conn.cluster.Status
	conditions := []metav1.Condition{joined, available}
	missing, err := a.reportCluster(ctx, conn)
	if err != nil {
		return err
	}
	if missing.Reason != "" {
		conditions = append(conditions, missing)
	}
	return optimistic.PatchStatus(ctx, conn, conn.cluster, func() (changed bool) {
		if missing.Reason == "" {
			changed = meta.RemoveStatusCondition(&s.Conditions, ocm.ConditionClusterStatus)
		}
		for _, c := range conditions {
			c.ObservedGeneration, c.LastTransitionTime = generation, now
			changed = ocm.SetCondition(&s.Conditions, c) || changed
		}
		if version != "" && version != s.Version.Kubernetes {
			s.Version.Kubernetes, changed = version, true
		}
		return changed
	})
}

// renewLease writes the Lease, which the hub has created, if its duration has
// passed or after a failure. It returns the time of the next check.
func (a *Agent) renewLease(ctx context.Context, conn *agentConn) (time.Time, error) {
	const defaultSeconds = 60
	seconds := conn.cluster.Spec.LeaseDurationSeconds
	if seconds <= 0 {
		seconds = defaultSeconds
	}
	duration, now := time.Duration(seconds)*time.Second, a.opts.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Cluster, Name: ocm.LeaseName}}
	if err := conn.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return time.Time{}, fmt.Errorf("read the cluster's Lease on the hub: %w", err)
	}
	if !a.overdue && lease.Spec.RenewTime != nil && lease.Spec.LeaseDurationSeconds != nil &&
		*lease.Spec.LeaseDurationSeconds == seconds {
		// A renewal time in the future comes from a wrong clock.
		if due := lease.Spec.RenewTime.Add(duration); now.Before(due) && !lease.Spec.RenewTime.After(now) {
			return look(due, now), nil
		}
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &a.opts.Cluster, &seconds
	lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
	if err := conn.Update(ctx, lease); err != nil {
		return time.Time{}, fmt.Errorf("renew the cluster's Lease on the hub: %w", err)
	}
	a.overdue = false
	return look(now.Add(duration), now), nil
}

// look returns the time at which to read the ManagedCluster again. It may have
// a shorter lease duration by then.
func look(due, now time.Time) time.Time {
	if latest := now.Add(time.Minute); due.After(latest) {
		return latest
	}
	return due
}

// eventKey identifies the subject of an Event. The add-on is "" for the
// cluster's own registration.
type eventKey struct{ addOn, reason string }

// repeatWarning is the interval at which a lasting failure is recorded again.
// API servers forget an Event after an hour.
const repeatWarning = 30 * time.Minute

// lastEvent is the newest Event of a key.
type lastEvent struct {
	message string
	at      time.Time
}

// eventLog records Events of the agent's Secret. It records no Event twice in a
// row, except for lasting failures. It is safe for concurrent use.
type eventLog struct {
	recorder events.EventRecorder // nil: none
	secret   *corev1.Secret
	now      func() time.Time
	mu       sync.Mutex
	last     map[eventKey]lastEvent
}

func (l *eventLog) add(key eventKey, kind, message string) {
	if message = redact.Line(message); l.recorder == nil || !l.isNew(key, kind, message) {
		return
	}
	kubeevent.Record(l.recorder, l.secret, kind, key.reason, "Register", message)
}

func (l *eventLog) isNew(key eventKey, kind, message string) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last[key]
	if last.message == message && (kind != corev1.EventTypeWarning || now.Sub(last.at) < repeatWarning) {
		return false
	}
	l.last[key] = lastEvent{message, now}
	return true
}

// forget lets the next Event of an add-on repeat an earlier one.
func (l *eventLog) forget(addOn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.last, func(key eventKey, _ lastEvent) bool { return key.addOn == addOn })
}

// agentMetrics counts reconciles.
type agentMetrics struct {
	reconciles  *prometheus.CounterVec
	credentials prometheus.Counter
	joined      prometheus.Gauge
}

func newAgentMetrics(cluster string, registerer prometheus.Registerer) (*agentMetrics, error) {
	const prefix = "registration_agent_"
	labels := prometheus.Labels{"cluster": cluster}
	m := &agentMetrics{
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "reconciles_total", ConstLabels: labels,
			Help: "Reconciles of the agent, by result: joined, waiting or error."}, []string{"result"}),
		credentials: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "credentials_total", ConstLabels: labels,
			Help: "Credentials of its own that the agent has stored."}),
		joined: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "joined", ConstLabels: labels,
			Help: "1 if the last reconcile reached the hub with the agent's own credential and reported there."}),
	}
	for _, result := range []string{"joined", "waiting", "error"} {
		m.reconciles.WithLabelValues(result) // shown as 0, so that the first one is an increase
	}
	if registerer == nil {
		return m, nil
	}
	if err := metric.Register(buildinfo.OfModule(), registerer, "registration", "agent"); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{m.reconciles, m.credentials, m.joined} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the agent of cluster %q: %w", cluster, err)
		}
	}
	return m, nil
}

func (m *agentMetrics) observe(joined bool, err error) {
	m.joined.Set(0)
	if joined {
		m.joined.Set(1)
	}
	switch {
	case err != nil:
		m.reconciles.WithLabelValues("error").Inc()
	case joined:
		m.reconciles.WithLabelValues("joined").Inc()
	default:
		m.reconciles.WithLabelValues("waiting").Inc()
	}
}
