package azuretrust_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/azuretrust"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/trusttest"
)

// What fits passes, with few calls, and says whose rights it took.
func TestHealthy(t *testing.T) {
	fits := func(*authtest.FederatedCredential) {}
	other := func(c *authtest.FederatedCredential) { c.Issuer, c.Subject = "https://other.example/", "x" }
	for name, tc := range map[string]struct {
		change func(w *world)
		calls  int
	}{
		"managed identity":   {(*world).managed, 2},
		"by its resource ID": {func(w *world) { w.managed(); w.reader.IdentityID = strings.ToUpper(resourceID) }, 2},
		"application":        {(*world).application, 2},
		"several":            {func(w *world) { w.managed(); w.trust(other, fits, other) }, 2},
		"two of one issuer":  {func(w *world) { w.managed(); w.trust(fits, func(c *authtest.FederatedCredential) { c.Subject = "y" }) }, 2},
		"others of the group": {func(w *world) {
			w.managed()
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID+"2", tenant, platform, platform)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report := w.run()
			if f := report.Of("trust-anchor"); f.Result != doctor.Pass || !strings.Contains(f.Message, "read as object ID ") || !strings.Contains(f.Message, platform) {
				t.Errorf("%+v", f)
			}
			if f := report.Of("exchange"); f.Result != doctor.Pass || report.Of("trust-rule").Result != doctor.Skip {
				t.Errorf("%s", report)
			}
			if n := w.Cloud.Calls("arm", "") + w.Cloud.Calls("graph", ""); n != tc.calls {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// The one field that differs is found, for managed identities and for applications.
func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name        string
		changes     []func(*authtest.FederatedCredential)
		class, text string
	}{
		{"none", nil, "Z6", "no federated credential"},
		{"slash", []func(*authtest.FederatedCredential){func(c *authtest.FederatedCredential) { c.Issuer += "/" }}, "Z2", "only by the /"},
		{"issuer", []func(*authtest.FederatedCredential){func(c *authtest.FederatedCredential) { c.Issuer = "https://other.example" }}, "Z2", "hosts differ"},
		{"subject", []func(*authtest.FederatedCredential){func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:a:b" }}, "Z4", "differs in subject"},
		{"case", []func(*authtest.FederatedCredential){func(c *authtest.FederatedCredential) { c.Subject = strings.ToUpper(subject) }}, "Z5", "upper and lower case"},
		{"audience", []func(*authtest.FederatedCredential){func(c *authtest.FederatedCredential) { c.Audience = "api://AzureADTokenExchangeChina" }}, "Z3", "differs in audience"},
		{"the closest", []func(*authtest.FederatedCredential){
			func(c *authtest.FederatedCredential) { c.Issuer, c.Subject = "https://other.example", "y" },
			func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:other" },
		}, "Z4", "credential-2, 2 of 2"},
	} {
		for kind, make := range map[string]func(*world){"managed identity": (*world).managed, "application": (*world).application} {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				w := newWorld(t)
				make(w)
				w.trust(tc.changes...)
				f := w.run().Worst()
				if f.ID != "trust-anchor" || f.Class != tc.class || !strings.Contains(f.Message, tc.text) || f.Remedy == "" {
					t.Errorf("%+v", f)
				}
				if !strings.HasPrefix(f.Fields[len(f.Fields)-1].Observed, "object ID ") {
					t.Errorf("whose rights: %+v", f)
				}
			})
		}
	}
}

// What could not be looked at is unknown, and says why and what to do.
func TestUnknown(t *testing.T) {
	fault := func(service, action string, f authtest.Fault) func(w *world) {
		return func(w *world) {
			w.managed()
			f.Service, f.Action = service, action
			w.Cloud.AddFault(f)
		}
	}
	rewrite := func(from, to string) func(w *world) {
		return fault("arm", "", authtest.Fault{Rewrite: func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), from, to)) }})
	}
	const list = "federatedIdentityCredentials"
	for _, tc := range []struct {
		name          string
		change        func(w *world)
		message, does string
	}{
		{"nothing is visible", func(*world) {}, "no managed identity with client ID " + appID + " is visible to object ID ", "Application.Read.All"},
		{"no application either", func(w *world) {
			w.application()
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, appID)
		}, "there is no application with it in tenant " + tenant, "az identity list"},
		{"by a name that is not visible", func(w *world) {
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, appID)
			w.reader.IdentityID = resourceID
		}, "refuses Microsoft.ManagedIdentity/userAssignedIdentities/read to object ID ", "grant"},
		{"another identity's name", func(w *world) {
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, platform, platform)
			w.reader.IdentityID = resourceID
		}, "has the client ID \"" + platform, "correct"},
		{"no name", func(w *world) { w.reader.IdentityID = "/subscriptions/../x" }, "not the resource ID", "az identity show"},
		{"another tenant", func(w *world) { w.login(otherTenant) }, "is in tenant \"" + otherTenant, "az login --tenant " + tenant},
		{"no login", func(w *world) { w.Setenv("AZURE_CLIENT_SECRET", "wrong") }, "refuses the login for Azure with AADSTS7000215", "az login"},
		{"no such credential", func(w *world) { w.Setenv("AZURE_TOKEN_CREDENTIALS", "nonsense") }, "no login for Azure", "az login"},
		{"another cloud", func(w *world) { w.reader.AuthorityHost = "https://login.private.example" }, "only public clouds", "--trust-file"},
		{"refused", fault("arm", list, authtest.Fault{Status: 403, Code: "AuthorizationFailed", Message: "no"}), "refuses Microsoft.ManagedIdentity", "az identity federated-credential list --identity-name app --resource-group rg-apps"},
		{"signed out", fault("arm", list, authtest.Fault{Status: 401, Code: "ExpiredAuthenticationToken", Message: "old"}), "does not accept your login", "log in again"},
		{"throttled", fault("arm", list, authtest.Fault{Status: 429, Code: "TooManyRequests", RetryAfter: "60"}), "slow down", ""},
		{"outage", fault("arm", list, authtest.Fault{Status: 503, Code: "ServiceUnavailable", RetryAfter: "60"}), "answers 503", ""},
		{"web page", fault("arm", list, authtest.Fault{Body: "<html>"}), "no answer of it", ""},
		{"web page", fault("arm", "resourceGraph", authtest.Fault{Body: "<html>"}), "no answer of it", ""},
		{"nothing in it", fault("arm", list, authtest.Fault{Body: "{}"}), "it lacks", ""},
		{"null", fault("arm", list, authtest.Fault{Body: `{"value":[null]}`}), "it lacks", ""},
		{"large", fault("arm", list, authtest.Fault{Body: `{"value":["` + strings.Repeat("x", 10<<20)}), "larger than", ""},
		{"redirect", fault("arm", list, authtest.Fault{Redirect: "https://evil.example/"}), "redirect", ""},
		{"cut", fault("arm", list, authtest.Fault{Cut: true}), "no usable answer", ""},
		{"next page elsewhere", fault("arm", list, authtest.Fault{Body: `{"value":[],"nextLink":"https://evil.example/x"}`}), "it lacks", ""},
		{"pages without end", fault("arm", list, authtest.Fault{Body: `{"value":[],"nextLink":"https://management.azure.com` + resourceID + `/federatedIdentityCredentials?api-version=1"}`}), "it lacks", ""},
		{"hostile resource ID", rewrite(`"id":"/subscriptions`, `"id":"@evil.example/subscriptions`), "it lacks", ""},
		{"an expression", rewrite(subject, ""), "by an expression", "by hand"},
		{"web page of Graph", func(w *world) {
			w.application()
			w.Cloud.AddFault(authtest.Fault{Service: "graph", Body: "<html>"})
		}, "Microsoft Graph gives no usable answer", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.Unclear(w.run(), "trust-anchor", tc.message, tc.does)
			if w.Cloud.Calls("arm", list) > 3 {
				t.Errorf("%d pages", w.Cloud.Calls("arm", list))
			}
		})
	}
}

