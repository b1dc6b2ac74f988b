package gcptrust_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/gcptrust"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/trusttest"
)

type providerChange = func(*authtest.WorkloadIdentityProvider)

// What fits passes both checks, with few calls, and says whose rights it took.
func TestHealthy(t *testing.T) {
	provider := func(change providerChange) func(w *world) { return func(w *world) { w.provider(change) } }
	for name, change := range map[string]func(w *world){
		"as it is":       func(*world) {},
		"the whole pool": func(w *world) { w.members("user:x@example.com", "principalSet://iam.googleapis.com/"+pool+"/*") },
		"audience": provider(func(p *authtest.WorkloadIdentityProvider) {
			p.AllowedAudiences = []string{"x", "//iam.googleapis.com/" + providerName}
		}),
		"condition": provider(func(p *authtest.WorkloadIdentityProvider) {
			p.ConditionCEL = `assertion.sub.startsWith("system:serviceaccount:tenant-a:")`
		}),
		"full resource": func(w *world) {
			w.Config.Annotations[gcp.WorkloadIdentityProviderAnnotation] = "//iam.googleapis.com/" + providerName
		},
		"a service account": func(w *world) { w.serviceAccount() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			report := w.run()
			for _, id := range []string{"trust-anchor", "trust-rule", "exchange"} {
				if f := report.Of(id); f.Result != doctor.Pass || id != "exchange" && !strings.Contains(f.Message, ", read as ") {
					t.Errorf("%+v", f)
				}
			}
			if n := w.Cloud.Calls("gcp-iam", "") + w.Cloud.Calls("google-oauth", "tokeninfo"); n != 4 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// serviceAccount has the reader use a token of one.
func (w *world) serviceAccount() {
	const platform = "platform@my-project.iam.gserviceaccount.com"
	w.Cloud.GCP().SetIAMViewers("serviceAccount:" + platform)
	w.reader.TokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: w.Cloud.GCP().IssueAccessToken(platform)})
}

// The e-mail address is shown as whose rights were taken.
func TestWhoLooked(t *testing.T) {
	w := newWorld(t)
	if f := w.run().Of("trust-rule"); !strings.HasSuffix(f.Message, "read as "+engineer) {
		t.Errorf("%+v", f)
	}
	w.Cloud.AddFault(authtest.Fault{Service: "google-oauth", Action: "tokeninfo", Body: "<html>"})
	if f := w.run().Of("trust-rule"); f.Result != doctor.Pass || !strings.HasSuffix(f.Message, "read as a login without an e-mail address") {
		t.Errorf("%+v", f)
	}
}

// Direct access has no service account to look at, and clusters of GKE have no provider.
func TestNothingToLookAt(t *testing.T) {
	w := newWorld(t)
	delete(w.Config.Annotations, gcp.ServiceAccountAnnotation)
	report := w.run()
	if report.Of("trust-anchor").Result != doctor.Pass || report.Of("trust-rule").Result != doctor.Skip || w.Cloud.Calls("gcp-iam", "serviceAccounts.getIamPolicy") != 0 {
		t.Errorf("%s", report)
	}
	for _, member := range []string{"serviceAccount:my-project.svc.id.goog[tenant-a/app]",
		"principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/my-project.svc.id.goog/subject/ns/tenant-a/sa/app"} {
		w = newWorld(t)
		delete(w.Config.Annotations, gcp.WorkloadIdentityProviderAnnotation)
		w.Config.Options = append(w.Config.Options, auth.WithAudiences("my-project.svc.id.goog"))
		w.Sign("my-project.svc.id.goog")
		w.members(member)
		report = w.run()
		if report.Of("trust-anchor").Result != doctor.Skip || report.Of("trust-rule").Result != doctor.Pass {
			t.Errorf("%s", report)
		}
		w.members("serviceAccount:my-project.svc.id.goog[tenant-b/app]")
		if f := w.run().Of("trust-rule"); f.Class != "G10" {
			t.Errorf("%+v", f)
		}
	}
}

// What is wrong in the project is found by the check that looks at it.
func TestFaults(t *testing.T) {
	provider := func(change providerChange) func(w *world) { return func(w *world) { w.provider(change) } }
	members := func(m ...string) func(w *world) { return func(w *world) { w.members(m...) } }
	for _, tc := range []struct {
		name            string
		change          func(w *world)
		id, class, text string
	}{
		{"no provider", func(w *world) { w.Cloud.GCP().RemoveWorkloadIdentityProvider(providerName) }, "trust-anchor", "G1", "has no provider " + providerName},
		{"soft-deleted", provider(func(p *authtest.WorkloadIdentityProvider) { p.Deleted = true }), "trust-anchor", "G1", "DELETED, to be undeleted until 20"},
		{"disabled", provider(func(p *authtest.WorkloadIdentityProvider) { p.Disabled = true }), "trust-anchor", "G1", "does not count: disabled"},
		{"pool soft-deleted", func(w *world) { w.Cloud.GCP().SetWorkloadIdentityPool(pool, false, true) }, "trust-anchor", "G1", "its pool is DELETED"},
		{"pool disabled", func(w *world) { w.Cloud.GCP().SetWorkloadIdentityPool(pool, true, false) }, "trust-anchor", "G1", "its pool is disabled"},
		{"issuer", provider(func(p *authtest.WorkloadIdentityProvider) { p.Issuer += "/" }), "trust-anchor", "G4", "only by the /"},
		{"audience", provider(func(p *authtest.WorkloadIdentityProvider) { p.AllowedAudiences = []string{"x"} }), "trust-anchor", "G3", "audience"},
		{"uploaded keys", provider(func(p *authtest.WorkloadIdentityProvider) { p.JWKS = []byte(`{"keys":[]}`) }), "trust-anchor", "G5", "uploaded"},
		{"condition", provider(func(p *authtest.WorkloadIdentityProvider) {
			p.ConditionCEL, p.Condition = `assertion.sub == "x"`, func(map[string]any) bool { return false }
		}), "trust-anchor", "G8", "condition rejects"},
		{"no member", members(), "trust-rule", "G10", "has not the role"},
		{"another member", members("user:x@example.com", principal+"s"), "trust-rule", "G10", "has not the role"},
		{"project's ID", members(strings.Replace(principal, "123456789012", "my-project", 1)), "trust-rule", "G10", "needs the project's number"},
		{"no service account", func(w *world) { w.Cloud.GCP().RemoveServiceAccount(email) }, "trust-rule", "G12", "has no service account " + email},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			f := w.run().Worst()
			if f.ID != tc.id || f.Class != tc.class || !strings.Contains(f.Message, tc.text) || f.Remedy == "" {
				t.Errorf("%+v", f)
			}
			if f.Fields[len(f.Fields)-1].Observed != engineer {
				t.Errorf("whose rights: %+v", f)
			}
		})
	}
}

