package gcp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/trusttest"
	"github.com/workloadid/workloadid/doctor/trust/gcp"
	"github.com/workloadid/workloadid/internal/annotation"
)

type providerChange = func(*authtest.WorkloadIdentityProvider)

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"usual":          func(*world) {},
		"the whole pool": func(w *world) { w.members("user:x@example.com", everybody) },
		"audience": func(w *world) {
			w.provider(func(p *authtest.WorkloadIdentityProvider) { p.AllowedAudiences = []string{"x", audience} })
		},
		"uploaded keys": func(w *world) {
			w.provider(func(p *authtest.WorkloadIdentityProvider) { p.JWKS = []byte(`{"keys":[{"kid":"x"},{"kid":"key-1"}]}`) })
		},
		"full resource name": func(w *world) { w.Query.Annotations[annotation.GCPWorkloadIdentityProvider] = audience },
		"a service account logs in": func(w *world) {
			w.Cloud.GCP().SetIAMViewers("serviceAccount:" + email)
			w.reader.TokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: w.Cloud.GCP().IssueAccessToken(email)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			report := w.run()
			if report.Result != doctor.Pass || !strings.Contains(report.Of(rule).Details[0].Text, "@") {
				t.Errorf("%s", report)
			}
			if n := w.Cloud.Calls("gcp-iam", "") + w.Cloud.Calls("google-oauth", "tokeninfo"); n != 4 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestLoginWithoutName(t *testing.T) {
	w := newWorld(t)
	w.Cloud.AddFault(authtest.Fault{Service: "google-oauth", Action: "tokeninfo", Body: "<html>"})
	if f := w.run().Of(rule); f.Result != doctor.Pass || len(f.Details) != 0 {
		t.Errorf("%+v", f)
	}
}

// Direct access has no service account, and a cluster of GKE no provider.
func TestNothingToExamine(t *testing.T) {
	w := newWorld(t)
	w.Query.Identity = ""
	if report := w.run(); report.Of(anchor).Result != doctor.Pass || report.Of(rule).Result != doctor.Skip || w.Cloud.Calls("gcp-iam", "serviceAccounts.getIamPolicy") != 0 {
		t.Errorf("%s", report)
	}
	for member, want := range map[string]doctor.Result{
		"serviceAccount:my-project.svc.id.goog[tenant-a/app]":                                                                                doctor.Pass,
		"principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/my-project.svc.id.goog/subject/ns/tenant-a/sa/app": doctor.Pass,
		"serviceAccount:my-project.svc.id.goog[tenant-b/app]":                                                                                doctor.Fail,
	} {
		w = newWorld(t)
		delete(w.Query.Annotations, annotation.GCPWorkloadIdentityProvider)
		w.Query.Claims.Audiences = []string{"my-project.svc.id.goog"}
		w.members(member)
		if report := w.run(); report.Of(anchor).Result != doctor.Skip || report.Of(rule).Result != want {
			t.Errorf("%s: %s", member, report)
		}
	}
}

func TestFaults(t *testing.T) {
	provider := func(change providerChange) func(w *world) { return func(w *world) { w.provider(change) } }
	members := func(m ...string) func(w *world) { return func(w *world) { w.members(m...) } }
	for _, row := range []struct {
		name               string
		spoil              func(w *world)
		check, class, says string
	}{
		{"no provider", func(w *world) { w.Cloud.GCP().RemoveWorkloadIdentityProvider(providerName) }, anchor, "G1", "east does not exist"},
		{"provider deleted", provider(func(p *authtest.WorkloadIdentityProvider) { p.Deleted = true }), anchor, "G1", "providers undelete " + providerName},
		{"provider disabled", provider(func(p *authtest.WorkloadIdentityProvider) { p.Disabled = true }), anchor, "G1", "state disabled"},
		{"pool deleted", func(w *world) { w.Cloud.GCP().SetWorkloadIdentityPool(pool, false, true) }, anchor, "G1", "workload-identity-pools undelete " + pool},
		{"pool disabled", func(w *world) { w.Cloud.GCP().SetWorkloadIdentityPool(pool, true, false) }, anchor, "G1", "The pool of the ServiceAccount does not work"},
		{"slash at the end of the issuer", provider(func(p *authtest.WorkloadIdentityProvider) { p.Issuer += "/" }), anchor, "G4", "only by the / at the end"},
		{"another issuer", provider(func(p *authtest.WorkloadIdentityProvider) { p.Issuer = "https://other.example" }), anchor, "G4", "workload-identity-pools create projects/123456789012/locations/global/workloadIdentityPools/NEW_POOL"},
		{"audience not allowed", provider(func(p *authtest.WorkloadIdentityProvider) { p.AllowedAudiences = []string{"one", "two"} }), anchor, "G3", "--allowed-audiences=one,two," + audience},
		{"uploaded keys are old", provider(func(p *authtest.WorkloadIdentityProvider) { p.JWKS = []byte(`{"keys":[]}`) }), anchor, "G5", "lack the token's key"},
		{"no member", members(), rule, "G10", "policy no member"},
		{"another member", members("user:x@example.com", principal+"s"), rule, "G10", "policy " + principal + "s"},
		{"project's ID in the member", members(strings.Replace(principal, "123456789012", "my-project", 1)), rule, "G10", "the project's ID in place of its number"},
		{"pool of another project", members(strings.Replace(principal, "123456789012", "210987654321", 1)), rule, "G10", "kubectl annotate sa -n tenant-a app --overwrite iam.gke.io/gcp-service-account="},
		{"no service account", func(w *world) { w.Cloud.GCP().RemoveServiceAccount(email) }, rule, "G12", email + " does not exist"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			row.spoil(w)
			f := trusttest.Row{Check: row.check, Class: row.class, Says: row.says, Result: doctor.Fail}.Expect(t, w.run())
			if f.Details[0] != (doctor.Value{Name: "read as", Text: engineer}) {
				t.Errorf("%+v", f.Details)
			}
			if missing := strings.HasPrefix(row.name, "no provider") || strings.HasPrefix(row.name, "no service"); missing != (f.Remedy.Or == nil) {
				t.Errorf("the alternative is %+v", f.Remedy.Or)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	const iss, sub = "https://issuer.example", "assertion.sub"
	good, member := printedProvider(iss, sub, ""), printedPolicy(principal, "")
	attribute := strings.Replace(everybody, "/*", "/attribute.namespace/tenant-a", 1)
	for name, tt := range map[string]struct {
		content, check string
		result         doctor.Result
		class, says    string
	}{
		"fits":                           {good + member, "", doctor.Pass, "", ""},
		"blanks around the mapping":      {printedProvider(iss, " assertion.sub ", "") + member, "", doctor.Pass, "", ""},
		"provider disabled":              {printedProvider(iss, sub, `,"disabled":true`) + member, anchor, doctor.Fail, "G1", "state disabled"},
		"provider deleted":               {strings.Replace(good, "ACTIVE", "DELETED", 1) + member, anchor, doctor.Fail, "G1", "state DELETED"},
		"slash at the end of the issuer": {printedProvider(iss+"/", sub, "") + member, anchor, doctor.Fail, "G4", "only by the / at the end"},
		"uploaded keys are old":          {strings.Replace(good, `"oidc":{`, `"oidc":{"jwksJson":"{\"keys\":[]}",`, 1) + member, anchor, doctor.Fail, "G5", "uploaded"},
		"audience not allowed":           {strings.Replace(good, `"oidc":{`, `"oidc":{"allowedAudiences":["other"],`, 1) + member, anchor, doctor.Fail, "G3", "provider other"},
		"project's ID in the member":     {good + printedPolicy(strings.Replace(principal, "123456789012", "my-project", 1), ""), rule, doctor.Fail, "G10", "number"},
		"no member":                      {good + printedPolicy("serviceAccount:x@y.iam.gserviceaccount.com", ""), rule, doctor.Fail, "G10", "workloadIdentityUser"},
		"empty policy":                   {good + `{"etag":"x"}`, rule, doctor.Fail, "G10", "no member"},
		"another role":                   {good + strings.Replace(member, "roles/iam.workloadIdentityUser", "roles/viewer", 1), rule, doctor.Fail, "G10", "no member"},
		"attribute condition":            {printedProvider(iss, sub, `,"attributeCondition":"assertion.sub == 'x'"`) + member, anchor, doctor.Unknown, "", "attribute condition: assertion.sub == 'x'"},
		"another mapping":                {printedProvider(iss, "assertion['kubernetes.io'].namespace", "") + member, anchor, doctor.Unknown, "", "assertion['kubernetes.io'].namespace"},
		"unknown mapping":                {printedProvider(iss, "", "") + member, rule, doctor.Unknown, "", "mapping of google.subject is not known"},
		"unknown mapping, whole pool":    {printedProvider(iss, "", "") + printedPolicy(everybody, ""), "", doctor.Pass, "", ""},
		"conditional binding":            {good + printedPolicy(principal, `,"condition":{"expression":"x"}`), rule, doctor.Unknown, "", "under a condition"},
		"custom role":                    {good + strings.Replace(member, "roles/iam.workloadIdentityUser", "projects/p/roles/x", 1), rule, doctor.Unknown, "", "custom role"},
		"attribute":                      {good + printedPolicy(attribute, ""), rule, doctor.Unknown, "", "by an attribute"},
		"anybody":                        {good + printedPolicy("allAuthenticatedUsers", ""), rule, doctor.Unknown, "", "by an attribute"},
		"another provider":               {strings.Replace(good, "east", "west", 1) + member, anchor, doctor.Unknown, "", "does not hold provider"},
		"no provider":                    {member, anchor, doctor.Unknown, "", "providers describe " + providerName + " --format json >> trust.json"},
		"no policy":                      {good, rule, doctor.Unknown, "", "get-iam-policy " + email},
	} {
		t.Run(name, func(t *testing.T) {
			report := parsed(t, tt.content)
			if tt.result == doctor.Pass {
				if report.Result != doctor.Pass {
					t.Errorf("%s", report)
				}
				return
			}
			trusttest.Row{Check: tt.check, Class: tt.class, Says: tt.says, Result: tt.result}.Expect(t, report)
		})
	}
}

func TestAudienceOfTheToken(t *testing.T) {
	content := printedProvider("https://issuer.example", "assertion.sub", "") + printedPolicy(principal, "")
	f := parsed(t, content, func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{"https://kubernetes.default.svc"} }).Of(anchor)
	if f.Class != "G3" || !strings.HasSuffix(f.Remedy.Or.Commands[0], ",AUDIENCE") {
		t.Errorf("%+v", f)
	}
	f = parsed(t, content, func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{audience, "x"} }).Of(anchor)
	if f.Result != doctor.Unknown || !strings.Contains(f.Message, "several audiences") {
		t.Errorf("%+v", f)
	}
}

func TestUnknown(t *testing.T) {
	const get, getPool, getPolicy = "providers.get", "workloadIdentityPools.get", "serviceAccounts.getIamPolicy"
	fault := func(action string, f authtest.Fault) func(w *world) {
		return func(w *world) {
			f.Service, f.Action = "gcp-iam", action
			w.Cloud.AddFault(f)
		}
	}
	policy := func(from, to string) func(w *world) {
		return fault(getPolicy, authtest.Fault{Rewrite: func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), from, to)) }})
	}
	for _, row := range []struct {
		name               string
		spoil              func(w *world)
		check, class, says string
	}{
		{"may read nothing", func(w *world) { w.Cloud.GCP().SetIAMViewers() }, anchor, "", "Google IAM refuses iam.workloadIdentityPoolProviders.get"},
		{"may not read the provider", fault(get, authtest.Fault{Status: 403, Message: "no"}), anchor, "", "iam.workloadIdentityPoolProviders.get to " + engineer},
		{"may not read the pool", fault(getPool, authtest.Fault{Status: 403, Message: "no"}), anchor, "", "iam.workloadIdentityPools.get"},
		{"may not read the policy", fault(getPolicy, authtest.Fault{Status: 403, Message: "no"}), rule, "", "gcloud iam service-accounts get-iam-policy " + email},
		{"API disabled", func(w *world) {
			w.Cloud.GCP().SetIAMViewers()
			fault("", authtest.Fault{Rewrite: func(b []byte) []byte {
				return []byte(strings.ReplaceAll(string(b), "IAM_PERMISSION_DENIED", "SERVICE_DISABLED"))
			}})(w)
		}, anchor, "", "set-quota-project"},
		{"no login", func(w *world) { w.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent") }, anchor, "", "gcloud auth application-default login"},
		{"login expired", func(w *world) { w.login([]byte(`{"type":"authorized_user","refresh_token":"1//x"}`)) }, anchor, "", "no usable login"},
		{"signed out", func(w *world) {
			w.reader.TokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "ya29.x"})
		}, anchor, "", "does not accept your login"},
		{"throttled", fault(get, authtest.Fault{Status: 429, RetryAfter: "60"}), anchor, "N2", "throttles"},
		{"outage", fault(get, authtest.Fault{Status: 503, RetryAfter: "60"}), anchor, "N3", "fails"},
		{"web page", fault(get, authtest.Fault{Body: "<html>"}), anchor, "N4", "unusable"},
		{"empty answer", fault(get, authtest.Fault{Body: "{}"}), anchor, "N4", "unusable"},
		{"empty policy", fault(getPolicy, authtest.Fault{Body: "{}"}), rule, "N4", "unusable"},
		{"another provider", fault(get, authtest.Fault{Body: `{"name":"x","oidc":{}}`}), anchor, "N4", "unusable"},
		{"SAML provider", fault(get, authtest.Fault{Body: `{"name":"` + providerName + `","saml":{}}`}), anchor, "N4", "unusable"},
		{"another pool", fault(getPool, authtest.Fault{Body: `{"name":"x"}`}), anchor, "N4", "unusable"},
		{"large", fault(get, authtest.Fault{Body: `{"name":"` + strings.Repeat("x", 10<<20)}), anchor, "N4", "unusable"},
		{"redirect", fault(get, authtest.Fault{Redirect: "https://evil.example/"}), anchor, "N1", "no answer"},
		{"cut connection", fault(get, authtest.Fault{Cut: true}), anchor, "N1", "no answer"},
		{"attribute condition", func(w *world) {
			w.provider(func(p *authtest.WorkloadIdentityProvider) { p.ConditionCEL = `assertion.sub.extract("{x}:") == "y"` })
		}, anchor, "", `attribute condition: assertion.sub.extract("{x}:") == "y"`},
		{"conditional binding", policy(`"members":`, `"condition":{"expression":"x"},"members":`), rule, "", "under a condition"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			row.spoil(w)
			report := w.run()
			trusttest.Row{Check: row.check, Class: row.class, Says: row.says, Result: doctor.Unknown}.Expect(t, report)
			for _, f := range report.Findings {
				if f.Result == doctor.Fail {
					t.Errorf("false alarm: %+v", f)
				}
			}
		})
	}
}

