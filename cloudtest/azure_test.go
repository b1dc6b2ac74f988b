package cloudtest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	entraTenant   = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	entraClient   = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	entraToken    = "https://login.microsoftonline.com/" + entraTenant + "/oauth2/v2.0/token"
	entraAudience = "api://AzureADTokenExchange"
)

// azureEnvironment is a cloud with one identity, which trusts one
// ServiceAccount of the issuer.
type azureEnvironment struct{ *testenv.Environment }

func newAzureEnvironment(t *testing.T) *azureEnvironment {
	t.Helper()
	w := &azureEnvironment{testenv.New(t)}
	w.Cloud.Azure().AddFederatedCredential(entraTenant, entraClient, cloudtest.FederatedCredential{Issuer: w.Issuer.URL(),
		Subject: testenv.Subject("ns", "app"), Audience: entraAudience, Fetch: w.Issuer.HTTPClient()})
	return w
}

func (w *azureEnvironment) post(t *testing.T, address string, form url.Values) (
	status int, text string, header http.Header,
) {
	t.Helper()
	return send(t, w.Cloud, http.MethodPost, address, form.Encode())
}

func (w *azureEnvironment) get(t *testing.T, address, bearer string) (status int, text string) {
	t.Helper()
	if bearer != "" {
		bearer = "Bearer " + bearer
	}
	status, text, _ = send(t, w.Cloud, http.MethodGet, address, "", "Authorization", bearer)
	return status, text
}

func (w *azureEnvironment) assertion(t *testing.T, change func(claims, header map[string]any)) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app"}}
	claims, header := w.Issuer.Claims(sa, []string{entraAudience}, time.Hour), map[string]any{}
	change(claims, header)
	sign := func() (string, error) { return w.Issuer.Sign(claims) }
	if len(header) > 0 {
		sign = func() (string, error) { return w.Issuer.SignWithHeader(claims, header) }
	}
	jwt, err := sign()
	if err != nil {
		t.Fatal(err)
	}
	return jwt
}

func nothing(map[string]any, map[string]any) {}

func (w *azureEnvironment) form(t *testing.T, scope string) url.Values {
	return url.Values{"grant_type": {"client_credentials"}, "client_id": {entraClient}, "scope": {scope},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {w.assertion(t, nothing)}}
}

func (w *azureEnvironment) token(t *testing.T, scope string) string {
	t.Helper()
	status, text, _ := w.post(t, entraToken, w.form(t, scope))
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || answer.Token == "" {
		t.Fatalf("got %d %s, want a token", status, text)
	}
	return answer.Token
}

