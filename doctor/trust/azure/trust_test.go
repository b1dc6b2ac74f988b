package azure_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/trusttest"
	"github.com/workloadid/workloadid/doctor/trust/azure"
)

type change = func(*authtest.FederatedCredential)

func TestHealthy(t *testing.T) {
	fits := func(*authtest.FederatedCredential) {}
	other := func(c *authtest.FederatedCredential) { c.Issuer, c.Subject = "https://other.example/", "x" }
	for name, prepare := range map[string]func(w *world){
		"managed identity":  (*world).managed,
		"application":       (*world).application,
		"several":           func(w *world) { w.managed(); w.trust(other, fits, other) },
		"two of one issuer": func(w *world) { w.managed(); w.trust(fits, func(c *authtest.FederatedCredential) { c.Subject = "y" }) },
		"others of the group": func(w *world) {
			w.managed()
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID+"2", tenant, platform, platform)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			report := w.run()
			if f := report.Of(anchor); report.Result != doctor.Pass || f.Details[0] != (doctor.Value{Name: "read as", Text: platform}) || report.Of("trust-rule").Result != doctor.Skip {
				t.Errorf("%+v\n%s", f, report)
			}
			if n := w.Cloud.Calls("arm", "") + w.Cloud.Calls("graph", ""); n != 2 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, row := range []struct {
		name        string
		changes     []change
		class, says string
	}{
		{"no credential", nil, "Z6", "no federated credential"},
		{"slash at the end of the issuer", []change{func(c *authtest.FederatedCredential) { c.Issuer += "/" }}, "Z2", "only by the / at the end"},
		{"another issuer", []change{func(c *authtest.FederatedCredential) { c.Issuer = "https://other.example" }}, "Z2", "If the kube context is right"},
		{"another subject", []change{func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:a:b" }}, "Z4", "has another subject than the token"},
		{"case of the subject", []change{func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:App" }}, "Z5", "only in upper and lower case"},
		{"another audience", []change{func(c *authtest.FederatedCredential) { c.Audience = "api://AzureADTokenCredential" }}, "Z3", "Correct the audience"},
		{"typo in the audience", []change{func(c *authtest.FederatedCredential) { c.Audience = "api://AzureADTokenExchnage" }}, "Z3", "by a typo"},
		{"the closest of two", []change{
			func(c *authtest.FederatedCredential) { c.Issuer, c.Subject = "https://other.example", "y" },
			func(c *authtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:other" },
		}, "Z4", "credential-2 has another subject"},
	} {
		for kind, prepare := range map[string]func(*world){
			"az identity federated-credential ": (*world).managed, "az ad app federated-credential ": (*world).application,
		} {
			t.Run(row.name+"/"+kind, func(t *testing.T) {
				w := newWorld(t)
				prepare(w)
				w.trust(row.changes...)
				f := trusttest.Row{Check: anchor, Class: row.class, Says: row.says, Result: doctor.Fail}.Expect(t, w.run())
				or := f.Remedy.Or.Commands[0]
				if !strings.HasPrefix(or, kind) || strings.Contains(kind, "identity") && !strings.Contains(or, "--identity-name app --resource-group rg-apps") {
					t.Errorf("the alternative is %s", or)
				}
			})
		}
	}
}

// printed is what the command line prints for a credential that does not fit and another one.
func printed(issuer, sub, audience, more string) string {
	return fmt.Sprintf(`[{"name":"other","issuer":"https://elsewhere.example/","subject":"system:serviceaccount:x:y","audiences":["api://AzureADTokenExchange"]},
{"name":"app","issuer":"%s","subject":"%s","audiences":["%s"]%s}]`, issuer, sub, audience, more)
}

func TestFiles(t *testing.T) {
	const iss, expression = "https://issuer.example", `,"claimsMatchingExpression":{"value":"claims['sub'] matches 'x'","languageVersion":1}`
	for name, tt := range map[string]struct {
		content string
		result  doctor.Result
		class   string
		says    string
	}{
		"fits":                              {printed(iss, subject, audience, ""), doctor.Pass, "", ""},
		"slash at the end":                  {printed(iss+"/", subject, audience, ""), doctor.Fail, "Z2", "federated-credential update --name app"},
		"slash, for another subject":        {printed(iss+"/", "system:serviceaccount:tenant-a:other", audience, ""), doctor.Fail, "Z2", "has another issuer than the token. [trust-anchor, Z2]"},
		"path of another cluster":           {printed(iss+"/old", subject, audience, ""), doctor.Fail, "Z2", "federated-credential create"},
		"another subject":                   {printed(iss, "system:serviceaccount:tenant-a:other", audience, ""), doctor.Fail, "Z4", "--issuer https://issuer.example --subject " + subject + " --audiences " + audience},
		"case of the subject":               {printed(iss, "system:serviceaccount:tenant-a:App", audience, ""), doctor.Fail, "Z5", "federated-credential update --name app"},
		"another audience":                  {printed(iss, subject, "api://AzureADTokenCredential", ""), doctor.Fail, "Z3", "audience"},
		"no credential":                     {"[]", doctor.Fail, "Z6", "no federated credential"},
		"expression":                        {printed(iss, "", audience, expression), doctor.Unknown, "", "claims['sub'] matches 'x'"},
		"expression beside a subject":       {printed(iss, subject, audience, expression), doctor.Unknown, "", "does not judge"},
		"expression that is not shown":      {printed(iss, "", audience, ""), doctor.Unknown, "", "does not show"},
		"expression for another issuer":     {printed("https://x", "", audience, expression), doctor.Fail, "Z2", "issuer"},
		"expression for another audience":   {printed(iss, "", "x", expression), doctor.Fail, "Z3", "federated-credential create"},
		"expression beside one that fits":   {strings.TrimSuffix(printed(iss, "", audience, expression), "]") + "," + printed(iss, subject, audience, "")[1:], doctor.Pass, "", ""},
		"expression beside another subject": {strings.TrimSuffix(printed(iss, "", audience, expression), "]") + "," + printed(iss, "x", audience, "")[1:], doctor.Unknown, "", "does not judge"},
	} {
		t.Run(name, func(t *testing.T) {
			report := parsed(t, tt.content)
			if tt.result == doctor.Pass {
				if report.Result != doctor.Pass {
					t.Errorf("%s", report)
				}
				return
			}
			trusttest.Row{Check: anchor, Class: tt.class, Says: tt.says, Result: tt.result}.Expect(t, report)
		})
	}
}

// A wrong audience of the token is no reason for a cloud to trust it.
func TestAudienceOfTheToken(t *testing.T) {
	content := printed("https://issuer.example", subject, audience, "")
	f := parsed(t, content, func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{"https://kubernetes.default.svc"} }).Of(anchor)
	if f.Class != "Z3" || !strings.HasPrefix(f.Remedy.Text, "Request a token with the audience "+audience) || !strings.HasSuffix(f.Remedy.Or.Commands[0], "--audiences AUDIENCE") {
		t.Errorf("%+v", f)
	}
	f = parsed(t, content, func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{audience, "x"} }).Of(anchor)
	if f.Result != doctor.Unknown || !strings.Contains(f.Message, "several audiences") {
		t.Errorf("%+v", f)
	}
}

func TestUnknown(t *testing.T) {
	const list = "federatedIdentityCredentials"
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
	for _, row := range []struct {
		name        string
		spoil       func(w *world)
		class, says string
	}{
		{"nothing is visible", func(*world) {}, "", "Reader on the managed identity, or Application.Read.All"},
		{"no application either", func(w *world) {
			w.application()
			w.Cloud.Azure().SetUserAssignedIdentity(resourceID, tenant, appID)
		}, "", "sees no identity with client ID " + appID},
		{"another tenant", func(w *world) { w.login(otherTenant) }, "", "az login --tenant " + tenant},
		{"no login", func(w *world) { w.Setenv("AZURE_CLIENT_SECRET", "wrong") }, "", "no usable login"},
		{"no such credential", func(w *world) { w.Setenv("AZURE_TOKEN_CREDENTIALS", "nonsense") }, "", "no usable login"},
		{"private cloud", func(w *world) { w.Setenv("AZURE_AUTHORITY_HOST", "https://login.private.example") }, "", "--trust-file"},
		{"refused", fault("arm", list, authtest.Fault{Status: 403, Code: "AuthorizationFailed", Message: "no"}), "", "az identity federated-credential list --identity-name app --resource-group rg-apps"},
		{"right", fault("arm", list, authtest.Fault{Status: 403, Code: "AuthorizationFailed", Message: "no"}), "", "federatedIdentityCredentials/read to " + platform},
		{"signed out", fault("arm", list, authtest.Fault{Status: 401, Code: "ExpiredAuthenticationToken", Message: "old"}), "", "does not accept your login"},
		{"throttled", fault("arm", list, authtest.Fault{Status: 429, Code: "TooManyRequests", RetryAfter: "60"}), "N2", "throttles"},
		{"outage", fault("arm", list, authtest.Fault{Status: 503, Code: "ServiceUnavailable", RetryAfter: "60"}), "N3", "fails (HTTP 503"},
		{"web page", fault("arm", list, authtest.Fault{Body: "<html>"}), "N4", "unusable"},
		{"web page instead of an error", fault("arm", list, authtest.Fault{Status: 403, Body: "<html>"}), "N4", "unusable"},
		{"web page of Resource Graph", fault("arm", "resourceGraph", authtest.Fault{Body: "<html>"}), "N4", "unusable"},
		{"empty answer", fault("arm", list, authtest.Fault{Body: "{}"}), "N4", "unusable"},
		{"null", fault("arm", list, authtest.Fault{Body: `{"value":[null]}`}), "N4", "unusable"},
		{"large", fault("arm", list, authtest.Fault{Body: `{"value":["` + strings.Repeat("x", 10<<20)}), "N4", "unusable"},
		{"cut connection", fault("arm", list, authtest.Fault{Cut: true}), "N1", "no answer"},
		{"redirect", fault("arm", list, authtest.Fault{Redirect: "https://evil.example/"}), "N1", "no answer"},
		{"another page", fault("arm", list, authtest.Fault{Body: `{"value":[],"nextLink":"https://evil.example/x"}`}), "N4", "unusable"},
		{"hostile resource ID", rewrite(`"id":"/subscriptions`, `"id":"@evil.example/subscriptions`), "N4", "unusable"},
		{"expression", rewrite(subject, ""), "", "expression"},
		{"web page of Microsoft Graph", func(w *world) {
			w.application()
			w.Cloud.AddFault(authtest.Fault{Service: "graph", Body: "<html>"})
		}, "N4", "Microsoft Graph gives an unusable answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			row.spoil(w)
			trusttest.Row{Check: anchor, Class: row.class, Says: row.says, Result: doctor.Unknown}.Expect(t, w.run())
		})
	}
}

func TestHanging(t *testing.T) {
	for _, service := range []string{"arm", "graph", "entra"} {
		w := newWorld(t)
		w.Cloud.AddFault(authtest.Fault{Service: service, Hang: true})
		w.Timeout = 300 * time.Millisecond
		if f := w.run().Of(anchor); f.Result != doctor.Unknown {
			t.Errorf("%+v", f)
		}
	}
}

func TestOtherCloud(t *testing.T) {
	w := newWorld(t)
	const chinese = "88f988bf-86f1-41af-91ab-2d7cd011db88"
	w.Cloud.Azure().AddTenant("login.chinacloudapi.cn", chinese)
	w.login(chinese)
	w.Setenv("AZURE_AUTHORITY_HOST", "https://login.chinacloudapi.cn/")
	w.Cloud.Azure().SetApplicationReaders(chinese, platform)
	w.Cloud.Azure().AddFederatedCredential(chinese, appID, authtest.FederatedCredential{Issuer: "https://x", Subject: "y", Audience: "z"})
	w.Query.Identity = chinese + "/" + appID
	trusttest.Row{Check: anchor, Class: "Z2", Says: "credential https://x", Result: doctor.Fail}.Expect(t, w.run())
	for _, call := range w.Cloud.Log() {
		if !strings.HasSuffix(call.Host, "chinacloudapi.cn") {
			t.Errorf("%+v", call)
		}
	}
}

func TestMalformedIdentityIsSkipped(t *testing.T) {
	for _, identity := range []string{"", "x", tenant, tenant + "/", tenant + "/x", "x'/" + appID, tenant + "/" + appID + "') or ('"} {
		for _, trust := range []doctor.Trust{&azure.Reader{}, must(azure.Parse([]byte("[]")))} {
			if f := trust.Anchor(t.Context(), doctor.TrustQuery{Identity: identity}); f.Result != doctor.Skip {
				t.Errorf("%q: %+v", identity, f)
			}
		}
	}
}

func must(trust doctor.Trust, err error) doctor.Trust {
	if err != nil {
		panic(err)
	}
	return trust
}

func TestParseRefuses(t *testing.T) {
	for _, content := range []string{"", "x", "{}", "null", "[7]", "[null]", "<html>", `[]{"Role":{}}`} {
		if _, err := azure.Parse([]byte(content)); err == nil {
			t.Errorf("accepts %q", content)
		}
	}
}

// Texts of tenants reach neither the shell nor the terminal.
func TestHostileTexts(t *testing.T) {
	for _, evil := range trusttest.Hostile() {
		quoted, err := json.Marshal([]map[string]any{{"name": evil, "issuer": "https://issuer.example/", "subject": evil, "audiences": []string{evil}},
			{"name": evil, "issuer": "https://issuer.example", "subject": strings.ToUpper(subject), "audiences": []string{evil}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, report := range []*doctor.Report{parsed(t, string(quoted)), parsed(t, "[]", func(q *doctor.TrustQuery) {
			q.Claims.Issuer, q.Claims.Subject, q.Claims.Namespace, q.Claims.ServiceAccount, q.Claims.Audiences = evil, evil, evil, evil, []string{evil}
		})} {
			trusttest.Paste(t, report)
		}
	}
}

// signedIn is a login with a given token.
type signedIn string

func (s signedIn) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func FuzzAnswers(f *testing.F) {
	f.Add(200, `{"value":[{"name":"a","properties":{"issuer":"b","subject":"c","audiences":["d"]}}]}`, "")
	f.Add(200, `{"value":[{"name":"a","issuer":"b","subject":"c","audiences":["d"]}],"@odata.nextLink":"x"}`, `{"oid":"x","tid":"y","upn":"z"}`)
	f.Add(200, `{"data":[{"id":"`+resourceID+`"}]}`, `{"oid":1}`)
	f.Add(403, `{"error":{"code":"a","message":"b"}}`, "{")
	f.Fuzz(func(t *testing.T, status int, body, claims string) {
		if status < 100 || status == 429 || status > 499 {
			return // those are tried again
		}
		token := "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".secret-of-the-login"
		r := &azure.Reader{Credential: signedIn(token), HTTPClient: &http.Client{Transport: trusttest.Answering{Status: status, Body: body}}}
		query := doctor.TrustQuery{Identity: tenant + "/" + appID, Claims: trusttest.Claims("https://issuer.example", audience)}
		trusttest.Sound(t, trusttest.Run(t.Context(), query, r, 0), token)
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(printed("https://issuer.example", subject, audience, "")), subject)
	f.Add([]byte(`[{"issuer":"https://issuer.example","claimsMatchingExpression":{"value":"x"}}]`), "x")
	f.Fuzz(func(t *testing.T, content []byte, sub string) {
		trust, err := azure.Parse(content)
		if err != nil {
			return
		}
		query := doctor.TrustQuery{Identity: tenant + "/" + appID, Claims: trusttest.Claims("https://issuer.example", audience)}
		query.Claims.Subject = sub
		report := trusttest.Run(t.Context(), query, trust, 0)
		trusttest.Sound(t, report)
		if report.Result == doctor.Pass && !strings.Contains(string(content), "issuer") {
			t.Errorf("passes without an issuer: %s", content)
		}
	})
}
