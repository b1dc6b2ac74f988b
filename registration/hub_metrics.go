package registration

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
//	registration_hub_driver_duration_seconds{operation,driver,result} calls of drivers (approve, grant, revoke), and the time they took
func (h *Hub) register(r prometheus.Registerer) error {
	h.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "registration_hub_driver_duration_seconds",
		Help: "Calls of registration drivers, by operation, driver and result.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 8)},
		[]string{"operation", "driver", "result"})
	if r == nil {
		return nil
	}
	if err := r.Register(h.calls); err != nil {
		return err
	}
	return r.Register(clusterGauge{h, prometheus.NewDesc("registration_hub_clusters", "Clusters of this hub, by state.", []string{"state"}, nil)})
}

// clusterGauge counts the clusters when it is scraped.
type clusterGauge struct {
	hub  *Hub
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g clusterGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect implements prometheus.Collector.
func (g clusterGauge) Collect(to chan<- prometheus.Metric) {
	counts := map[string]int{statePending: 0, stateAccepted: 0, stateDenied: 0, stateRefused: 0, stateDeleting: 0}
	g.hub.mu.Lock()
	for _, m := range g.hub.memories {
		if m.state != "" {
			counts[m.state]++
		}
	}
	g.hub.mu.Unlock()
	for state, n := range counts {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), state)
	}
}

func (h *Hub) setState(cluster, state string) {
	m := h.memory(cluster)
	h.mu.Lock()
	defer h.mu.Unlock()
	m.state = state
}

// call runs one operation of a driver, with a deadline.
func (h *Hub) call(ctx context.Context, driver HubDriver, operation string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	begin, result := time.Now(), "success"
	err := do(ctx)
	if err != nil {
		result = "failure"
	}
	h.calls.WithLabelValues(operation, driver.Name(), result).Observe(time.Since(begin).Seconds())
	return err
}
