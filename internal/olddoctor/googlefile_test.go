package doctor_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// external is a pod with a file of the type external_account, as gcloud iam workload-identity-pools create-cred-config writes it.
func external(t *testing.T, impersonated bool) *world {
	w := newWorld(t, "gcp")
	w.config.ServiceAccount, w.config.InPod, w.withoutCluster = client.ObjectKey{}, true, true
	w.write(w.sign(nil))
	more := ""
	if impersonated {
		more = `,"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/` + gcpEmail + `:generateAccessToken"`
	}
	googleFile(`{"type":"external_account","audience":"//iam.googleapis.com/` + poolProvider + `","subject_token_type":"urn:ietf:params:oauth:token-type:jwt",
"token_url":"https://sts.googleapis.com/v1/token","credential_source":{"file":"` + w.config.TokenFile + `","format":{"type":"text"}}` + more + `}`)(w)
	w.config.TokenFile = ""
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", w.env["GOOGLE_APPLICATION_CREDENTIALS"])
	return w
}

// The token that the file names is examined like that of a pod of AWS or Azure, and the exchange is what Google's SDKs do.
func TestExternalAccountInPod(t *testing.T) {
	for _, impersonated := range []bool{false, true} {
		w := external(t, impersonated)
		report := w.run()
		for _, id := range []string{"source", "token-file", "token-format", "claims", "time", "audience", "subject", "issuer", "identifiers", "discovery", "keys", "exchange"} {
			if f := report.Of(id); f.Result != doctor.Pass {
				t.Errorf("%+v", f)
			}
		}
		if f := report.Of("identity"); (f.Result == doctor.Pass) != impersonated || f.Result == doctor.Unknown || f.Result == doctor.Fail {
			t.Errorf("%s", report)
		}
		if f := report.Of("trust-rule"); f.Result != doctor.Skip {
			t.Errorf("%+v", f)
		}
	}
}

func TestExternalAccountFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil       func(w *world, file string)
		check, says string
		class       string
	}{
		"token file missing": {func(_ *world, file string) { _ = os.Remove(file) }, "token-file", "does not exist", "G15"},
		"another audience": {func(w *world, file string) {
			_ = os.WriteFile(file, []byte(w.sign(func(c map[string]any) { c["aud"] = []string{"sts.amazonaws.com"} })), 0o600)
		}, "audience", "somebody else", "G3"},
		"the API server's": {func(w *world, file string) {
			_ = os.WriteFile(file, []byte(w.sign(func(c map[string]any) { c["aud"] = []string{"https://kubernetes.default.svc"} })), 0o600)
		}, "audience", "for the API server", "G3"},
		"may not impersonate": {func(w *world, _ string) {
			w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{})
		}, "exchange", "may not act as", "G10"},
	} {
		w := external(t, true)
		tt.spoil(w, w.dir+"/token")
		report := w.run()
		f := report.Worst()
		if f.ID != tt.check || f.Class != tt.class || f.Result != doctor.Fail || !strings.Contains(f.Message, tt.says) || f.Remedy == "" {
			t.Errorf("%s: %s", name, report)
		}
		if tried := report.Of("exchange").Result != doctor.Skip; tried == (tt.check == "token-file" || name == "the API server's") {
			t.Errorf("%s: %+v", name, report.Of("exchange"))
		}
	}
}

// A provider may allow another audience than the usual one.
func TestExternalAccountWithAnotherAudience(t *testing.T) {
	w := external(t, true)
	w.pool(func(p *authtest.WorkloadIdentityProvider) { p.AllowedAudiences = []string{"mine"} })
	if err := os.WriteFile(w.dir+"/token", []byte(w.sign(func(c map[string]any) { c["aud"] = []string{"mine"} })), 0o600); err != nil {
		t.Fatal(err)
	}
	report := w.run()
	if f := report.Of("audience"); f.Result != doctor.Pass || f.Remedy != "" || report.Of("exchange").Result != doctor.Pass {
		t.Error(report)
	}
}
