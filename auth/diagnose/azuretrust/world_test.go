package azuretrust_test

import (
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
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/diagnose"
	"github.com/workloadid/workloadid/auth/diagnose/azuretrust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant      = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	otherTenant = "99f988bf-86f1-41af-91ab-2d7cd011db99"
	appID       = "11111111-2222-4333-8444-555555555555"
	platform    = "99999999-2222-4333-8444-555555555555"
	resourceID  = "/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/rg-apps/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app"
	subject     = "system:serviceaccount:tenant-a:app"
	secret      = "it-is-a-s3cret"
)

// world is a tenant in which everything fits, until a test changes that. The login is a client secret in the environment.
type world struct {
	*testing.T
	issuer *authtest.Issuer
	cloud  *authtest.Cloud
	reader *azuretrust.Reader
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
	w := &world{T: t, issuer: issuer, cloud: cloud, reader: &azuretrust.Reader{HTTPClient: cloud.Client()}}
	w.login(tenant)
	w.trust(func(*authtest.FederatedCredential) {})
	w.config = diagnose.Config{Provider: &azure.Provider{}, Trust: w.reader, IssuerClient: issuer.HTTPClient(), Token: w.token(),
		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Annotations:    map[string]string{azure.ClientIDAnnotation: appID, azure.TenantIDAnnotation: tenant},
		Options:        []auth.Option{auth.WithHTTPClient(cloud.Client())}}
	return w
}

// login has DefaultAzureCredential find the platform's application.
func (w *world) login(tenant string) {
	w.cloud.Azure().SetClientSecret(tenant, platform, secret)
	for name, value := range map[string]string{"AZURE_TENANT_ID": tenant, "AZURE_CLIENT_ID": platform, "AZURE_CLIENT_SECRET": secret,
		"AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential"} {
		w.Setenv(name, value)
	}
}

// managed makes it a managed identity that the platform may read.
func (w *world) managed() {
	w.cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, appID, platform)
}

// application makes it an application that the platform may read.
func (w *world) application() { w.cloud.Azure().SetApplicationReaders(tenant, platform) }

// trust replaces the federated credentials by the one that fits, changed.
func (w *world) trust(changes ...func(*authtest.FederatedCredential)) {
	w.cloud.Azure().RemoveFederatedCredentials(tenant, appID)
	for _, change := range changes {
		c := authtest.FederatedCredential{Issuer: w.issuer.URL(), Subject: subject, Audience: azure.DefaultAudience, Fetch: w.issuer.HTTPClient()}
		change(&c)
		w.cloud.Azure().AddFederatedCredential(tenant, appID, c)
	}
}

func (w *world) token() string {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	signed, err := w.issuer.Sign(w.issuer.Claims(sa, []string{azure.DefaultAudience}, time.Hour))
	if err != nil {
		w.Fatal(err)
	}
	return signed
}

// run also holds the report to what every report has to keep to.
func (w *world) run() *diagnose.Report {
	w.Helper()
	report := diagnose.Run(w.Context(), w.config)
	if text := report.String(); strings.Contains(text, "eyJ") || strings.Contains(text, secret) || strings.Contains(text, "<html") {
		w.Errorf("it shows a secret or an answer:\n%s", text)
	}
	return report
}
