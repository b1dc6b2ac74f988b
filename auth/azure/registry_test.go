package azure_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func (w *environment) registryCredentials(t testing.TB, p *azure.Provider, name, repository string,
	more ...auth.Option) (*auth.ArtifactRegistryCredentials, error) {
	t.Helper()
	return auth.GetArtifactRegistryCredentials(t.Context(), p, repository, w.Options("tenant-a", name, more...)...)
}

func TestRegistry(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: domain, Pull: []string{clientA}})
	c, err := w.registryCredentials(t, &azure.Provider{}, "app", "Example.azurecr.io/team/app")
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.Authorization()
	if err != nil || config.Username != "00000000-0000-0000-0000-000000000000" {
		t.Errorf("user %q, %v", config.Username, err)
	}
	id, ok := w.Cloud.Azure().Identity(config.Password)
	if !ok || id.ClientID != clientA || id.Audience != "example.azurecr.io" ||
		c.ExpiresAt() != id.Expiration.Truncate(time.Second) {
		t.Errorf("got the credentials of %+v until %s", id, c.ExpiresAt())
	}
	last := w.Cloud.Log()[len(w.Cloud.Log())-1]
	if last.Service != "acr" || last.Parameters["grant_type"] != "access_token" ||
		last.Parameters["service"] != "example.azurecr.io" || last.Parameters["tenant"] != tenantID {
		t.Errorf("the exchange: %+v", last)
	}
}

func TestRegistriesOfOtherClouds(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	p := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}
	for name, tc := range map[string]struct{ host, authority, tenant string }{
		"us":  {"example-abc123.azurecr.us", "https://login.microsoftonline.us", usTenant},
		"cn":  {"example.azurecr.cn", "https://login.chinacloudapi.cn", cnTenant},
		"own": {"example." + ownRegistry, "https://" + ownAuthority, ownTenant},
	} {
		w.Cloud.Azure().SetRegistry(tc.host, cloudtest.AzureRegistry{Tenant: tc.tenant, Pull: []string{clientA}})
		if _, err := w.registryCredentials(t, p, name, tc.host+"/app", azure.WithAuthorityHost(tc.authority)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, err := w.registryCredentials(t, p, "public", tc.host+"/app")
		testenv.CheckError(t, err, auth.ErrMisconfigured, tc.host, "authority to Azure", "WithAuthorityHost",
			strings.TrimSuffix(tc.authority, "/"))
	}
}

func TestRegistryThatRefuses(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientB}})
	w.Cloud.Azure().SetRegistry("foreign.azurecr.io", cloudtest.AzureRegistry{Tenant: usTenant, Pull: []string{clientA}})
	for _, host := range []string{"example.azurecr.io", "foreign.azurecr.io"} {
		_, err := w.registryCredentials(t, &azure.Provider{}, "app", host+"/app")
		testenv.CheckError(t, err, auth.ErrDenied, host, "AcrPull", "HTTP 401", "UNAUTHORIZED",
			"ABAC", "Container Registry Repository Reader")
	}
	_, err := w.registryCredentials(t, &azure.Provider{}, "app", "absent.azurecr.io/app")
	testenv.CheckError(t, err, auth.ErrMisconfigured, "absent.azurecr.io", "HTTP 404")
}

func jwtWith(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + ".signature-of-it"
}

