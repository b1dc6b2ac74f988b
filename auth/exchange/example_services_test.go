package exchange_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Each tenant names its federation rule. With a rule as second argument all
// share it.
var anthropicAPI = exchange.NewAnthropic("org-1", "", "anthropic.example.com")

// The argument is the ID of the workload identity provider.
var openAIAPI = exchange.NewOpenAI("idp-1")

// The address of an account is
// https://accounts.cloud.databricks.com/oidc/accounts/ID.
var databricks = exchange.NewDatabricks("https://dbc-1.cloud.databricks.com", "databricks.example.com")

// The realm finds the client by issuer and subject, so tenants annotate
// nothing.
var keycloak = exchange.NewKeycloak("https://login.example.com/realms/one")

// The audience is the one in the filter of the pool.
var confluent = exchange.NewConfluent("confluent.example.com")

// The audience follows from each tenant's client ID.
var tailscale = exchange.NewTailscale()

// Mount and Namespace have defaults: jwt, and the root namespace.
var vault = exchange.NewVault(exchange.VaultServer{Address: "https://vault.example.com", Mount: "cluster-1",
	KubernetesAudience: "vault.example.com"})

// The argument is the host, perhaps of your own octo-sts.
var octoSTS = exchange.NewOctoSTS("octo-sts.dev")

// Registries pull and push with auth.NewKeychain or
// auth.NewRegistryAuthenticator.
var quay, dockerHub = exchange.NewQuay("quay.io"), exchange.NewDockerHub("organization")

// A service that has no constructor. Parameters are the controller's,
// AnnotatedParameters a tenant's.
var anyService = &exchange.Provider{
	Endpoint: "https://login.example.com/token", Grant: exchange.GrantJWTBearer, JSONBody: true,
	Parameters:          map[string]string{"pool": "prod"},
	AnnotatedParameters: map[string]string{"account": "example.com/service-account"},
}

// newVault returns a cloud whose Vault, https://vault.example, knows the role
// "app" of one ServiceAccount.
func newVault(t *testing.T, issuer *cloudtest.Issuer) *cloudtest.Cloud {
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	fake := cloud.Federation(cloudtest.FederationVault)
	fake.AddIssuer(issuer.URL(), issuer.HTTPClient())
	fake.AddRule(cloudtest.FederationRule{Issuer: issuer.URL(), Subject: "system:serviceaccount:tenant-a:app",
		Audience: "vault.example.com", Parameters: map[string]string{"role": "app"}})
	return cloud
}

// The rule holds for all parameters, and a refusal says which differ.
func TestPageShowsAFakeVault(t *testing.T) {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cloud := newVault(t, issuer)
	for role, want := range map[string]string{"app": "", "other": "the request differs in role"} {
		t.Run(role, func(t *testing.T) {
			sa := testenv.ServiceAccount("tenant-a", "app", exchange.VaultRoleAnnotation, role)
			p := exchange.NewVault(exchange.VaultServer{Address: "https://vault.example",
				KubernetesAudience: "vault.example.com"})
			_, err := auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(cloud.Client()),
				auth.WithServiceAccount(client.ObjectKeyFromObject(sa), issuer.Client(sa)), testenv.Owner("tenant-a"))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// The page shows this file, one of test/services and one of auth/grpccreds, and
// what it shows is accepted.
func TestPageShowsCompiledCode(t *testing.T) {
	page := document.Read(t, "docs/services.md")
	shown := 0
	for _, block := range page.Blocks("go") {
		if block.Heading == "Use" && shown == 0 || block.Heading == "gRPC" {
			shown++ // of test/services, and of auth/grpccreds
			continue
		}
		page.Shows("example_services_test.go", block.Text)
		shown++
	}
	if shown != 13 {
		t.Errorf("the page shows %d blocks of code", shown)
	}
	sa := testenv.ServiceAccount("tenant-a", "app", exchange.TailscaleClientIDAnnotation, "client-1")
	for _, p := range []*exchange.Provider{anthropicAPI, openAIAPI, databricks, keycloak, confluent, tailscale, vault,
		octoSTS, quay, dockerHub, anyService} {
		if audiences, err := p.GetAudiences(t.Context(), sa, nil); err != nil || len(audiences) != 1 {
			t.Errorf("%s: got the audiences %q, %v, want one", p.GetName(), audiences, err)
		}
	}
}
