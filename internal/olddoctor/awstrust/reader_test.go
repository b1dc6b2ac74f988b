package awstrust_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What fits passes both checks, with few calls, and says whose rights it took.
func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"as it is":  func(*world) {},
		"a pattern": func(w *world) { w.role(authtest.Trust{SubjectPatterns: []string{"system:serviceaccount:tenant-?:*"}}) },
		"several": func(w *world) {
			w.role(authtest.Trust{Subjects: []string{"x", subject}, SubjectPatterns: []string{"y*"}, Principals: []string{platform}})
		},
		"audience": func(w *world) {
			w.role(authtest.Trust{Subjects: []string{subject}, Audiences: []string{aws.DefaultAudience}})
		},
		"more issuers":  func(w *world) { w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL()+"/", w.Issuer.HTTPClient(), "x") },
		"may not list":  func(w *world) { w.Cloud.AWS().Deny(platform, "iam:ListOpenIDConnectProviders") },
		"region of his": func(w *world) { w.Setenv("AWS_REGION", "us-west-2") },
		"other region":  func(w *world) { w.Setenv("AWS_REGION", "cn-north-1") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			report := w.Run()
			for _, id := range []string{"trust-anchor", "trust-rule", "exchange"} {
				if f := report.Of(id); f.Result != doctor.Pass || id != "exchange" && !strings.Contains(f.Message, "read as "+platform) {
					t.Errorf("%+v", f)
				}
			}
			if n := w.Cloud.Calls("iam", "") + w.Cloud.Calls("sts", "GetCallerIdentity"); n != 3 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// What is wrong in the account is found by the check that looks at it.
func TestFaults(t *testing.T) {
	provider := func(ids ...string) func(w *world) {
		return func(w *world) { w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), ids...) }
	}
	role := func(trust authtest.Trust) func(w *world) { return func(w *world) { w.role(trust) } }
	instead := func(account, suffix string) func(w *world) {
		return func(w *world) {
			w.Cloud.AWS().RemoveOIDCProvider("123456789012", w.Issuer.URL())
			w.Cloud.AWS().AddOIDCProvider("123456789012", "https://other.example", w.Issuer.HTTPClient(), aws.DefaultAudience)
			w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL()+suffix, w.Issuer.HTTPClient(), aws.DefaultAudience)
		}
	}
	for _, tc := range []struct {
		name            string
		change          func(w *world)
		id, class, text string
	}{
		{"no OIDC provider", func(w *world) { w.Cloud.AWS().RemoveOIDCProvider(account, w.Issuer.URL()) }, "trust-anchor", "A2", "no OIDC provider for the issuer"},
		{"slash", instead(account, "/"), "trust-anchor", "A2", "only by the /"},
		{"another account's", instead("210987654321", ""), "trust-anchor", "A2", "the hosts differ"},
		{"client ID", provider("sts.amazon.com"), "trust-anchor", "A4", "client ID"},
		{"no client ID", provider(), "trust-anchor", "A4", "client ID"},
		{"subject", role(authtest.Trust{Subjects: []string{"system:serviceaccount:tenant-a:other"}}), "trust-rule", "A1", "does not admit the token's sub"},
		{"* under StringEquals", role(authtest.Trust{Subjects: []string{"system:serviceaccount:tenant-a:*"}}), "trust-rule", "A1", "compared literally"},
		{"case", role(authtest.Trust{Subjects: []string{"system:serviceaccount:Tenant-A:app"}}), "trust-rule", "A1", "upper and lower case"},
		{"audience", role(authtest.Trust{Subjects: []string{subject}, Audiences: []string{"x"}}), "trust-rule", "A1", "aud"},
		{"role of others", role(authtest.Trust{Principals: []string{platform}}), "trust-rule", "A1", "web identities"},
		{"no role", func(w *world) { w.Cloud.AWS().RemoveRole(roleARN) }, "trust-rule", "A1", `the role "tenant-a" does not exist in account ` + account},
		{"role with another path", func(w *world) {
			w.Config.Annotations[aws.RoleARNAnnotation] = strings.Replace(roleARN, "/team", "", 1)
		}, "trust-rule", "A1", roleARN},
		{"issuer of the role", func(w *world) {
			w.Cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: "https://other.example", Subjects: []string{subject}})
		}, "trust-rule", "A1", "another OIDC provider"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report := w.Run()
			f := report.Worst()
			if f.ID != tc.id || f.Class != tc.class || !strings.Contains(f.Message+f.Remedy, tc.text) || f.Remedy == "" {
				t.Errorf("%+v", f)
			}
			if fields := f.Fields; fields[len(fields)-1].Observed != platform {
				t.Errorf("whose rights: %+v", fields)
			}
		})
	}
}

