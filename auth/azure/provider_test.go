package azure_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenantID  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	usTenant  = "11f988bf-86f1-41af-91ab-2d7cd011db47"
	cnTenant  = "22f988bf-86f1-41af-91ab-2d7cd011db47"
	ownTenant = "33f988bf-86f1-41af-91ab-2d7cd011db47"
	clientA   = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	clientB   = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	noClient  = "00007272-f186-41af-9f84-6a92e32d7cd0"
	domain    = "contoso.onmicrosoft.com"

	ownAuthority = "login.azs.contoso.example"
	ownManager   = "management.azs.contoso.example"
	ownRegistry  = "azurecr.azs.contoso.example"
)

// environment is a cluster with two tenants, and a cloud with an identity for
// each.
type environment struct {
	*testenv.Environment
	http *http.Client
}

func identity(namespace, name, tenant, clientID string) *corev1.ServiceAccount {
	return testenv.ServiceAccount(namespace, name, azure.ClientIDAnnotation, clientID, azure.TenantIDAnnotation, tenant)
}

func (w *environment) trust(tenant, clientID, namespace string) {
	w.trustFor(azure.DefaultAudience, tenant, clientID, testenv.Subject(namespace, "app"))
}

func (w *environment) trustFor(audience, tenant, clientID, subject string) {
	w.Cloud.Azure().AddFederatedCredential(tenant, clientID, cloudtest.FederatedCredential{Issuer: w.Issuer.URL(),
		Subject: subject, Audience: audience, Fetch: w.Issuer.HTTPClient()})
}

func newEnvironment(t testing.TB, more ...client.Object) *environment {
	t.Helper()
	more = append(more, identity("tenant-a", "app", tenantID, clientA), identity("tenant-b", "app", tenantID, clientB))
	w := &environment{Environment: testenv.New(t, more...)}
	w.http = w.Cloud.Client()
	w.Cloud.Azure().AddTenant("login.microsoftonline.com", tenantID, domain)
	w.trust(tenantID, clientA, "tenant-a")
	w.trust(tenantID, clientB, "tenant-b")
	return w
}

func (w *environment) get(t testing.TB, namespace, name string, more ...auth.Option) (*azure.Token, error) {
	t.Helper()
	return get(t, &azure.Provider{}, w.Options(namespace, name, more...)...)
}

func get(t testing.TB, p *azure.Provider, opts ...auth.Option) (*azure.Token, error) {
	t.Helper()
	token, err := auth.GetAccessToken(t.Context(), p, opts...)
	if err != nil {
		return nil, err
	}
	return azure.FromToken(token)
}

func (w *environment) whose(token *azure.Token) cloudtest.AzureIdentity {
	id, _ := w.Cloud.Azure().Identity(token.AccessToken().Token)
	return id
}

// clearEnvironment leaves nothing for the controller's own identity.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET",
		"AZURE_CLIENT_CERTIFICATE_PATH",
		"AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST",
		"AZURE_ENVIRONMENT_FILEPATH",
		"AZURE_USERNAME", "AZURE_PASSWORD", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET",
		"IMDS_ENDPOINT",
		"AZURE_REGIONAL_AUTHORITY_NAME", "AZURE_ADDITIONALLY_ALLOWED_TENANTS", "AZURE_KUBERNETES_TOKEN_PROXY",
		"AZURE_KUBERNETES_SNI_NAME", "AZURE_KUBERNETES_CA_FILE", "AZURE_KUBERNETES_CA_DATA"} {
		t.Setenv(name, "")
	}
}

func TestServiceAccountGetsItsIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	token, err := w.get(t, "tenant-a", "app")
	if err != nil {
		t.Fatal(err)
	}
	id := w.whose(token)
	if id.Tenant != tenantID || id.ClientID != clientA || id.Subject != "system:serviceaccount:tenant-a:app" ||
		id.Audience != "https://management.azure.com" {
		t.Errorf("got a token of %+v", id)
	}
	if token.GetDuration() > time.Hour || token.GetDuration() < 59*time.Minute || token.Tenant() != tenantID ||
		!token.RefreshAt().IsZero() || !strings.HasPrefix(fmt.Sprint(token), "Azure access token, redacted") {
		t.Errorf("token: %v, tenant %q", token, token.Tenant())
	}
	calls := w.Cloud.Log()
	if len(calls) != 1 || calls[0].Host != "login.microsoftonline.com" ||
		calls[0].Parameters["grant_type"] != "client_credentials" {
		t.Errorf("calls: %+v", calls)
	}
}

