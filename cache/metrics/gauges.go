package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/cache"
)

// gauges reads the caches at each scrape.
type gauges struct {
	metrics *Metrics
	plain   []gauge
	failing *prometheus.Desc
}

type gauge struct {
	desc  *prometheus.Desc
	value func(cache.Stats) int
}

func newGauges(m *Metrics, prefix string) *gauges {
	g := &gauges{metrics: m, failing: prometheus.NewDesc(prefix+"cache_failing_keys",
		"Tokens whose last exchange failed, by provider and result.", []string{"provider", "result"}, nil)}
	add := func(name, help string, value func(cache.Stats) int) {
		g.plain = append(g.plain, gauge{prometheus.NewDesc(prefix+name, help, nil, nil), value})
	}
	add("cached_items", "Tokens in the cache.", func(s cache.Stats) int { return s.Items })
	add("cache_exchanges", "Exchanges that were asked for and have not ended.", func(s cache.Stats) int {
		return s.Exchanges
	})
	add("cache_running_exchanges", "Exchanges that are running.", func(s cache.Stats) int { return s.Running })
	add("cache_slot_queued_exchanges", "Exchanges that wait for a slot of their tenant.", func(s cache.Stats) int {
		return s.QueuedForSlot
	})
	add("cache_rate_queued_exchanges", "Exchanges that wait for the start rate.", func(s cache.Stats) int {
		return s.QueuedForRate
	})
	add("cache_waiting_callers", "Callers that wait for an exchange.", func(s cache.Stats) int { return s.Waiting })
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range g.plain {
		to <- one.desc
	}
	to <- g.failing
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	values, failing := make([]int, len(g.plain)), map[cache.Failing]int{}
	for _, s := range g.metrics.snapshot() {
		for i, one := range g.plain {
			values[i] += one.value(s)
		}
		for of, n := range s.Failing {
			failing[of] += n
		}
	}
	for i, one := range g.plain {
		to <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, float64(values[i]))
	}
	for of, n := range failing {
		to <- prometheus.MustNewConstMetric(g.failing, prometheus.GaugeValue, float64(n), of.Provider, of.Result)
	}
}

func (m *Metrics) snapshot() []cache.Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var all []cache.Stats
	for _, stats := range m.stats {
		all = append(all, stats())
	}
	return all
}
