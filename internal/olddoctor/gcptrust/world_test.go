package gcptrust_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/gcptrust"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pool         = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	providerName = pool + "/providers/east"
	email        = "app@my-project.iam.gserviceaccount.com"
	engineer     = "engineer@example.com"
	subject      = trusttest.Subject
	principal    = "principal://iam.googleapis.com/" + pool + "/subject/" + subject
)

// world is a project in which everything fits, until a test changes that. The login is a person's, as gcloud leaves it.
type world struct {
	*trusttest.World
	reader *gcptrust.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	annotations := map[string]string{gcp.WorkloadIdentityProviderAnnotation: providerName, gcp.ServiceAccountAnnotation: email}
	w := &world{trusttest.New(t, &gcp.Provider{}, "//iam.googleapis.com/"+providerName, annotations), nil}
	w.reader = &gcptrust.Reader{HTTPClient: w.Cloud.Client()}
	w.login(w.Cloud.GCP().AddUser(engineer))
	w.Cloud.GCP().SetIAMViewers("user:" + engineer)
	w.provider(func(*authtest.WorkloadIdentityProvider) {})
	w.members(principal)
	w.Config.Trust = w.reader
	return w
}

// login has application default credentials find a file.
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
	return w.Run("ya29", "1//")
}