// What could not be looked at is unknown, and says why and what to do.
func TestUnknown(t *testing.T) {
	deny := func(actions ...string) func(w *world) {
		return func(w *world) { w.Cloud.AWS().Deny(platform, actions...) }
	}
	fault := func(action string, f authtest.Fault) func(w *world) {
		return func(w *world) {
			f.Service, f.Action = "iam", action
			w.Cloud.AddFault(f)
		}
	}
	const both = "trust-anchor trust-rule"
	for _, tc := range []struct {
		name          string
		change        func(w *world)
		checks        string
		message, does string
	}{
		{"may not read the role", deny("iam:GetRole"), "trust-rule", "AWS IAM refuses iam:GetRole to \"" + platform, "aws iam get-role --role-name tenant-a"},
		{"may not read the provider", deny("iam:GetOpenIDConnectProvider"), "trust-anchor", "iam:GetOpenIDConnectProvider", "allow iam:GetOpenIDConnectProvider on arn:aws:iam::" + account + ":oidc-provider/issuer.example"},
		{"may read nothing", deny("iam:GetRole", "iam:GetOpenIDConnectProvider"), both, "refuses", "allow"},
		{"another account", func(w *world) { w.login("210987654321", "platform") }, both, "your login is \"arn:aws:iam::210987654321:user/platform\" in account \"210987654321\"", "AWS_PROFILE"},
		{"no such key", func(w *world) { w.reader.Credentials = credentials.NewStaticCredentialsProvider("AKIAX", "x", "") }, both, "does not accept your login", "log in again"},
		{"no login", func(w *world) { w.reader.Credentials = credentials.NewStaticCredentialsProvider("", "", "") }, both, "there is no login", "aws sso login"},
		{"throttled", fault("", authtest.Fault{Status: 400, Code: "Throttling", Message: "Rate exceeded"}), both, "slow down", "try again"},
		{"outage", fault("", authtest.Fault{Status: 503, Code: "ServiceUnavailable"}), both, "ServiceUnavailable", "try again"},
		{"web page", fault("", authtest.Fault{Body: "<html>sign in</html>"}), both, "no answer of it", ""},
		{"nothing in it", fault("", authtest.Fault{Body: "<GetRoleResponse/>"}), both, "", ""},
		{"JSON", fault("GetRole", authtest.Fault{Body: "{}"}), "trust-rule", "no usable answer", ""},
		{"large", fault("GetRole", authtest.Fault{Body: "<GetRoleResponse>" + strings.Repeat("x", 10<<20)}), "trust-rule", "larger than", ""},
		{"redirect", fault("GetRole", authtest.Fault{Redirect: "https://evil.example/"}), "trust-rule", "redirect", ""},
		{"cut", fault("GetRole", authtest.Fault{Cut: true}), "trust-rule", "no usable answer", ""},
		{"encoding", fault("GetRole", authtest.Fault{Rewrite: func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), "%22", "%2")) }}), "trust-rule", "usable", ""},
		{"policy", fault("GetRole", authtest.Fault{Rewrite: func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), "%7B", "")) }}), "trust-rule", "cannot be read", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.Unclear(w.Run(), tc.checks, tc.message, tc.does)
		})
	}
}

// Whatever does not answer is given up in time.
func TestHanging(t *testing.T) {
	for _, f := range []authtest.Fault{{Service: "iam", Hang: true}, {Service: "iam", Slow: true}} {
		newWorld(t).GivesUp(f)
	}
}

// The default chain is the caller's, and it is what people have in their environment.
func TestDefaultChain(t *testing.T) {
	w := newWorld(t)
	id, secret := w.Cloud.AWS().AddUser(account, "engineer")
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	w.reader.Credentials = nil
	if f := w.Run().Of("trust-rule"); f.Result != doctor.Pass || !strings.Contains(f.Message, ":user/engineer") {
		t.Errorf("%+v", f)
	}
}

// Identities that are none are errors, and issuers that no account can have.
func TestReadTrustErrors(t *testing.T) {
	w := newWorld(t)
	for _, identity := range []string{"", "x", "arn:aws:iam::1:role/x"} {
		if trust, err := w.reader.ReadTrust(t.Context(), doctor.TrustQuery{Identity: identity, Claims: &doctor.Claims{Issuer: w.Issuer.URL()}}); err == nil || trust != nil {
			t.Errorf("%q: %+v, %v", identity, trust, err)
		}
	}
	for _, issuer := range []string{"", "https://", "http://issuer.example", "https://" + strings.Repeat("x", 300)} {
		trust, err := w.reader.ReadTrust(t.Context(), doctor.TrustQuery{Identity: roleARN, Claims: &doctor.Claims{Issuer: issuer}})
		if err != nil || !errors.Is(trust.AnchorErr, auth.ErrMisconfigured) || trust.RuleErr != nil {
			t.Errorf("%q: %+v, %v", issuer, trust, err)
		}
	}
}