// What could not be looked at is unknown, and says why and what to do.
func TestUnknown(t *testing.T) {
	fault := func(action string, f authtest.Fault) func(w *world) {
		return func(w *world) {
			f.Service, f.Action = "gcp-iam", action
			w.Cloud.AddFault(f)
		}
	}
	policy := func(from, to string) func(w *world) {
		return fault("serviceAccounts.getIamPolicy", authtest.Fault{Rewrite: func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), from, to)) }})
	}
	const get, getPool, getPolicy, both = "providers.get", "workloadIdentityPools.get", "serviceAccounts.getIamPolicy", "trust-anchor trust-rule"
	for _, tc := range []struct {
		name          string
		change        func(w *world)
		checks        string
		message, does string
	}{
		{"may read nothing", func(w *world) { w.Cloud.GCP().SetIAMViewers() }, both, "Google IAM refuses iam.", "grant iam."},
		{"may not read the provider", fault(get, authtest.Fault{Status: 403, Message: "no"}), "trust-anchor", "iam.workloadIdentityPoolProviders.get to " + engineer, "gcloud iam workload-identity-pools providers describe " + providerName},
		{"may not read the pool", fault(getPool, authtest.Fault{Status: 403, Message: "no"}), "trust-anchor", "iam.workloadIdentityPools.get", "describe " + pool},
		{"may not read the policy", fault(getPolicy, authtest.Fault{Status: 403, Message: "no"}), "trust-rule", "iam.serviceAccounts.getIamPolicy", "gcloud iam service-accounts get-iam-policy " + email},
		{"API disabled", func(w *world) {
			w.Cloud.GCP().SetIAMViewers()
			fault("", authtest.Fault{Rewrite: func(b []byte) []byte {
				return []byte(strings.ReplaceAll(string(b), "IAM_PERMISSION_DENIED", "SERVICE_DISABLED"))
			}})(w)
		}, both, "the project that pays for your calls", "set-quota-project"},
		{"no login", func(w *world) { w.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent") }, both, "no login for Google Cloud", "gcloud auth application-default login"},
		{"login that has ended", func(w *world) { w.login([]byte(`{"type":"authorized_user","refresh_token":"1//x"}`)) }, both, "login for Google Cloud was refused: 400", "gcloud auth"},
		{"signed out", func(w *world) { w.reader.TokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "ya29.x"}) }, both, "does not accept your login", "log in again"},
		{"throttled", fault("", authtest.Fault{Status: 429, RetryAfter: "60"}), both, "slow down", ""},
		{"outage", fault("", authtest.Fault{Status: 503, RetryAfter: "60"}), both, "answers 503", ""},
		{"web page", fault("", authtest.Fault{Body: "<html>"}), both, "no answer of it", ""},
		{"nothing in it", fault("", authtest.Fault{Body: "{}"}), both, "it lacks", ""},
		{"another provider", fault(get, authtest.Fault{Body: `{"name":"x","oidc":{}}`}), "trust-anchor", "it lacks", ""},
		{"a SAML provider", fault(get, authtest.Fault{Body: `{"name":"` + providerName + `","saml":{}}`}), "trust-anchor", "it lacks", ""},
		{"another pool", fault(getPool, authtest.Fault{Body: `{"name":"x"}`}), "trust-anchor", "it lacks", ""},
		{"large", fault("", authtest.Fault{Body: `{"name":"` + strings.Repeat("x", 10<<20)}), both, "larger than", ""},
		{"redirect", fault("", authtest.Fault{Redirect: "https://evil.example/"}), both, "redirect", ""},
		{"cut", fault("", authtest.Fault{Cut: true}), both, "no usable answer", ""},
		{"a condition beyond this check", func(w *world) {
			w.provider(func(p *authtest.WorkloadIdentityProvider) { p.ConditionCEL = `assertion.sub.extract("{x}:") == "y"` })
		}, "trust-anchor", "too much for this check", "by hand"},
		{"a binding with a condition", policy(`"members":`, `"condition":{"expression":"x"},"members":`), "trust-rule", "under a condition", "by hand"},
		{"an attribute", func(w *world) {
			w.members("principalSet://iam.googleapis.com/" + pool + "/attribute.namespace/tenant-a")
		}, "trust-rule", "by an attribute", "by hand"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.Unclear(w.run(), tc.checks, tc.message, tc.does, "exchange")
		})
	}
}

