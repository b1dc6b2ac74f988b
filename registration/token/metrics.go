package token

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are
//
//	registration_addon_token_requests_total{addon,result}         requests that issued a first token, refreshed one, or failed
//	registration_addon_token_expiry_timestamp_seconds{addon}      when the stored token expires, in seconds since 1970
type metrics struct {
	requests *prometheus.CounterVec
	expires  *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	const prefix = "registration_addon_token_"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "requests_total",
			Help: "Requests for tokens of add-ons, by result: issued, refreshed or failed."}, []string{"addon", "result"}),
		expires: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "expiry_timestamp_seconds",
			Help: "When the stored token of an add-on expires, in seconds since 1970."}, []string{"addon"}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.requests), r.Register(m.expires))
}

func (m *metrics) requested(addOn string, had, got *token) {
	result := "issued"
	switch {
	case got == nil:
		result = "failed"
	case had != nil:
		result = "refreshed"
	}
	m.requests.WithLabelValues(addOn, result).Inc()
	if got != nil {
		m.expiry(addOn, got)
	}
}

func (m *metrics) expiry(addOn string, t *token) {
	m.expires.WithLabelValues(addOn).Set(float64(t.expiry.Unix()))
}

func (m *metrics) forget(addOn string) {
	m.expires.DeleteLabelValues(addOn)
	m.requests.DeletePartialMatch(prometheus.Labels{"addon": addOn})
}
