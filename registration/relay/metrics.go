package relay

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
)

// measure registers the metrics
//
//	registration_relay_requests_total{credential,code}           requests, by certificate or token and by the status of the answer
//	registration_relay_requests_in_flight                        requests that are not answered yet, watches included
//	registration_build_info{component,version,commit,go_version} the version of the relay
func measure(r prometheus.Registerer, next http.Handler) (http.Handler, error) {
	if r == nil {
		return next, nil
	}
	requests, err := register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "registration_relay_requests_total",
		Help: "Requests to the relay, by credential (certificate or token) and by the status of the answer."},
		[]string{"credential", "code"}))
	running, runningErr := register(r,
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "registration_relay_requests_in_flight",
			Help: "Requests to the relay that are not answered yet, watches included."}))
	if err := errors.Join(err, runningErr, metric.Register(buildinfo.OfModule(), r, "registration", "relay")); err != nil {
		return nil, err
	}
	counted := func(credential string) http.Handler {
		return promhttp.InstrumentHandlerCounter(requests.MustCurryWith(prometheus.Labels{"credential": credential}), next)
	}
	certificate, token := counted("certificate"), counted("token")
	return promhttp.InstrumentHandlerInFlight(running, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
			certificate.ServeHTTP(w, req)
			return
		}
		token.ServeHTTP(w, req)
	})), nil
}

// register returns the collector of an earlier relay, if one has registered it.
func register[C prometheus.Collector](r prometheus.Registerer, collector C) (C, error) {
	err := r.Register(collector)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if c, ok := before.ExistingCollector.(C); ok {
			return c, nil
		}
	}
	return collector, err
}
