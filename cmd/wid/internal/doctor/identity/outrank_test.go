package identity_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// untrustedIssuer shows this machine, and no cloud, a certificate of an unknown CA.
func untrustedIssuer(w *environment) {
	server := httptest.NewTLSServer(w.serve)
	w.t.Cleanup(server.Close)
	trusting, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		w.t.Fatal("no transport")
	}
	doubting := &http.Transport{DialContext: toward(server.Listener.Addr().String())}
	w.t.Cleanup(func() { doubting.CloseIdleConnections(); trusting.CloseIdleConnections() })
	w.config.IssuerClient = &http.Client{Transport: doubting}
}

// The answer of a cloud that names another cause is the headline. What this machine suspects becomes a warning.
func TestSpecificAnswerOutranksSuspicion(t *testing.T) {
	for name, suspect := range map[string]func(w *environment){
		"an issuer of an unknown CA": untrustedIssuer,
		"an unreachable issuer":      func(w *environment) { w.config.IssuerClient = &http.Client{Transport: broken{}} },
	} {
		for provider, refuse := range map[string]func(w *environment){
			"aws": func(w *environment) {
				w.cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
			},
			"azure": func(w *environment) {
				w.credential(func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:App" })
			},
			"gcp": func(w *environment) {
				w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Condition = func(map[string]any) bool { return false } })
			},
		} {
			t.Run(provider+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newEnvironment(t, provider)
				refuse(w)
				suspect(w)
				report := w.run()
				readable(t, report)
				f := report.Worst()
				if f == nil || f.Check != "exchange" || f.Result != doctor.Fail || f.Class == "" || f.Remedy.Text == "" || len(f.Causes) == 0 {
					t.Errorf("got %+v\n%s", f, report)
				}
			})
		}
	}
}
