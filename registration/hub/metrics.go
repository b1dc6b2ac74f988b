package hub

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
	"github.com/workloadid/workloadid/internal/tracing"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
)

// register registers the metrics
//
//	registration_hub_clusters{state}                                  clusters that are pending, accepted, denied, refused or deleting
//	registration_hub_joined_clusters{available}                       clusters that have joined, by whether they are available
//	registration_build_info{component,version,commit,go_version}      the version of the hub
//	registration_hub_driver_duration_seconds{operation,driver,result} calls of drivers (approve, grant, revoke), and the time they took
func (h *Hub) register(r prometheus.Registerer) error {
	h.states = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "registration_hub_clusters",
		Help: "Clusters of this hub, by state."}, []string{"state"})
	h.joined = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "registration_hub_joined_clusters",
		Help: "Clusters that have joined this hub, by ManagedClusterConditionAvailable: True, False or Unknown."},
		[]string{"available"})
	for _, available := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse,
		metav1.ConditionUnknown} {
		h.joined.WithLabelValues(string(available)) // shown as 0
	}
	h.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "registration_hub_driver_duration_seconds",
		Help:    "Calls of registration drivers, by operation, driver and result.",
		Buckets: prometheus.ExponentialBuckets(0.005, 4, 8)},
		[]string{"operation", "driver", "result"})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(h.states), r.Register(h.joined), r.Register(h.calls),
		metric.Register(buildinfo.OfModule(), r, "registration", "hub"))
}

func (h *Hub) setState(cluster string, stage registration.Stage) {
	count(h.states, &h.memory(cluster).state, string(stage))
}

// setAvailable counts a cluster that has joined. Its agent writes the
// condition, so another status counts as Unknown.
func (h *Hub) setAvailable(cluster *ocm.ManagedCluster) {
	available := ""
	if s := stateOf(cluster); s.Joined == metav1.ConditionTrue {
		status := s.Available
		if status != metav1.ConditionTrue && status != metav1.ConditionFalse {
			status = metav1.ConditionUnknown
		}
		available = string(status)
	}
	count(h.joined, &h.memory(cluster.Name).available, available)
}

// count moves a cluster from one value of a gauge's label to another. It
// ignores an empty value.
func count(gauge *prometheus.GaugeVec, was *string, now string) {
	if *was == now {
		return
	}
	if *was != "" {
		gauge.WithLabelValues(*was).Dec()
	}
	if now != "" {
		gauge.WithLabelValues(now).Inc()
	}
	*was = now
}

// forget drops the memory of a deleted cluster.
func (h *Hub) forget(cluster string) {
	h.setState(cluster, "")
	count(h.joined, &h.memory(cluster).available, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.memories, cluster)
	delete(h.settled, cluster)
}

// call runs one operation of a driver for a cluster, with a deadline. If the
// driver refuses, the cluster is not refused and keeps its access.
func (h *Hub) call(ctx context.Context, driver registration.HubDriver, cluster, operation string,
	do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, span := tracing.Start(ctx, h.options.TracerProvider, "registration/hub", operation,
		tracing.Cluster.String(cluster), tracing.Driver.String(driver.Name()))
	begin, result := time.Now(), "success"
	err := do(ctx)
	if err != nil {
		result = "failure"
	}
	if no := (*refusal.Error)(nil); errors.As(err, &no) {
		err = errors.New(err.Error())
	}
	tracing.End(span, err, result)
	h.calls.WithLabelValues(operation, driver.Name(), result).Observe(time.Since(begin).Seconds())
	return err
}
