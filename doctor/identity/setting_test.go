package identity_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
)

// An answer of Google Cloud with several causes comes with the command that reads the setting. Commands hold the names of the call.
func TestAnswersWithSeveralCausesNameTheSetting(t *testing.T) {
	const describe, policy = "gcloud iam workload-identity-pools providers describe " + poolProvider, "gcloud iam service-accounts get-iam-policy " + gcpEmail
	const update = "gcloud iam workload-identity-pools providers update-oidc " + poolProvider
	for name, tt := range map[string]struct {
		spoil       func(w *world)
		show, grant string
	}{
		"no key": {func(w *world) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.JWKS = []byte(`{"keys":[]}`) })
		}, describe, update + " --jwk-json-path="},
		"condition": {func(w *world) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Condition = func(map[string]any) bool { return false } })
		}, describe, "attribute condition"},
		"issuer": {func(w *world) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Issuer += "/" })
		}, describe, update + " --issuer-uri=https://issuer.example"},
		"no binding": {func(w *world) { w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{}) }, policy,
			"add-iam-policy-binding " + gcpEmail + " --role roles/iam.workloadIdentityUser --member " + principal},
		"API": {answer("iamcredentials", "", 403, "PERMISSION_DENIED", "IAM Service Account Credentials API has not been used in project 1 before or it is disabled."),
			"gcloud services enable iamcredentials.googleapis.com --project 123456789012", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "gcp")
			tt.spoil(w)
			w.config.ShowPolicy = true
			f := w.run().Worst()
			if f == nil || !slices.Contains(f.Remedy.Commands, tt.show) || tt.grant != "" && !strings.Contains(strings.Join(f.Remedy.Or.Commands, "\n"), tt.grant) {
				t.Errorf("%+v", f)
			}
		})
	}
}
