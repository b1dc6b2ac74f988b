package azure_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/trusttest"
	"github.com/workloadid/workloadid/doctor/trust/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant      = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	otherTenant = "99f988bf-86f1-41af-91ab-2d7cd011db99"
	appID       = "11111111-2222-4333-8444-555555555555"
	platform    = "99999999-2222-4333-8444-555555555555"
	resourceID  = "/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/rg-apps/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app"
	subject     = trusttest.Subject
	audience    = "api://AzureADTokenExchange"
	secret      = "it-is-a-s3cret"
	anchor      = "trust-anchor"
)

// world is a tenant in which everything fits, until a test changes that. The login is a client secret in the environment.
type world struct {
	*trusttest.World
	reader *azure.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{trusttest.New(t, audience, tenant+"/"+appID, nil), nil}
	w.Hidden = []string{secret}
	w.reader = &azure.Reader{HTTPClient: w.Cloud.Client()}
	w.login(tenant)
	w.trust(func(*authtest.FederatedCredential) {})
	return w
}

// login makes DefaultAzureCredential find the platform's application.
func (w *world) login(tenant string) {
	w.Cloud.Azure().SetClientSecret(tenant, platform, secret)
	for name, value := range map[string]string{"AZURE_TENANT_ID": tenant, "AZURE_CLIENT_ID": platform, "AZURE_CLIENT_SECRET": secret,
		"AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential"} {
		w.Setenv(name, value)
	}
}

// managed makes it a managed identity that the platform may read.
func (w *world) managed() {
	w.Cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, appID, platform)
}

// application makes it an application that the platform may read.
func (w *world) application() { w.Cloud.Azure().SetApplicationReaders(tenant, platform) }

// trust replaces the federated credentials by the one that fits, changed.
func (w *world) trust(changes ...func(*authtest.FederatedCredential)) {
	w.Cloud.Azure().RemoveFederatedCredentials(tenant, appID)
	for _, change := range changes {
		c := authtest.FederatedCredential{Issuer: w.Issuer.URL(), Subject: subject, Audience: audience, Fetch: w.Issuer.HTTPClient()}
		change(&c)
		w.Cloud.Azure().AddFederatedCredential(tenant, appID, c)
	}
}

func (w *world) run() *doctor.Report {
	w.Helper()
	return w.Run(w.reader)
}

// parsed runs the checks on a file.
func parsed(t *testing.T, content string, change ...func(*doctor.TrustQuery)) *doctor.Report {
	t.Helper()
	trust, err := azure.Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	q := doctor.TrustQuery{Identity: tenant + "/" + appID, Claims: trusttest.Claims("https://issuer.example", audience)}
	for _, apply := range change {
		apply(&q)
	}
	report := trusttest.Run(t.Context(), q, trust, 0)
	trusttest.Verify(t, report)
	return report
}
