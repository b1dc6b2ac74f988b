// Package trusttest is what the tests of those that read what clouds trust have in common.
package trusttest

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/testworld"
)

// Subject is the ServiceAccount of all tokens here.
const Subject = "system:serviceaccount:tenant-a:app"

// World is that ServiceAccount, its issuer, and clouds that know nothing of them yet.
type World struct {
	*testing.T
	Issuer *authtest.Issuer
	Cloud  *authtest.Cloud
	Config doctor.Config
}

// New has the token be for an audience.
func New(t *testing.T, provider auth.Provider, audience string, annotations map[string]string) *World {
	t.Helper()
	issuer := testworld.SharedIssuer(t)
	cloud := testworld.Cloud(t)
	w := &World{T: t, Issuer: issuer, Cloud: cloud, Config: doctor.Config{Provider: provider, IssuerClient: issuer.HTTPClient(),
		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"}, Annotations: annotations,
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client())}}}
	w.Sign(audience)
	return w
}

// Sign replaces the token by one for another audience.
func (w *World) Sign(audience string) {
	w.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	var err error
	if w.Config.Token, err = w.Issuer.Sign(w.Issuer.Claims(sa, []string{audience}, time.Hour)); err != nil {
		w.Fatal(err)
	}
}

// Run also holds the report to what every report has to keep to: no token, no web page, nothing of what is hidden.
func (w *World) Run(hidden ...string) *doctor.Report {
	w.Helper()
	report := doctor.Run(w.Context(), w.Config)
	for _, s := range append([]string{"eyJ", "<html"}, hidden...) {
		if text := report.String(); strings.Contains(text, s) {
			w.Errorf("it shows a secret or an answer:\n%s", text)
		}
	}
	return report
}

// Unclear wants the checks to be UNKNOWN for a reason, and none but those that may fail to have failed.
func (w *World) Unclear(report *doctor.Report, checks, message, remedy string, mayFail ...string) {
	w.Helper()
	for id := range strings.FieldsSeq(checks) {
		f := report.Of(id)
		if strings.Contains(f.Message, "see check 19") && id == "trust-rule" && strings.Contains(checks, "trust-anchor") {
			continue
		}
		if f.Result != doctor.Unknown || !strings.Contains(f.Message, message) || !strings.Contains(f.Remedy, remedy) {
			w.Errorf("%+v", f)
		}
	}
	for _, f := range report.Findings {
		if f.Result == doctor.Fail && !slices.Contains(mayFail, f.ID) {
			w.Errorf("false alarm: %+v", f)
		}
	}
}

// GivesUp wants nobody to wait for what does not answer.
func (w *World) GivesUp(fault authtest.Fault) {
	w.Helper()
	w.Cloud.AddFault(fault)
	w.Config.Timeout = time.Second
	start := time.Now()
	report := w.Run()
	if took := time.Since(start); took > 30*time.Second || report.Of("trust-anchor").Result != doctor.Unknown {
		w.Errorf("took %s: %+v", took, report.Of("trust-anchor"))
	}
}

// Answering gives the same answer to everything.
type Answering struct {
	Status int
	Body   string
}

// RoundTrip is that of http.RoundTripper.
func (a Answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.Status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.Body)), Request: r}, nil
}
