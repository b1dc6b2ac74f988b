package issuer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// firstDelay is the time to the next look after a failure. It doubles up to the interval.
const firstDelay = 5 * time.Second

// Start publishes every minute until ctx ends. It implements manager.Runnable. The error is that of wrong fields; others are
// logged, counted and recorded as Events, and it tries again.
func (p *Publisher) Start(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	for delay := firstDelay; ; {
		wait := interval
		if _, err := p.Publish(ctx); err != nil {
			wait, delay = min(delay, interval), 2*min(delay, interval)
		} else {
			delay = firstDelay
		}
		timer := time.NewTimer(wait - rand.N(wait/10+1)) //nolint:gosec // spreads load, keeps no secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *Publisher) NeedLeaderElection() bool { return false }

const (
	reasonPublished = "IssuerPublished"
	reasonFailed    = "IssuerNotPublished"
	maxNote         = 1024 // of an Event
)

func (p *Publisher) report(result Result, err error) {
	p.metrics.observe(result, err)
	if err != nil {
		p.Logger.Error(err, "the issuer is not published")
		p.event(corev1.EventTypeWarning, reasonFailed, err.Error())
		return
	}
	if len(result.Written) == 0 {
		return
	}
	p.Logger.Info("published the issuer", "issuer", p.Issuer, "written", result.Written, "added", result.Added, "removed", result.Removed, "leaving", result.Leaving)
	if len(result.Added)+len(result.Removed) > 0 {
		p.event(corev1.EventTypeNormal, reasonPublished, fmt.Sprintf("keys added: %q, removed: %q", result.Added, result.Removed))
	}
}

func (p *Publisher) event(kind, reason, note string) {
	if p.Events == nil || p.Object == nil {
		return
	}
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	p.Events.Eventf(p.Object, nil, kind, reason, "Publish", "%s", note)
}

// metrics are those of one Publisher.
type metrics struct {
	success, keys prometheus.Gauge
	expiry        *prometheus.GaugeVec
	errors        prometheus.Counter
}

func newMetrics(to prometheus.Registerer, issuer string) (*metrics, error) {
	m := &metrics{
		success: prometheus.NewGauge(prometheus.GaugeOpts{Name: "issuer_last_success_timestamp_seconds",
			Help: "Time of the last look after which the published documents were right."}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{Name: "issuer_published_keys", Help: "Published keys."}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "issuer_leaving_key_expiry_timestamp_seconds",
			Help: "Time at which a key is unpublished, of keys that the API server no longer shows."}, []string{"kid"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "issuer_errors_total", Help: "Looks and publications that failed."}),
	}
	if to == nil {
		return m, nil
	}
	to = prometheus.WrapRegistererWith(prometheus.Labels{"issuer": issuer}, to)
	for _, c := range []prometheus.Collector{m.success, m.keys, m.expiry, m.errors} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the issuer %q: %w; give each Publisher a label with prometheus.WrapRegistererWith", issuer, err)
		}
	}
	return m, nil
}

func (m *metrics) observe(result Result, err error) {
	if err != nil {
		m.errors.Inc()
		return
	}
	m.success.SetToCurrentTime()
	m.keys.Set(float64(result.keys))
	m.expiry.Reset()
	for id, at := range result.Leaving {
		m.expiry.WithLabelValues(id).Set(float64(at.Unix()))
	}
}