// The tenant is the controller's where the ServiceAccount names none; a domain
// will do.
func TestTenant(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("AZURE_TENANT_ID", tenantID)
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "domain", azure.ClientIDAnnotation, clientA,
		azure.TenantIDAnnotation, domain))
	w.trustFor(azure.DefaultAudience, tenantID, clientA, "system:serviceaccount:tenant-a:domain")
	w.trustFor(azure.DefaultAudience, tenantID, clientA, "system:serviceaccount:tenant-a:default")
	if _, err := w.get(t, "tenant-a", "domain"); err != nil {
		t.Error(err)
	}
	sa := testenv.ServiceAccount("tenant-a", "default", azure.ClientIDAnnotation, clientA)
	if err := w.Client.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	token, err := w.get(t, "tenant-a", "default")
	if err != nil || token.Tenant() != tenantID {
		t.Errorf("got %v, %v", token, err)
	}
	got, err := (&azure.Provider{}).GetIdentity(sa, &provider.Options{})
	if err != nil || got != tenantID+"/"+clientA {
		t.Errorf("identity %q, %v", got, err)
	}
}

// The error of a refusal has what an administrator of the application needs,
// and the same text at each try.
func TestRefusalOfTheApplication(t *testing.T) {
	w := newEnvironment(t, identity("tenant-b", "thief", tenantID, clientA))
	_, err := w.get(t, "tenant-b", "thief")
	testenv.CheckError(t, err, auth.ErrDenied, `azure: ServiceAccount "tenant-b/thief"`, "AADSTS700213", "HTTP 401",
		fmt.Sprintf("client ID %q of tenant %q", clientA, tenantID), `"system:serviceaccount:tenant-b:thief"`,
		"federated credential")
	var known *auth.Error
	if !errors.As(err, &known) || known.RequestID == "" || known.Code != "AADSTS700213" {
		t.Errorf("the request ID is lost: %+v", known)
	}
	if strings.Contains(err.Error(), "Trace ID") || strings.Contains(err.Error(), "Timestamp") {
		t.Errorf("the text changes from try to try: %v", err)
	}
}