// Whatever does not answer is given up in time.
func TestHanging(t *testing.T) {
	for _, service := range []string{"gcp-iam", "google-oauth"} {
		newWorld(t).GivesUp(authtest.Fault{Service: service, Hang: true})
	}
}

// hanging is a login that takes its time.
type hanging chan struct{}

func (h hanging) Token() (*oauth2.Token, error) {
	<-h
	return nil, errors.New("too late")
}

func TestHangingLogin(t *testing.T) {
	w := newWorld(t)
	h := make(hanging)
	defer close(h)
	w.reader.TokenSource, w.Config.Timeout = h, time.Second
	start := time.Now()
	if f := w.run().Of("trust-anchor"); f.Result != doctor.Unknown || !strings.Contains(f.Message, "what Google Cloud trusts") || time.Since(start) > 30*time.Second {
		t.Errorf("after %s: %+v", time.Since(start), f)
	}
}

// FuzzAnswers has whatever comes instead of a provider, a pool and a policy either understood or refused.
func FuzzAnswers(f *testing.F) {
	f.Add(200, `{"name":"`+providerName+`","state":"ACTIVE","oidc":{"issuerUri":"https://issuer.example"},"attributeMapping":{"google.subject":"assertion.sub"}}`)
	f.Add(200, `{"name":"`+pool+`","state":"DELETED"}`)
	f.Add(200, `{"bindings":[{"role":"roles/iam.workloadIdentityUser","members":["a"],"condition":{}}],"etag":"x"}`)
	f.Add(200, `{"email":"a@b"}`)
	f.Add(403, `{"error":{"code":403,"message":"b","status":"PERMISSION_DENIED"}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 100 || status == 429 || status > 499 {
			return // those are tried again
		}
		const secret = "ya29.secret"
		r := &gcptrust.Reader{TokenSource: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: secret}), HTTPClient: &http.Client{Transport: trusttest.Answering{Status: status, Body: body}}}
		trust, err := r.ReadTrust(t.Context(), doctor.TrustQuery{Identity: email, Annotations: map[string]string{gcp.WorkloadIdentityProviderAnnotation: providerName}})
		if err != nil || trust.Anchors == nil && trust.AnchorErr == nil || (trust.Members == nil) == (trust.RuleErr == nil) {
			t.Fatalf("%+v, %v", trust, err)
		}
		for _, err := range []error{trust.AnchorErr, trust.RuleErr} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Error("the token is in the error")
			}
		}
	})
}
