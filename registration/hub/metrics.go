package hub

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
	"github.com/workloadid/workloadid/internal/tracing"
	"github.com/workloadid/workloadid/registration"
)

// States of clusters, as the metric shows them.
const (
	statePending  = "pending"
	stateAccepted = "accepted"
	stateDenied   = "denied"
	stateRefused  = "refused"
	stateDeleting = "deleting"
)

// register shows the metrics
//
//	registration_hub_clusters{state}                                  clusters that are pending, accepted, denied, refused or deleting
//	registration_build_info{component,version,commit,go_version}      the version of the hub
//	registration_hub_driver_duration_seconds{operation,driver,result} calls of drivers (approve, grant, revoke), and the time they took
func (h *Hub) register(r prometheus.Registerer) error {
	h.states = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "registration_hub_clusters", Help: "Clusters of this hub, by state."}, []string{"state"})
	h.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "registration_hub_driver_duration_seconds",
		Help: "Calls of registration drivers, by operation, driver and result.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 8)},
		[]string{"operation", "driver", "result"})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(h.states), r.Register(h.calls), metric.Register(buildinfo.OfModule(), r, "registration", "hub"))
}

func (h *Hub) setState(cluster, state string) {
	m := h.memory(cluster)
	if m.state == state {
		return
	}
	if m.state != "" {
		h.states.WithLabelValues(m.state).Dec()
	}
	if state != "" {
		h.states.WithLabelValues(state).Inc()
	}
	m.state = state
}

// forget drops the memory of a cluster that is gone.
func (h *Hub) forget(cluster string) {
	h.setState(cluster, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.memories, cluster)
}

// call runs one operation of a driver for a cluster, with a deadline.
func (h *Hub) call(ctx context.Context, driver registration.HubDriver, cluster, operation string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	ctx, span := tracing.Start(ctx, h.options.TracerProvider, "registration/hub", operation, tracing.Cluster.String(cluster), tracing.Driver.String(driver.Name()))
	begin, result := time.Now(), "success"
	err := do(ctx)
	if err != nil {
		result = "failure"
	}
	tracing.End(span, err, result)
	h.calls.WithLabelValues(operation, driver.Name(), result).Observe(time.Since(begin).Seconds())
	return err
}