func TestAnnotationsThatAreMalformed(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t,
		testenv.ServiceAccount("tenant-a", "none"),
		testenv.ServiceAccount("tenant-a", "spelling", "azure.workload.identity/client_id", clientA),
		testenv.ServiceAccount("tenant-a", "empty", azure.ClientIDAnnotation, "", azure.TenantIDAnnotation, tenantID),
		identity("tenant-a", "resource", tenantID, "/subscriptions/x/resourceGroups/y"),
		identity("tenant-a", "braces", tenantID, "{"+clientA+"}"),
		identity("tenant-a", "huge", tenantID, strings.Repeat("x", 200_000)),
		identity("tenant-a", "escape", tenantID, "\x1b[31m\n"),
		testenv.ServiceAccount("tenant-a", "no-tenant", azure.ClientIDAnnotation, clientA),
		identity("tenant-a", "path", "x.example/../"+tenantID, clientA),
		identity("tenant-a", "common", "common", clientA),
		identity("tenant-a", "query", tenantID+"?a=b", clientA),
		identity("tenant-a", "empty-tenant", "", clientA),
		testenv.ServiceAccount("tenant-a", "soon", azure.ClientIDAnnotation, clientA, azure.TenantIDAnnotation, tenantID,
			azure.TokenExpirationAnnotation, "1"),
		testenv.ServiceAccount("tenant-a", "word", azure.ClientIDAnnotation, clientA, azure.TenantIDAnnotation, tenantID,
			azure.TokenExpirationAnnotation, "1h"),
		testenv.ServiceAccount("tenant-a", "never", azure.ClientIDAnnotation, clientA, azure.TenantIDAnnotation, tenantID,
			azure.TokenExpirationAnnotation, "99999999999999999999"),
	)
	for name, want := range map[string][]string{
		"none":         {azure.ClientIDAnnotation, "missing"},
		"spelling":     {azure.ClientIDAnnotation, "missing"},
		"empty":        {"not a GUID", `""`},
		"resource":     {"not a GUID", `"/subscriptions/x/resourceGroups/y"`, "resource ID"},
		"braces":       {"not a GUID"},
		"huge":         {"xxx"},
		"escape":       {`\x1b`, `\n`},
		"no-tenant":    {azure.TenantIDAnnotation, "AZURE_TENANT_ID"},
		"path":         {"x.example/../"},
		"common":       {`"common"`},
		"query":        {"?a=b"},
		"empty-tenant": {`""`},
		"soon":         {azure.TokenExpirationAnnotation, `"1"`, "600"},
		"word":         {`"1h"`},
		"never":        {`"99999999999999999999"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, "tenant-a", name)
			testenv.CheckError(t, err, auth.ErrMisconfigured, want...)
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

// Scopes and authority split the cache, and so do claims.
func TestScopes(t *testing.T) {
	w := newEnvironment(t)
	tokens, p := testenv.Cache(t), &azure.Provider{}
	cached := testenv.WithCache(tokens, "tenant-a")
	for range 2 {
		for scope, audience := range map[string]string{
			"https://storage.azure.com/.default": "https://storage.azure.com",
			"https://vault.azure.net/.default":   "https://vault.azure.net",
		} {
			token, err := get(t, p, w.Options("tenant-a", "app", cached, auth.WithScopes(scope))...)
			if err != nil || w.whose(token).Audience != audience {
				t.Errorf("%s: %v", scope, err)
			}
		}
	}
	if n := w.Cloud.Calls("entra", "token"); n != 2 {
		t.Errorf("%d exchanges", n)
	}
	_, err := w.get(t, "tenant-a", "app", auth.WithScopes("https://nobody.example/.default"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "AADSTS500011", "/.default")
	_, err = w.get(t, "tenant-a", "app", auth.WithScopes("https://vault.azure.net"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "AADSTS1002012")
}

func TestNothingFallsBack(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().RemoveFederatedCredentials(tenantID, clientA)
	w.Cloud.Azure().SetClientSecret(tenantID, clientB, "controller's secret")
	w.Cloud.Azure().SetManagedIdentity(tenantID, clientB)
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", "controller's secret")
	defaultTransport, defaultClient := http.DefaultTransport, http.DefaultClient
	http.DefaultTransport, http.DefaultClient = trap{t}, &http.Client{Transport: trap{t}}
	defer func() { http.DefaultTransport, http.DefaultClient = defaultTransport, defaultClient }()
	token, err := w.get(t, "tenant-a", "app")
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS70025", clientA)
	if token != nil || w.Cloud.Calls("", "") != 1 {
		t.Errorf("got %v after %+v", token, w.Cloud.Log())
	}
}

type trap struct{ t *testing.T }

func (b trap) RoundTrip(r *http.Request) (*http.Response, error) {
	b.t.Errorf("http.DefaultTransport was used for %s", r.URL.Host)
	return nil, errors.New("trapped")
}

func TestConformance(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t, identity("tenant-b", "thief", tenantID, clientA), identity("tenant-a", "bad", tenantID, "app"))
	w.trust(tenantID, clientB, "tenant-a")
	w.Cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}})
	w.Cloud.Azure().SetCluster(clusterID, cluster())
	h := w.harness(func() *azure.Provider { return &azure.Provider{} })
	h.Fields = map[string]any{"AuthorityHost": "https://login.microsoftonline.us", "PrivateClouds": nil,
		"Audience": "other", "IdentityBindings": nil} // TestIdentityBindingsConformance turns it on
	h.Options = []auth.Option{auth.WithHTTPClient(w.http)}
	h.Repository, h.GitURL = "example.azurecr.io/team/app", "https://dev.azure.com/org/project/_git/app"
	h.Cluster = []auth.Option{auth.WithClusterResource(clusterID)}
	h.ForeignRepositories = []string{"example.azurecr.io.evil.example/app", "ghcr.io/app", "example.azurecr.us/app"}
	h.ForeignGitURLs = []string{"https://dev.azure.com.evil.example/o/p/_git/r", "https://ssh.dev.azure.com/v3/o/p/r",
		"https://github.com/o/r"}
	authtest.RunConformance(t, h)
}

// harness is for ServiceAccounts with client A and a fault of the whole cloud.
func (w *environment) harness(newProvider func() *azure.Provider) authtest.Harness {
	return authtest.Harness{
		NoRegions: true,
		New:       func(*testing.T) auth.Provider { return newProvider() },
		Client:    w.Client,
		Annotations: map[string]string{azure.TokenExpirationAnnotation: "1800", azure.ClientIDAnnotation: clientB,
			azure.TenantIDAnnotation: domain},
		Good:      client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Other:     client.ObjectKey{Namespace: "tenant-b", Name: "app"},
		Refused:   client.ObjectKey{Namespace: "tenant-b", Name: "thief"},
		Malformed: client.ObjectKey{Namespace: "tenant-a", Name: "bad"},
		Break:     w.Break,
		Calls:     func() int { return w.Cloud.Calls("", "") },
		Secrets: func(t *testing.T, token auth.Token) []string {
			own, err := azure.FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return []string{own.AccessToken().Token}
		},
	}
}
