package relay_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/workloadid/workloadid/registration/relay"
)

// A program that makes the relay anew goes on counting.
func TestMetrics(t *testing.T) {
	w := newEnvironment(t, nil)
	registry := prometheus.NewRegistry()
	o := w.options()
	o.Registerer = registry
	for range 2 {
		w.start(t, o, relay.TLSConfig(w.ca.pool()))
		w.get(t, w.ca.named(t, agentOf("c1"), "system:open-cluster-management:c1"), nil)
		w.get(t, nil, bearer("made-up"))
		w.get(t, nil, nil).expect(t, http.StatusUnauthorized, "")
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP registration_relay_requests_in_flight Requests to the relay that are not answered yet, watches included.
# TYPE registration_relay_requests_in_flight gauge
registration_relay_requests_in_flight 0
# HELP registration_relay_requests_total Requests to the relay, by credential (certificate or token) and by the status of the answer.
# TYPE registration_relay_requests_total counter
registration_relay_requests_total{code="200",credential="certificate"} 2
registration_relay_requests_total{code="200",credential="token"} 2
registration_relay_requests_total{code="401",credential="token"} 2
`), "registration_relay_requests_total", "registration_relay_requests_in_flight"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "registration_build_info"); err != nil || n != 1 {
		t.Errorf("%d build infos, %v", n, err)
	}
}