// The fake refuses every fault of a token request with the answer of Entra.
func TestEntraRefuses(t *testing.T) {
	w := newAzureEnvironment(t)
	const scope = "https://management.azure.com/.default"
	set := func(name, value string) func(url.Values) { return func(f url.Values) { f.Set(name, value) } }
	forged := func(change func(claims, header map[string]any)) func(url.Values) {
		return set("client_assertion", w.assertion(t, change))
	}
	good := w.assertion(t, nothing)
	for name, tc := range map[string]struct {
		address string
		change  func(url.Values)
		status  int
		kind    string
		want    string
	}{
		"no such tenant": {strings.Replace(entraToken, "72f988bf", "00000000", 1), set("x", ""), 400, "invalid_request",
			"AADSTS90002: Tenant '00000000-86f1"},
		"other cloud": {strings.Replace(entraToken, ".com", ".us", 1), set("x", ""), 400, "invalid_request",
			"AADSTS90002"},
		"bad tenant": {strings.Replace(entraToken, entraTenant, "${TENANT}", 1), set("x", ""), 400, "invalid_request",
			"AADSTS900023"},
		"no such client": {"", set("client_id", "x"), 400, "unauthorized_client",
			"AADSTS700016: Application with identifier 'x'"},
		"grant":        {"", set("grant_type", "password"), 400, "unsupported_grant_type", "AADSTS70003"},
		"no assertion": {"", set("client_assertion", ""), 401, "invalid_client", "AADSTS7000218"},
		"no JWT":       {"", set("client_assertion", "a.b.c"), 400, "invalid_request", "AADSTS50027"},
		"alg none": {"", forged(func(_, h map[string]any) {
			h["alg"] = "none"
		}), 400, "invalid_request", "AADSTS50027"},
		"cut signature": {"", set("client_assertion", good[:len(good)-8]), 401, "invalid_client", "AADSTS50013"},
		"no kid": {"", forged(func(_, h map[string]any) {
			h["alg"] = "RS256"
		}), 401, "invalid_client", "AADSTS7000272: The certificate with identifier  used"},
		"issuer": {"", forged(func(c, _ map[string]any) {
			c["iss"] = "https://issuer.example/"
		}), 401, "invalid_client", "AADSTS700211"},
		"subject": {"", forged(func(c, _ map[string]any) {
			c["sub"] = "system:serviceaccount:ns:other"
		}), 401, "invalid_client", "AADSTS700213"},
		"case of subject": {"", forged(func(c, _ map[string]any) {
			c["sub"] = "system:serviceaccount:NS:app"
		}), 401, "invalid_client", "AADSTS7002138"},
		"audience": {"", forged(func(c, _ map[string]any) {
			c["aud"] = []string{"other"}
		}), 401, "invalid_client", "AADSTS700212"},
		"expired": {"", forged(func(c, _ map[string]any) {
			c["exp"] = time.Now().Add(-time.Hour).Unix()
		}), 401, "invalid_client", "AADSTS700024"},
		"no exp": {"", forged(func(c, _ map[string]any) {
			delete(c, "exp")
		}), 401, "invalid_client", "AADSTS700024"},
		"not yet valid": {"", forged(func(c, _ map[string]any) {
			c["nbf"] = time.Now().Add(time.Hour).Unix()
		}), 401, "invalid_client", "AADSTS700024"},
		"secret":      {"", set("client_secret", "x"), 401, "invalid_client", "AADSTS7000215"},
		"no .default": {"", set("scope", "https://management.azure.com"), 400, "invalid_scope", "AADSTS1002012"},
		"two resources": {"", set("scope", scope+" https://vault.azure.net/.default"), 400, "invalid_request",
			"AADSTS28000"},
		"unknown scope": {"", set("scope", "https://example.azurecr.io/.default"), 400, "invalid_resource", "AADSTS500011"},
	} {
		form := w.form(t, scope)
		tc.change(form)
		if tc.address == "" {
			tc.address = entraToken
		}
		status, text, header := w.post(t, tc.address, form)
		var body struct {
			Kind        string `json:"error"`
			Description string `json:"error_description"`
			Trace       string `json:"trace_id"`
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil || status != tc.status || body.Kind != tc.kind ||
			!strings.HasPrefix(body.Description, tc.want) {
			t.Errorf("%s: got %d %s, %v, want %d %s %s", name, status, text, err, tc.status, tc.kind, tc.want)
		}
		if header.Get("Content-Type") != "application/json; charset=utf-8" || header.Get("x-ms-request-id") != body.Trace ||
			body.Trace == "" {
			t.Errorf("%s: headers %v", name, header)
		}
		if strings.Contains(text, "eyJ") {
			t.Errorf("%s: the answer quotes the assertion", name)
		}
	}
}

// Services accept only unexpired tokens for themselves.
func TestAzureServicesVerify(t *testing.T) {
	w := newAzureEnvironment(t)
	const cluster = "/subscriptions/0b1f6471-1bf0-4dda-aec3-111122223333/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	azure := w.Cloud.Azure()
	azure.SetCluster(cluster,
		cloudtest.AzureCluster{Tenant: entraTenant, Users: []string{entraClient},
			Addresses: []string{"https://x.azmk8s.io:443"}})
	azure.SetGitRepository("o/p/_git/r", entraClient)
	azure.SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: entraTenant, Pull: []string{entraClient}})
	addresses := map[string]string{
		"https://management.azure.com/.default":         "https://management.azure.com" + cluster + "?api-version=2023-10-01",
		"499b84ac-1321-427f-aa17-267ca6975798/.default": "https://dev.azure.com/o/p/_git/r/info/refs?service=git-upload-pack",
	}
	for scope, address := range addresses {
		token := w.token(t, scope)
		if status, text := w.get(t, address, token); status != http.StatusOK {
			t.Errorf("%s: got %d %s, want 200", address, status, text)
		}
		for other, elsewhere := range addresses {
			if status, _ := w.get(t, elsewhere, token); other != scope && status != http.StatusUnauthorized {
				t.Errorf("%s accepts a token for %s: %d", elsewhere, scope, status)
			}
		}
		for _, bad := range []string{"", "x", token + "x"} {
			if status, _ := w.get(t, address, bad); status != http.StatusUnauthorized {
				t.Errorf("%s: %d without a token", address, status)
			}
		}
		w.Cloud.SetClock(func() time.Time { return time.Now().Add(2 * time.Hour) })
		if status, _ := w.get(t, address, token); status != http.StatusUnauthorized {
			t.Errorf("%s: %d with a token that has expired", address, status)
		}
		w.Cloud.SetClock(nil)
		exchange := url.Values{"grant_type": {"access_token"}, "service": {"example.azurecr.io"}, "access_token": {token}}
		want := http.StatusUnauthorized
		if strings.HasPrefix(scope, "https://management") {
			want = http.StatusOK
		}
		if status, text, _ := w.post(t, "https://example.azurecr.io/oauth2/exchange", exchange); status != want {
			t.Errorf("the registry with a token for %s: %d, %s", scope, status, text)
		}
	}
}

func TestEntraIssuesTokensForResourcesThatTheTenantHas(t *testing.T) {
	const database, ownAPI, guid = "https://database.windows.net", "api://widgets", "3f1b0a52-0000-4000-8000-000000000001"
	w := newAzureEnvironment(t)
	azure := w.Cloud.Azure()
	azure.AddResource("00000000-0000-0000-0000-000000000001", database) // another tenant
	azure.SetManagedIdentity(entraTenant, entraClient)
	metadata := func(resource string) (int, string) {
		status, text, _ := send(t, w.Cloud, http.MethodGet,
			"http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource="+
				url.QueryEscape(resource), "", "Metadata", "true")
		return status, text
	}
	for _, resource := range []string{database, ownAPI, guid} {
		const want = `"AADSTS500011: The resource principal named `
		if status, text, _ := w.post(t, entraToken, w.form(t, resource+"/.default")); status != http.StatusBadRequest ||
			!strings.Contains(text, want+resource) {
			t.Errorf("%s before it is registered: %d %s", resource, status, text)
		}
		if status, text := metadata(resource); status != http.StatusBadRequest || !strings.Contains(text, want+resource) {
			t.Errorf("%s from the metadata service: %d %s", resource, status, text)
		}
	}
	azure.AddResource(entraTenant, database+"/", ownAPI, guid)
	for _, resource := range []string{database, ownAPI, guid} {
		token := w.token(t, resource+"/.default")
		if id, ok := azure.Identity(token); !ok || id.Audience != resource || id.ClientID != entraClient {
			t.Errorf("%s: got a token of %+v", resource, id)
		}
		if status, text := metadata(resource); status != http.StatusOK {
			t.Errorf("%s from the metadata service: %d %s", resource, status, text)
		}
	}
}