// Whatever does not answer is given up in time.
func TestHanging(t *testing.T) {
	for _, service := range []string{"arm", "graph"} {
		newWorld(t).GivesUp(authtest.Fault{Service: service, Hang: true})
	}
}

// The other clouds of Microsoft have hosts of their own.
func TestOtherCloud(t *testing.T) {
	w := newWorld(t)
	const chinese = "88f988bf-86f1-41af-91ab-2d7cd011db88"
	w.Cloud.Azure().AddTenant("login.chinacloudapi.cn", chinese)
	w.login(chinese)
	w.Cloud.Azure().SetApplicationReaders(chinese, platform)
	w.Cloud.Azure().AddFederatedCredential(chinese, appID, authtest.FederatedCredential{Issuer: "x", Subject: "y", Audience: "z"})
	w.reader.AuthorityHost = "https://login.chinacloudapi.cn/"
	trust, err := w.reader.ReadTrust(t.Context(), doctor.TrustQuery{Identity: chinese + "/" + appID})
	if err != nil || trust.AnchorErr != nil || len(trust.Anchors) != 1 || trust.Anchors[0].Audiences[0] != "z" {
		t.Fatalf("%+v, %v", trust, err)
	}
	for _, call := range w.Cloud.Log() {
		if !strings.HasSuffix(call.Host, "chinacloudapi.cn") {
			t.Errorf("%+v", call)
		}
	}
}

func TestIdentities(t *testing.T) {
	for _, identity := range []string{"", "x", tenant, tenant + "/", tenant + "/x", "x'/" + appID, tenant + "/" + appID + "') or ('"} {
		if trust, err := (&azuretrust.Reader{}).ReadTrust(t.Context(), doctor.TrustQuery{Identity: identity}); err == nil || trust != nil {
			t.Errorf("%q: %+v", identity, trust)
		}
	}
}

// signedIn is a login with a given token.
type signedIn string

func (s signedIn) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// FuzzAnswers has whatever comes instead of a list either understood or refused.
func FuzzAnswers(f *testing.F) {
	f.Add(200, `{"value":[{"name":"a","properties":{"issuer":"b","subject":"c","audiences":["d"]}}]}`, "")
	f.Add(200, `{"value":[{"name":"a","issuer":"b","subject":"c","audiences":["d"]}],"@odata.nextLink":"https://graph.microsoft.com/x"}`, `{"oid":"x","tid":"y","upn":"z"}`)
	f.Add(200, `{"data":[{"id":"`+resourceID+`"}]}`, `{"oid":1}`)
	f.Add(403, `{"error":{"code":"a","message":"b"}}`, "{")
	f.Fuzz(func(t *testing.T, status int, body, claims string) {
		if status < 100 || status == 429 || status > 499 {
			return // those are tried again
		}
		token := "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".secret"
		for _, id := range []string{"", resourceID} {
			r := &azuretrust.Reader{Credential: signedIn(token), HTTPClient: &http.Client{Transport: trusttest.Answering{Status: status, Body: body}}, IdentityID: id}
			trust, err := r.ReadTrust(t.Context(), doctor.TrustQuery{Identity: tenant + "/" + appID})
			if err != nil || (trust.Anchors == nil) == (trust.AnchorErr == nil) {
				t.Fatalf("%+v, %v", trust, err)
			}
			if trust.AnchorErr != nil && strings.Contains(trust.AnchorErr.Error(), token) {
				t.Error("the token is in the error")
			}
		}
	})
}
