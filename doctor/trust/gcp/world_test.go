package gcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/trusttest"
	"github.com/workloadid/workloadid/doctor/trust/gcp"
	"github.com/workloadid/workloadid/internal/annotation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pool         = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	providerName = pool + "/providers/east"
	email        = "app@my-project.iam.gserviceaccount.com"
	engineer     = "engineer@example.com"
	subject      = trusttest.Subject
	audience     = "//iam.googleapis.com/" + providerName
	principal    = "principal://iam.googleapis.com/" + pool + "/subject/" + subject
	everybody    = "principalSet://iam.googleapis.com/" + pool + "/*"
	anchor       = "trust-anchor"
	rule         = "trust-rule"
)

// world is a project in which everything fits, until a test changes that. The login is a person's, as gcloud leaves it.
type world struct {
	*trusttest.World
	reader *gcp.Reader
}

func annotations() map[string]string {
	return map[string]string{annotation.GCPWorkloadIdentityProvider: providerName, annotation.GCPServiceAccount: email}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{trusttest.New(t, audience, email, annotations()), nil}
	w.Hidden = []string{"ya29", "1//"}
	w.reader = &gcp.Reader{HTTPClient: w.Cloud.Client()}
	w.login(w.Cloud.GCP().AddUser(engineer))
	w.Cloud.GCP().SetIAMViewers("user:" + engineer)
	w.provider(func(*authtest.WorkloadIdentityProvider) {})
	w.members(principal)
	return w
}

// login makes application default credentials find a file.
func (w *world) login(file []byte) {
	path := filepath.Join(w.TempDir(), "adc.json")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		w.Fatal(err)
	}
	w.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
}

// provider replaces the provider by the one that fits, changed.
func (w *world) provider(change func(*authtest.WorkloadIdentityProvider)) {
	p := authtest.WorkloadIdentityProvider{Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient()}
	change(&p)
	w.Cloud.GCP().SetWorkloadIdentityProvider(providerName, p)
}

func (w *world) members(members ...string) {
	w.Cloud.GCP().SetServiceAccount(email, authtest.GCPServiceAccount{WorkloadIdentityUsers: members})
}

func (w *world) run() *doctor.Report {
	w.Helper()
	return w.Run(w.reader)
}

// printedProvider is what gcloud prints for a provider, printedPolicy for the policy of a service account.
func printedProvider(issuer, mapping, more string) string {
	return fmt.Sprintf(`{"name":%q,"state":"ACTIVE","oidc":{"issuerUri":%q},"attributeMapping":{"google.subject":%q}%s}`, providerName, issuer, mapping, more)
}

func printedPolicy(member, more string) string {
	return fmt.Sprintf(`{"bindings":[{"role":"roles/iam.workloadIdentityUser","members":[%q]%s}],"etag":"x"}`, member, more)
}

// parsed runs the checks on files.
func parsed(t *testing.T, content string, change ...func(*doctor.TrustQuery)) *doctor.Report {
	t.Helper()
	trust, err := gcp.Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	q := doctor.TrustQuery{Identity: email, Annotations: annotations(), Claims: trusttest.Claims("https://issuer.example", audience)}
	for _, apply := range change {
		apply(&q)
	}
	report := trusttest.Run(t.Context(), q, trust, 0)
	trusttest.Verify(t, report)
	return report
}
