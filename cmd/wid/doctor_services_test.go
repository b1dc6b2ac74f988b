package main

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// The doctor calls a service by its name, and the service's own words are the headline.
func TestDoctorOfServices(t *testing.T) {
	w := newWorld(t)
	w.env = nil // the doctor runs in this process
	for name, tc := range map[string]struct {
		fake       authtest.FederationService
		flags      []string
		parameters map[string]string
	}{
		"Vault": {authtest.FederationVault, []string{"--service=vault", "--service-address=https://vault.example", "--annotation=" + exchange.VaultRoleAnnotation + "=app"},
			map[string]string{"role": "app"}},
		"OpenAI": {authtest.FederationOpenAI, []string{"--service=openai", "--service-parameter=identity_provider_id=idp-1",
			"--annotation=" + exchange.OpenAIServiceAccountAnnotation + "=sa-1"}, map[string]string{"identity_provider_id": "idp-1", "service_account_id": "sa-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := w.cloud.Federation(tc.fake)
			fake.AddIssuer(w.issuer.URL(), w.issuer.HTTPClient())
			flags := append(tc.flags, "--audience=ours", w.tokenFile(t, "ours"))
			stdout, code := w.doctorOf(t, flags...)
			if code != doctor.ExitFail || !strings.Contains(stdout, "tenant-a/app → "+name+"\n") || !strings.Contains(stdout, "  "+name+" refuses: no rule matches the subject") ||
				strings.Contains(stdout, "exchange.") {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
			end := w.cloud.AddFault(authtest.Fault{Service: string(tc.fake), Status: 503, Message: "sealed"})
			if stdout, code = w.doctorOf(t, flags...); code != doctor.ExitUncertain || !strings.Contains(stdout, name+" fails (HTTP 503") {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
			end()
			fake.AddRule(authtest.FederationRule{Issuer: w.issuer.URL(), Subject: subjectOfApp, Audience: "ours", Parameters: tc.parameters})
			if stdout, code = w.doctorOf(t, flags...); code != doctor.ExitPass || !strings.HasPrefix(stdout, "✓ tenant-a/app → "+name) {
				t.Errorf("ends with %d:\n%s", code, stdout)
			}
		})
	}
}