// Whatever a registry answers, there is a credential with an end or an error.
func TestAnswersOfTheRegistry(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}})
	refresh := func(claims string) cloudtest.Fault {
		return cloudtest.Fault{Service: "acr", Body: fmt.Sprintf(`{"refresh_token":%q}`, jwtWith(claims))}
	}
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"no exp":   {refresh(`{"sub":"x"}`), auth.ErrUnavailable, "expiry is missing"},
		"exp null": {refresh(`{"exp":null}`), auth.ErrUnavailable, "expiry is missing"},
		"exp text": {refresh(`{"exp":"soon"}`), auth.ErrUnavailable, "refresh_token"},
		"expired":  {refresh(`{"exp":1000000000}`), auth.ErrUnavailable, "it expired at 2001-09-09"},
		"for ever": {refresh(`{"exp":9999999999}`), auth.ErrUnavailable, "later than any"},
		"no JWT": {cloudtest.Fault{Service: "acr", Body: `{"refresh_token":"opaque"}`}, auth.ErrUnavailable,
			"not a JWT"},
		"no token": {cloudtest.Fault{Service: "acr", Body: `{"access_token":"x"}`}, auth.ErrUnavailable, "missing"},
		"injection": {cloudtest.Fault{Service: "acr", Body: `{"refresh_token":"a.b\r\n.c"}`}, auth.ErrUnavailable,
			"malformed"},
		"HTML": {cloudtest.Fault{Service: "acr", Body: "<html>"}, auth.ErrUnavailable, "JSON object"},
		"empty": {cloudtest.Fault{Service: "acr", Rewrite: func([]byte) []byte {
			return nil
		}}, auth.ErrUnavailable, "JSON object"},
		"redirect": {cloudtest.Fault{Service: "acr", Redirect: "https://evil.example/"}, auth.ErrUnavailable, "redirect"},
		"throttled": {cloudtest.Fault{Service: "acr", Status: 429, Code: "TOOMANYREQUESTS", Message: "slow down",
			RetryAfter: "60"}, auth.ErrThrottled, "slow down"},
		"down": {cloudtest.Fault{Service: "acr", Status: 503, Code: "UNAVAILABLE", Message: "down"},
			auth.ErrUnavailable, "HTTP 503"},
		"HTML of 403": {cloudtest.Fault{Service: "acr", Status: 403, Rewrite: nil}, auth.ErrDenied, "HTTP 403"},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.Cloud.AddFault(tc.fault)()
			c, err := w.registryCredentials(t, &azure.Provider{}, "app", "example.azurecr.io/app")
			if c != nil {
				t.Errorf("got %v", c)
			}
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

// The password goes to no host that only looks like a registry.
func TestRegistriesThatAreRefused(t *testing.T) {
	clearEnvironment(t)
	p := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}
	for _, repository := range []string{
		"", "example", "azurecr.io", ".azurecr.io", "example.azurecr.io.evil.example/app", "example.azurecr.ioevil.example",
		"example-azurecr.io", "exampleazurecr.io",
		"evil.example/example.azurecr.io", "a.b.azurecr.io", "example.westeurope.data.azurecr.io", "shrt.azurecr.io",
		strings.Repeat("a", 51) + ".azurecr.io",
		"exam_ple.azurecr.io", "exa-mple.azurecr.io", "example-.azurecr.io", "-example.azurecr.io",
		"example.azurecr.io:8443/app", "example.azurecr.io:0443/app", "example.azurecr.io:/app", "example.azurecr.io./app",
		"https://example.azurecr.io/app", "oci://example.azurecr.io/app", "user@example.azurecr.io/app",
		"example.azurecr.io@evil.example/app", "example.azurecr.io?x", "example.azurecr.io#x",
		"example.azurecr.io\n", " example.azurecr.io", "example。azurecr.io", "ex%61mple.azurecr.io", "example.azurecr.com",
		"example.azurecr.uk", "example.azurecr.de", "mcr.microsoft.com/app",
		"exampleazurecr.azs.contoso.example", "example.evilazurecr.azs.contoso.example",
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com/app", "ghcr.io/app",
	} {
		if input, err := p.ParseArtifactRepository(repository, &provider.Options{}); err == nil &&
			repository != "exa-mple.azurecr.io" {
			t.Errorf("%q is accepted as %q", repository, input)
		}
	}
	for _, repository := range []string{"example.azurecr.io", "EXAMPLE.azurecr.IO/app", "example.azurecr.io:443/app",
		"a1234.azurecr.io/a/b/c", "example-h4sh.azurecr.io/app", strings.Repeat("a", 50) + ".azurecr.io"} {
		if _, err := p.ParseArtifactRepository(repository, &provider.Options{}); err != nil {
			t.Error(err)
		}
	}
}
