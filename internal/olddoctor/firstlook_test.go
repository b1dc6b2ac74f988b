package doctor_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// documented leaves of the configuration what the example in the package's documentation has.
func documented(w *world) {
	w.config.RESTConfig = &rest.Config{}
	w.run() // makes the client
	w.config = doctor.Config{Provider: w.config.Provider, ServiceAccount: w.config.ServiceAccount, Client: w.config.Client,
		Options: w.config.Options, IssuerClient: w.config.IssuerClient}
}

// The reconciler of the documentation gets a healthy condition, once the exchange works.
func TestDocumentedReconciler(t *testing.T) {
	for _, provider := range []string{"aws", "azure", "gcp"} {
		w := newWorld(t, provider)
		documented(w)
		report := w.run()
		if c := report.Condition("IdentityReady", 1); c.Status != "True" || report.ExitCode() != doctor.ExitPass {
			t.Errorf("%s: %+v\n%s", provider, c, report)
		}
		if f := report.Of("trust-anchor"); f.Result != doctor.Skip || f.Remedy != "" {
			t.Errorf("%s: %+v", provider, f)
		}
		// What nobody has read is unknown where the exchange was not tried.
		w.config.Skip = []string{"exchange"}
		if f := w.run().Of("trust-anchor"); f.Result != doctor.Unknown || f.Remedy == "" {
			t.Errorf("%s: %+v", provider, f)
		}
	}
}

// What has passed marks nothing as wrong.
func TestNothingDiffersInWhatHasPassed(t *testing.T) {
	w := newWorld(t, "aws")
	issuer, err := authtest.NewIssuer(authtest.IssuerConfig{URL: "https://10.0.0.7"})
	if err != nil {
		t.Fatal(err)
	}
	w.use(issuer)
	report := w.run()
	if f := report.Of("issuer"); f.Result != doctor.Pass || !strings.Contains(f.Message, "worked") {
		t.Errorf("%+v", f)
	}
	for _, f := range report.Findings {
		for _, field := range f.Fields {
			if field.Differs && (f.Result == doctor.Pass || f.Result == doctor.Skip) {
				t.Errorf("%+v", f)
			}
		}
	}
}

// A clock of this machine's that is off hinders no exchange of a token, so that is tried. If it works, the clock is a doubt.
func TestOwnClockOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -10 * time.Minute, "ahead": 10 * time.Minute, "far ahead": 48 * time.Hour} {
		w := newWorld(t, "aws")
		w.config.Now = at(off)
		report := w.run()
		if f := report.Of("time"); f.Result != doctor.Warn || f.Class != "K11" || !strings.Contains(f.Message, "works") {
			t.Errorf("%s: %s", name, report)
		}
		if f := report.Of("exchange"); f.Result != doctor.Pass {
			t.Errorf("%s: %s", name, report)
		}
		if f := report.Of("token-request"); f.Result != doctor.Pass {
			t.Errorf("%s: %+v", name, f)
		}
		w = newWorld(t, "aws")
		w.config.Now = at(off)
		w.cloud.AWS().RemoveRole(roleARN)
		if report := w.run(); report.Of("time").Result != doctor.Fail || report.Worst().ID != "time" || report.Of("exchange").Result != doctor.Fail {
			t.Errorf("%s: %s", name, report)
		}
		// What is signed by this machine's time may be refused for it.
		w = newWorld(t, "aws")
		w.config.Now = at(off)
		w.eks(http.StatusUnauthorized)
		if report := w.run(); report.Of("time").Result != doctor.Fail || report.Worst().ID != "time" {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// An outage of the token service is what the report begins with, by the name of the service, whatever else is doubtful.
func TestOutages(t *testing.T) {
	for name, tt := range map[string]struct {
		fault authtest.Fault
		class string
		says  string
	}{
		"throttled":   {authtest.Fault{Status: 429, Code: "Throttling", Message: "Rate exceeded"}, "N2", "throttles"},
		"down":        {authtest.Fault{Status: 500, Code: "InternalFailure", Message: "x"}, "N3", "fails"},
		"unavailable": {authtest.Fault{Status: 503, Code: "ServiceUnavailable", Message: "x"}, "N3", "fails"},
		"a portal":    {authtest.Fault{Body: "<html>sign in</html>"}, "N4", "something else"},
		"hanging":     {authtest.Fault{Hang: true}, "", ""},
		"cut":         {authtest.Fault{Cut: true}, "N1", "no answer"},
	} {
		for _, provider := range []struct{ name, service, action string }{{"aws", "sts", "AssumeRoleWithWebIdentity"},
			{"azure", "entra", "token"}, {"gcp", "gcp-sts", "token"}} {
			t.Run(name+"/"+provider.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, provider.name)
				fault := tt.fault
				fault.Service, fault.Action = provider.service, provider.action
				w.cloud.AddFault(fault)
				if tt.fault.Hang { // so it does when it is asked for its clock
					patiently(t, w, func(report *doctor.Report) string {
						if f := report.Worst(); f == nil || f.Result != doctor.Unknown || f.Remedy == "" || f.Class != "" || !strings.Contains(f.Message, "waiting for ") {
							return report.String()
						}
						return ""
					})
					return
				}
				report := w.run()
				f := report.Worst()
				if f == nil || f.Result != doctor.Unknown || f.Remedy == "" {
					t.Fatal(report)
				}
				if f.ID != "exchange" {
					t.Fatal(report)
				}
				if f.Class != tt.class || !strings.Contains(f.Message, tt.says) || !strings.Contains(f.Message, "token service of ") {
					t.Errorf("%+v", f)
				}
				if c := report.Condition("Ready", 1); c.Status != "Unknown" || c.Reason != "Exchange"+tt.class {
					t.Errorf("%+v", c)
				}
			})
		}
	}
}

// A doubt does not hide that the token service gave no answer.
func TestOutageBeforeDoubts(t *testing.T) {
	w := newWorld(t, "aws")
	issuer, err := authtest.NewIssuer(authtest.IssuerConfig{URL: "https://10.0.0.7"})
	if err != nil {
		t.Fatal(err)
	}
	w.use(issuer)
	w.config.Options = []auth.Option{auth.WithHTTPClient(&http.Client{Transport: broken{}}), auth.WithSTSRegion("eu-central-1")}
	report := w.run()
	if f := report.Worst(); f.ID != "exchange" || f.Class != "N1" || report.Of("issuer").Result != doctor.Warn {
		t.Error(report)
	}
}
