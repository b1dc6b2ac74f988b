package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

const eventAction = "IssueCredentials"

// reported records the reason why an attested pod gets no credentials. It
// records an Event if an edit is needed, else a line in the log.
func (s *Server) reported(p pod, b *v1alpha1.IAMBinding, err error) error {
	refused := refusalOf(err)
	if refused.status != http.StatusForbidden {
		s.options.Logger.Error(err, "no credentials for an attested pod", "namespace", p.namespace, "pod", p.name,
			"serviceAccount", p.serviceAccount)
		return err
	}
	s.event(podReference(p), refused.code, err.Error())
	if b != nil {
		s.event(bindingReference(b), refused.code, err.Error())
	}
	return err
}

func podReference(p pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: p.uid}
}

func bindingReference(b *v1alpha1.IAMBinding) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IAMBinding", Namespace: b.Namespace,
		Name: b.Name, UID: b.UID}
}

// event leaves out the related object. Kubernetes counts a repeated Event
// instead of writing it, so 200 pods of one binding make one Event.
func (s *Server) event(regarding runtime.Object, reason, message string) {
	kubeevent.Record(s.options.Events, regarding, corev1.EventTypeWarning, reason, eventAction, message)
}

// Results of requests in metrics, in addition to our own codes.
const (
	resultIssued    = "Issued"
	resultMalformed = "Malformed"
	resultRefused   = "RoleNotAssumable"
)

type metrics struct {
	requests, reviews *prometheus.HistogramVec
	expiry            prometheus.Gauge
	connections       prometheus.Gauge
	evicted           prometheus.Counter
}

// newMetrics makes
//
//	podidentity_server_request_duration_seconds{result}      answers: Issued, NotAttested, NotBound, Conflict, RoleNotAllowed, RoleNotAssumable,
//	                                                         Unavailable, Throttled, Malformed
//	podidentity_build_info{component,version,commit,go_version} the version of the server
//	podidentity_server_token_review_duration_seconds{result} calls of the API server: success, failure
//	podidentity_server_certificate_expiry_timestamp_seconds  when the certificate that the server presents expires; 0 without Listen
//	podidentity_server_connections                           open connections of Listen
//	podidentity_server_evicted_connections_total             connections that Listen closed because of Options.MaxConnections
func newMetrics() metrics {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"result"})
	}
	return metrics{
		requests: histogram("podidentity_server_request_duration_seconds", "Requests for credentials, by result."),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{Name: "podidentity_server_certificate_expiry_timestamp_seconds",
			Help: "When the certificate of the server expires, in seconds since 1970."}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "podidentity_server_connections",
			Help: "Open connections of the server."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "podidentity_server_evicted_connections_total",
			Help: "Connections that the server closed to make room for others."}),
		reviews: histogram("podidentity_server_token_review_duration_seconds", "TokenReviews, by result."),
	}
}

func (m metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(m.requests), r.Register(m.reviews), r.Register(m.expiry), r.Register(m.connections),
		r.Register(m.evicted), metric.Register(buildinfo.OfModule(), r, "podidentity", "server"))
}

func (m metrics) reviewed(start time.Time, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.reviews.WithLabelValues(result).Observe(time.Since(start).Seconds())
}
