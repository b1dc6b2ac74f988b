package gcptrust_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/diagnose"
	"github.com/workloadid/workloadid/auth/diagnose/gcptrust"
	"github.com/workloadid/workloadid/auth/gcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pool         = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	providerName = pool + "/providers/east"
	email        = "app@my-project.iam.gserviceaccount.com"
	engineer     = "engineer@example.com"
	subject      = "system:serviceaccount:tenant-a:app"
	principal    = "principal://iam.googleapis.com/" + pool + "/subject/" + subject
)

// world is a project in which everything fits, until a test changes that. The login is a person's, as gcloud leaves it.
type world struct {
	*testing.T
	issuer *authtest.Issuer
	cloud  *authtest.Cloud
	reader *gcptrust.Reader
	config diagnose.Config
}

// sharedIssuer has one key for all: making one takes long.
var sharedIssuer = sync.OnceValues(func() (*authtest.Issuer, error) { return authtest.NewIssuer(authtest.IssuerConfig{}) })

func newWorld(t *testing.T) *world {
	t.Helper()
	issuer, err := sharedIssuer()
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := authtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	w := &world{T: t, issuer: issuer, cloud: cloud, reader: &gcptrust.Reader{HTTPClient: cloud.Client()}}
	w.login(cloud.GCP().AddUser(engineer))
	cloud.GCP().SetIAMViewers("user:" + engineer)
	w.provider(func(*authtest.WorkloadIdentityProvider) {})
	w.members(principal)
	w.config = diagnose.Config{Provider: &gcp.Provider{}, Trust: w.reader, IssuerClient: issuer.HTTPClient(),
		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Annotations:    map[string]string{gcp.WorkloadIdentityProviderAnnotation: providerName, gcp.ServiceAccountAnnotation: email},
		Options:        []auth.Option{auth.WithHTTPClient(cloud.Client())}}
	w.token("//iam.googleapis.com/" + providerName)
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
	p := authtest.WorkloadIdentityProvider{Issuer: w.issuer.URL(), Fetch: w.issuer.HTTPClient()}
	change(&p)
	w.cloud.GCP().SetWorkloadIdentityProvider(providerName, p)
}

func (w *world) members(members ...string) {
	w.cloud.GCP().SetServiceAccount(email, authtest.GCPServiceAccount{WorkloadIdentityUsers: members})
}

func (w *world) token(audience string) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	signed, err := w.issuer.Sign(w.issuer.Claims(sa, []string{audience}, time.Hour))
	if err != nil {
		w.Fatal(err)
	}
	w.config.Token = signed
}

// run also holds the report to what every report has to keep to.
func (w *world) run() *diagnose.Report {
	w.Helper()
	report := diagnose.Run(w.Context(), w.config)
	if text := report.String(); strings.Contains(text, "eyJ") || strings.Contains(text, "ya29") || strings.Contains(text, "1//") || strings.Contains(text, "<html") {
		w.Errorf("it shows a secret or an answer:\n%s", text)
	}
	return report
}
