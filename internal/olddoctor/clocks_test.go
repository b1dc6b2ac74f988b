package doctor_test

import (
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// at is this machine's clock, which may be off.
func at(off time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(off) }
}

// What ends is judged by the hub's clock. A clock of this machine's that is off is the first thing to be told, and no failure.
func TestEnrolmentByTheHubsClock(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *hubWorld)
		check  string
		want   doctor.Result
		class  string
	}{
		"ten minutes ahead": {func(w *hubWorld) { w.config.Now = at(10 * time.Minute) }, "enrolment-time", doctor.Warn, "O40"},
		"two days ahead":    {func(w *hubWorld) { w.config.Now = at(48 * time.Hour) }, "enrolment-time", doctor.Warn, "O40"},
		"two days behind":   {func(w *hubWorld) { w.config.Now = at(-48 * time.Hour) }, "enrolment-time", doctor.Warn, "O40"},
		"the cluster's, without a hub": {func(w *hubWorld) {
			w.config.SpokeRESTConfig, w.config.HubRESTConfig, w.config.Now = w.config.HubRESTConfig, nil, at(48*time.Hour)
		}, "enrolment-time", doctor.Warn, "O40"},
		"the cluster's, of a hub that tells none": {func(w *hubWorld) {
			w.config.SpokeRESTConfig, w.config.Now = w.config.HubRESTConfig, at(48*time.Hour)
			w.config.HubRESTConfig = clockOf(w.t, func() time.Time { return time.Time{} })
		}, "enrolment-time", doctor.Warn, "O40"},
		"nobody's, and the hub says available": {func(w *hubWorld) {
			w.config.HubRESTConfig, w.config.Now = nil, at(10*time.Minute)
		}, "enrolment-lease", doctor.Warn, "O15"},
		"behind, and the certificate has expired": {func(w *hubWorld) {
			w.ahead = 24 * time.Hour // the certificate has 23 hours left by this machine's clock
		}, "enrolment-secret", doctor.Fail, "O27"},
		"behind, and the lease is old": {func(w *hubWorld) { w.ahead = 10 * time.Minute }, "enrolment-lease", doctor.Fail, "O15"},
		"a few seconds":                {func(w *hubWorld) { w.ahead = 20 * time.Second }, "", "", ""},
	} {
		w := newHubWorld(t)
		tt.change(w)
		report := w.run()
		first := report.Worst()
		if first == nil || tt.check == "" {
			if (first == nil) != (tt.check == "") {
				t.Errorf("%s: begins with %+v\n%s", name, first, report)
			}
			continue
		}
		if first.ID != tt.check || first.Result != tt.want || first.Class != tt.class || first.Remedy == "" {
			t.Errorf("%s: begins with %+v\n%s", name, first, report)
		}
		if text := report.String(); tt.want != doctor.Fail && strings.Contains(text, "delete secret") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A token ends by the clock of the cluster. Whoever is not verified yet may lie about the time, which costs no more than a doubt.
func TestBootstrapByTheServersClock(t *testing.T) {
	date := func(w *bootWorld, date string) {
		w.answer = func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.Header()["Date"] = nil
			if date != "" {
				rw.Header().Set("Date", date)
			}
			return false
		}
	}
	stamped := func(off time.Duration) string { return time.Now().Add(off).UTC().Format(http.TimeFormat) }
	ended := func(w *bootWorld) {
		w.tokenOf(func(c *bootstrap.TokenConfig) { c.Expires = time.Now().Add(-time.Hour) })
	}
	for name, tt := range map[string]struct {
		change func(w *bootWorld)
		check  string
		want   doctor.Result
		class  string
		says   string
	}{
		"two days ahead":                    {func(w *bootWorld) { w.config.Now = at(48 * time.Hour) }, "bootstrap-clock", doctor.Warn, "B34", "ahead of the server"},
		"two days behind":                   {func(w *bootWorld) { w.config.Now = at(-48 * time.Hour) }, "bootstrap-clock", doctor.Warn, "B34", "behind the server"},
		"behind, and the token has expired": {func(w *bootWorld) { w.config.Now = at(-48 * time.Hour); ended(w) }, "bootstrap-token", doctor.Fail, "B25", "has expired"},
		"the server tells no time":          {func(w *bootWorld) { date(w, ""); ended(w) }, "bootstrap-token", doctor.Fail, "B25", "has expired"},
		"the server tells nonsense":         {func(w *bootWorld) { date(w, "tomorrow"); ended(w) }, "bootstrap-token", doctor.Fail, "B25", "has expired"},
		"the server is far in the future":   {func(w *bootWorld) { date(w, "Fri, 31 Dec 9999 23:59:59 GMT") }, "bootstrap-token", doctor.Fail, "B25", "has expired"},
		"the administrator knows better than the server": {func(w *bootWorld) {
			date(w, "Fri, 31 Dec 9999 23:59:59 GMT")
			w.config.RESTConfig = clockOf(w.t, func() time.Time { return time.Now().Add(time.Hour / 2) })
		}, "bootstrap-clock", doctor.Warn, "B34", "behind the server"},
		"the certificate is valid by itself": {func(w *bootWorld) {
			w.use(w.ca.issue(w.t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
			date(w, stamped(-10*time.Minute))
		}, "bootstrap-tls", doctor.Fail, "B21", "valid by the server's clock"},
	} {
		w := newBootWorld(t)
		tt.change(w)
		report := w.run()
		first := report.Worst()
		if first == nil || first.ID != tt.check || first.Result != tt.want || first.Class != tt.class || !strings.Contains(first.Message, tt.says) {
			t.Errorf("%s: begins with %+v\n%s", name, first, report)
		}
		if clock := report.Of("bootstrap-clock"); strings.Contains(name, "two days") && (clock.Result != doctor.Warn || report.Of("bootstrap-login").Result != doctor.Pass) {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// No other token helps while nobody signs: with a good Secret, the signer is what to look at.
func TestBootstrapGoodTokenWithoutASigner(t *testing.T) {
	edited := func(w *bootWorld) {
		w.data = map[string]string{"kubeconfig": w.data["kubeconfig"] + "\n", "jws-kubeconfig-" + bootID: w.data["jws-kubeconfig-"+bootID]}
		w.own = w.data
	}
	for name, change := range map[string]func(w *bootWorld){
		"the whole token": func(*bootWorld) {},
		"the ID alone":    func(w *bootWorld) { w.config.Token = bootID },
		"without pins":    func(w *bootWorld) { w.config.Pins, w.config.WithoutPins = nil, true },
	} {
		w := newBootWorld(t)
		edited(w)
		change(w)
		f := w.run().Of("bootstrap-signature")
		if f.Class != "B15" || strings.Contains(f.Remedy, "token create") || !strings.Contains(f.Remedy, "bootstrapsigner") ||
			strings.Contains(strings.Join(f.Causes, " ")+f.Remedy, "in between") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	w := newBootWorld(t)
	edited(w)
	w.withoutAdmin = true
	if f := w.run().Of("bootstrap-signature"); !strings.Contains(f.Remedy, "token create") || !strings.Contains(f.Remedy, "bootstrapsigner") {
		t.Errorf("%+v", f)
	}
}
