package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/cache"
)

// Values of the labels event_type and status.
const (
	eventHit      = "cache_hit"
	eventMiss     = "cache_miss"
	statusSuccess = "success"
	statusFailure = "failure"
)

// Metrics is a [cache.Observer]. Several caches may share it, and their gauges
// add up. It is safe for concurrent use. The methods of a nil pointer do
// nothing, so that a controller whose cache is off needs no other code.
type Metrics struct {
	events    *prometheus.CounterVec
	success   prometheus.Counter
	failure   prometheus.Counter
	evictions prometheus.Counter
	mints     *prometheus.HistogramVec
	refreshes *prometheus.CounterVec

	registerer prometheus.Registerer
	registered []prometheus.Collector

	mu    sync.RWMutex
	stats []func() cache.Stats

	// hits keeps the counters of the hot path, so that a lookup allocates
	// nothing.
	hits sync.Map // of cache.InvolvedObject to prometheus.Counter
	// keeping guards changes of hits, so that hits never keeps a counter
	// without a series.
	keeping sync.Mutex
}

var _ cache.Observer = (*Metrics)(nil)

var validPrefix = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*_$|^$`)

// Option configures [New].
type Option func(*options)

type options struct{ namespaceLabel string }

// WithNamespaceLabel renames the label "namespace" of cache_events_total, the
// namespace of the involved object. Prometheus renames a label "namespace" to
// "exported_namespace" where the scraped target has one itself, so dashboards
// may expect that name.
//
// A registry keeps the label names of a metric for its whole life, also after
// Unregister. Another name therefore needs another registry or another prefix.
func WithNamespaceLabel(name string) Option {
	return func(o *options) { o.namespaceLabel = name }
}

var validLabel = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// eventLabels returns the labels of cache_events_total, in the order in which
// values are passed.
func (o *options) eventLabels() ([]string, error) {
	others := []string{"event_type", "kind", "name"}
	n := o.namespaceLabel
	if !validLabel.MatchString(n) || strings.HasPrefix(n, "__") || n == "operation" || slices.Contains(others, n) {
		return nil,
			fmt.Errorf(
				"the label for the namespace is letters, digits and underscores, and no other label of cache_events_total, not %q",
				n)
	}
	return append(others, n, "operation"), nil
}

// New registers the metrics. The prefix is empty or ends in "_"; different
// prefixes can share a registry. If New returns an error, nothing stays
// registered.
func New(prefix string, registerer prometheus.Registerer, opts ...Option) (*Metrics, error) {
	if !validPrefix.MatchString(prefix) {
		return nil,
			fmt.Errorf("the prefix of metrics is letters, digits and underscores, with an underscore at the end, not %q", prefix)
	}
	o := options{namespaceLabel: "namespace"}
	for _, opt := range opts {
		opt(&o)
	}
	eventLabels, err := o.eventLabels()
	if err != nil {
		return nil, err
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	requests := counter("cache_requests_total", "Requests to the token cache, by whether they were served.", "status")
	m := &Metrics{
		registerer: registerer,

		events:  counter("cache_events_total", "Hits and misses of the token cache, by involved object.", eventLabels...),
		success: requests.WithLabelValues(statusSuccess),
		failure: requests.WithLabelValues(statusFailure),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "cache_evictions_total",
			Help: "Tokens that had to make room for others."}),
		refreshes: counter("cache_refreshes_total", "Exchanges that renewed a token ahead of time, by result.", "result"),
		mints: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "cache_mint_duration_seconds",
			Help: "Time that exchanges took, by provider and result.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 13)},
			[]string{"provider", "result"}),
	}
	for _, result := range cache.Results() {
		m.refreshes.WithLabelValues(result) // exported as 0, so that the first one is an increase
	}
	if err := m.register(m.events, requests, m.evictions, m.refreshes, m.mints, newGauges(m, prefix)); err != nil {
		return nil, fmt.Errorf("register the metrics with prefix %q: %w", prefix, err)
	}
	return m, nil
}

func (m *Metrics) register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := m.registerer.Register(c); err != nil {
			m.Unregister()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// Unregister removes the metrics from the registry, so that others of the same
// prefix and namespace label can be registered. A second call does nothing.
// Caches may continue to use m.
func (m *Metrics) Unregister() {
	if m == nil {
		return
	}
	m.mu.Lock()
	registered := m.registered
	m.registered = nil // the registry knows collectors by their metrics, so it would remove a successor's
	m.mu.Unlock()
	for _, c := range registered {
		m.registerer.Unregister(c)
	}
}

// Attach implements [cache.Observer].
func (m *Metrics) Attach(stats func() cache.Stats) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = append(m.stats, stats)
}

// Request implements [cache.Observer].
func (m *Metrics) Request(object cache.InvolvedObject, hit, ok bool) {
	if m == nil {
		return
	}
	if ok {
		m.success.Inc()
	} else {
		m.failure.Inc()
	}
	if object == (cache.InvolvedObject{}) {
		return // a request without an object
	}
	if hit {
		m.hit(object).Inc()
	} else {
		m.event(eventMiss, object).Inc()
	}
}

func (m *Metrics) hit(object cache.InvolvedObject) prometheus.Counter {
	if c, ok := m.hits.Load(object); ok {
		if counter, ok := c.(prometheus.Counter); ok {
			return counter
		}
	}
	m.keeping.Lock()
	defer m.keeping.Unlock()
	c := m.event(eventHit, object)
	m.hits.Store(object, c)
	return c
}

func (m *Metrics) event(kind string, o cache.InvolvedObject) prometheus.Counter {
	return m.events.WithLabelValues(kind, o.Kind, o.Name, o.Namespace, o.Operation)
}

// Mint implements [cache.Observer].
func (m *Metrics) Mint(provider, result string, took time.Duration) {
	if m == nil {
		return
	}
	for _, first := range []string{"success", "panic"} {
		m.mints.WithLabelValues(provider, first) // exported as 0, so that the first one is an increase
	}
	m.mints.WithLabelValues(provider, result).Observe(took.Seconds())
}

// Refresh implements [cache.Observer].
func (m *Metrics) Refresh(result string) {
	if m != nil {
		m.refreshes.WithLabelValues(result).Inc()
	}
}

// Evicted implements [cache.Observer].
func (m *Metrics) Evicted() {
	if m != nil {
		m.evictions.Inc()
	}
}

// DeleteEventsForObject removes the series of an object. A controller calls it
// when the object is deleted.
func (m *Metrics) DeleteEventsForObject(kind, name, namespace, operation string) {
	if m == nil {
		return
	}
	o := cache.InvolvedObject{Kind: kind, Name: name, Namespace: namespace, Operation: operation}
	m.keeping.Lock()
	defer m.keeping.Unlock()
	m.hits.Delete(o)
	for _, event := range []string{eventHit, eventMiss} {
		m.events.DeleteLabelValues(event, kind, name, namespace, operation)
	}
}