func TestHanging(t *testing.T) {
	for _, service := range []string{"gcp-iam", "google-oauth"} {
		w := newWorld(t)
		w.Cloud.AddFault(authtest.Fault{Service: service, Hang: true})
		w.Timeout = 300 * time.Millisecond
		if f := w.run().Of(anchor); f.Result != doctor.Unknown {
			t.Errorf("%+v", f)
		}
	}
}

func TestMalformedNamesAreSkipped(t *testing.T) {
	for _, q := range []doctor.TrustQuery{{Identity: "x"}, {Identity: email + "/../x"}, {Identity: email, Annotations: map[string]string{annotation.GCPWorkloadIdentityProvider: "projects/x"}}} {
		if report := trusttest.Run(t.Context(), q, &gcp.Reader{}, 0); report.Of(rule).Result != doctor.Skip || report.Of(anchor).Result != doctor.Skip {
			t.Errorf("%s", report)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, content := range []string{"", "x", "{}", "[]", "null", "<html>", `{"name":"x"}`, `{"name":7,"oidc":{}}`} {
		if _, err := gcp.Parse([]byte(content)); err == nil {
			t.Errorf("accepts %q", content)
		}
	}
}

// Texts of tenants reach neither the shell nor the terminal.
func TestHostileTexts(t *testing.T) {
	for _, evil := range trusttest.Hostile() {
		quoted, err := json.Marshal(evil)
		if err != nil {
			t.Fatal(err)
		}
		good := printedProvider("https://issuer.example", "assertion.sub", "")
		for _, content := range []string{
			strings.Replace(good, `"https://issuer.example"`, string(quoted), 1) + printedPolicy("x", ""),
			strings.Replace(good, `"oidc":{`, `"oidc":{"allowedAudiences":[`+string(quoted)+`],`, 1) + printedPolicy("x", ""),
			strings.Replace(good, `"ACTIVE"`, string(quoted), 1) + strings.Replace(printedPolicy("x", ""), `"x"`, string(quoted), 1),
			strings.Replace(good, `"assertion.sub"`, string(quoted), 1) + printedPolicy(principal, ""),
		} {
			trusttest.Paste(t, parsed(t, content))
			trusttest.Paste(t, parsed(t, content, func(q *doctor.TrustQuery) {
				q.Claims.Issuer, q.Claims.Subject, q.Claims.Namespace, q.Claims.ServiceAccount, q.Claims.Audiences, q.Claims.KeyID = evil, evil, evil, evil, []string{evil}, evil
			}))
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(200, printedProvider("https://issuer.example", "assertion.sub", ""))
	f.Add(200, `{"name":"`+pool+`","state":"DELETED"}`)
	f.Add(200, `{"bindings":[{"role":"roles/iam.workloadIdentityUser","members":["a"],"condition":{}}],"etag":"x"}`)
	f.Add(200, `{"email":"a@b"}`)
	f.Add(403, `{"error":{"code":403,"message":"b","status":"PERMISSION_DENIED"}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 100 || status == 429 || status > 499 {
			return // those are tried again
		}
		const secret = "ya29.secret-of-the-login"
		r := &gcp.Reader{TokenSource: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: secret}), HTTPClient: &http.Client{Transport: trusttest.Answering{Status: status, Body: body}}}
		query := doctor.TrustQuery{Identity: email, Annotations: annotations(), Claims: trusttest.Claims("https://issuer.example", audience)}
		trusttest.Sound(t, trusttest.Run(t.Context(), query, r, 0), secret)
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(printedProvider("https://issuer.example", "assertion.sub", "")+printedPolicy(principal, "")), subject)
	f.Add([]byte(printedProvider("https://issuer.example", "x", `,"attributeCondition":"x"`)+`{"etag":"x"}`), "x")
	f.Fuzz(func(t *testing.T, content []byte, sub string) {
		trust, err := gcp.Parse(content)
		if err != nil {
			return
		}
		query := doctor.TrustQuery{Identity: email, Annotations: annotations(), Claims: trusttest.Claims("https://issuer.example", audience)}
		query.Claims.Subject = sub
		trusttest.Sound(t, trusttest.Run(t.Context(), query, trust, 0))
	})
}
