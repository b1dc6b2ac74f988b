package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// inMemory has a handler answer requests without a network.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	served, answer := r.Clone(r.Context()), httptest.NewRecorder()
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	m.ServeHTTP(answer, served)
	response := answer.Result()
	response.Request = r
	return response, nil
}

// inBubble has a world do without a network, so that in the bubble of a test only what hangs takes time: a busy machine takes
// none of that which the run has. Tokens are signed there too, by its clock.
func (w *world) inBubble(t *testing.T) {
	t.Helper()
	w.t = t
	w.config.IssuerClient = &http.Client{Transport: inMemory{w.serve}}
	w.config.RESTConfig = &rest.Config{Host: "http://api.example", Transport: inMemory{w.issuer}}
	w.config.Options = []auth.Option{auth.WithHTTPClient(&http.Client{Transport: inMemory{w.cloud.Handler()}}), auth.WithSTSRegion("eu-central-1")}
}

// patiently runs a world in which something hangs, and has it judged. What a busy machine may not have had the time for is what
// judge returns: it is tried again with more of it. The run ends with its time nevertheless.
func patiently(t *testing.T, w *world, judge func(*doctor.Report) (missed string)) {
	t.Helper()
	missed := ""
	for _, w.config.Timeout = range []time.Duration{time.Second, 5 * time.Second, 25 * time.Second} {
		start := time.Now()
		report := w.run()
		if took := time.Since(start); took > w.config.Timeout+30*time.Second {
			t.Errorf("took %s instead of %s", took, w.config.Timeout)
		}
		if missed = judge(report); missed == "" {
			return
		}
	}
	t.Error(missed)
}
