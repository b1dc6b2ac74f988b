package aws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *environment){
		"usual": func(*environment) {},
		"pattern": func(w *environment) {
			w.role(cloudtest.Trust{SubjectPatterns: []string{"system:serviceaccount:tenant-?:*"}})
		},
		"several": func(w *environment) {
			w.role(cloudtest.Trust{Subjects: []string{"x", subject}, Principals: []string{platform}})
		},
		"audience": func(w *environment) {
			w.role(cloudtest.Trust{Subjects: []string{subject}, Audiences: []string{audience}})
		},
		"own region":     func(w *environment) { w.Setenv("AWS_REGION", "us-west-2") },
		"foreign region": func(w *environment) { w.Setenv("AWS_REGION", "cn-north-1") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			change(w)
			if report := w.run(); report.Result != doctor.Pass || report.Of("trust-rule").Details[0].Text != platform {
				t.Errorf("%+v\n%s", report, report)
			}
			if n := w.cloud.Calls("iam", "") + w.cloud.Calls("sts", "GetCallerIdentity"); n != 2 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

const (
	allow      = `{"Effect":"Allow","Principal":{"Federated":"PROVIDER"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":`
	good       = allow + `{"StringEquals":{"ISS:sub":"SUB","ISS:aud":"sts.amazonaws.com"}}}`
	rule       = "trust-rule"
	everywhere = "system:serviceaccount:tenant-a:*"
)

func TestFaults(t *testing.T) {
	role := func(trust cloudtest.Trust) func(w *environment) { return func(w *environment) { w.role(trust) } }
	for _, row := range []struct {
		name        string
		spoil       func(w *environment)
		class, says string
	}{
		{"role does not exist", func(w *environment) {
			w.cloud.AWS().RemoveRole(roleARN)
		}, "TrustPolicyRefusesSubject", "Role tenant-a does not exist in account " + account},
		{"role has another path", func(w *environment) {
			w.cloud.AWS().RemoveRole(roleARN)
			w.cloud.AWS().SetRole("arn:aws:iam::"+account+":role/tenant-a", cloudtest.Trust{})
		}, "TrustPolicyRefusesSubject", "eks.amazonaws.com/role-arn=arn:aws:iam::" + account + ":role/tenant-a"},
		{"another subject", role(cloudtest.Trust{Subjects: []string{"system:serviceaccount:tenant-b:app"}}),
			"TrustPolicyRefusesSubject", "policy system:serviceaccount:tenant-b:app"},
		{"no statement for tokens", role(cloudtest.Trust{Principals: []string{platform}}), "TrustPolicyRefusesSubject",
			"does not mention AssumeRoleWithWebIdentity"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newEnvironment(t)
			row.spoil(w)
			f := expected{class: row.class, says: row.says, result: doctor.Fail}.expect(t, w.run())
			if f.Details[0] != (doctor.Value{Name: "read as", Text: platform}) {
				t.Errorf("%+v", f.Details)
			}
			if missing := strings.HasPrefix(row.name, "role"); missing != (f.Remedy.Or == nil) {
				t.Errorf("the alternative is %+v", f.Remedy.Or)
			}
		})
	}
}

func TestFaultsOfPolicies(t *testing.T) {
	policy := func(condition string) string { return printed("[" + allow + condition + "}]") }
	for _, row := range []struct{ name, content, says string }{
		{"* under StringEquals", policy(`{"StringEquals":{"ISS:sub":"` + everywhere + `"}}`), "compares it literally"},
		{"trust policy for another subject", policy(`{"StringEquals":{"ISS:sub":"system:serviceaccount:x:y"}}`),
			"does not admit this ServiceAccount"},
		{"another pattern", policy(`{"StringLike":{"ISS:sub":"system:serviceaccount:x:*"}}`),
			"does not admit this ServiceAccount"},
		{"case in the trust policy", policy(`{"StringEquals":{"ISS:sub":"system:serviceaccount:Tenant-A:app"}}`),
			"upper and lower case"},
		{"trust policy for another audience", policy(`{"StringEquals":{"ISS:sub":"SUB","ISS:aud":"sts.amazon.com"}}`),
			"admit the token's audience"},
		{"subject and audience differ", policy(`{"StringEquals":{"ISS:sub":"x","ISS:aud":"y"}}`),
			"admit this ServiceAccount"},
		{"trust policy of another cluster",
			strings.ReplaceAll(policy(`{"StringEquals":{"ISS:sub":"SUB"}}`), ":oidc-provider/issuer.", ":oidc-provider/other."),
			"another OIDC provider"},
		{"a condition that fails beside an unknown one", policy(`{"Bool":{"aws:x":"true"},"StringEquals":{"ISS:sub":"x"}}`),
			"admit this ServiceAccount"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := expected{class: "TrustPolicyRefusesSubject", says: row.says, result: doctor.Fail}.expect(t,
				parsed(t, row.content))
			if f.Remedy.Or == nil || f.Observed == nil {
				t.Errorf("%+v", f)
			}
		})
	}
}

// What the person may not read, or what is no answer of AWS, is Unknown.
func TestUnknown(t *testing.T) {
	fault := func(action string, f cloudtest.Fault) func(w *environment) {
		return func(w *environment) {
			f.Service, f.Action = "iam", action
			w.cloud.AddFault(f)
		}
	}
	deny := func(actions ...string) func(w *environment) {
		return func(w *environment) { w.cloud.AWS().Deny(platform, actions...) }
	}
	rewrite := func(from, to string) func(w *environment) {
		return fault("GetRole", cloudtest.Fault{Rewrite: func(b []byte) []byte {
			return []byte(strings.ReplaceAll(string(b), from, to))
		}})
	}
	for _, row := range []struct {
		name        string
		spoil       func(w *environment)
		class, says string
	}{
		{"may not read the role", deny("iam:GetRole"), "", "AWS refuses iam:GetRole to " + platform},
		{"another account", func(w *environment) {
			w.login("210987654321", "platform")
		}, "", "in account 210987654321, not in account " + account},
		{"unknown access key", func(w *environment) {
			w.reader.Credentials = credentials.NewStaticCredentialsProvider("AKIAX", "x", "")
		}, "", "does not accept your login"},
		{"no login", func(w *environment) {
			w.reader.Credentials = credentials.NewStaticCredentialsProvider("", "", "")
		}, "", "no usable login"},
		{"throttled", fault("GetRole", cloudtest.Fault{Status: 400, Code: "Throttling", Message: "Rate exceeded"}),
			"ServiceThrottles", "throttles"},
		{"outage", fault("GetRole", cloudtest.Fault{Status: 503, Code: "ServiceUnavailable"}), "ServiceFails",
			"ServiceUnavailable"},
		{"web page", fault("GetRole", cloudtest.Fault{Body: "<html>sign in</html>"}), "AnswerUnusable", "unusable"},
		{"JSON", fault("GetRole", cloudtest.Fault{Body: "{}"}), "AnswerUnusable", "unusable"},
		{"large", fault("GetRole", cloudtest.Fault{Body: "<GetRoleResponse>" + strings.Repeat("x", 10<<20)}),
			"AnswerUnusable", "unusable"},
		{"redirect", fault("GetRole", cloudtest.Fault{Redirect: "https://evil.example/"}), "AnswerUnusable", "unusable"},
		{"cut connection", fault("GetRole", cloudtest.Fault{Cut: true}), "ServiceUnreachable", "no answer"},
		{"broken encoding", rewrite("%22", "%2"), "AnswerUnusable", "unusable"},
		{"policy that is no JSON", rewrite("%7B", ""), "", "cannot be read"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newEnvironment(t)
			row.spoil(w)
			expected{class: row.class, says: row.says, result: doctor.Unknown}.expect(t, w.run())
		})
	}
}

func TestHanging(t *testing.T) {
	for _, fault := range []cloudtest.Fault{{Service: "iam", Hang: true}, {Service: "sts", Hang: true},
		{Service: "iam", Slow: true}} {
		w := newEnvironment(t)
		w.cloud.AddFault(fault)
		w.timeout = 300 * time.Millisecond
		if f := w.run().Of(rule); f.Result != doctor.Unknown {
			t.Errorf("%+v", f)
		}
	}
}

func TestDefaultChain(t *testing.T) {
	w := newEnvironment(t)
	id, secret := w.cloud.AWS().AddUser(account, "engineer")
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	w.reader.Credentials = nil
	if f := w.run().Of(rule); f.Result != doctor.Pass || !strings.HasSuffix(f.Details[0].Text, ":user/engineer") {
		t.Errorf("%+v", f)
	}
}

// A service, or what stands in its place, may repeat the login as an error
// code.
func TestLoginIsNotRepeated(t *testing.T) {
	const session = "FwoGZXIvYXdzEBYaDExampleSessionTokenOfSomeLength0123456789"
	w := newEnvironment(t)
	w.hidden = append(w.hidden, session)
	w.reader.Credentials = credentials.NewStaticCredentialsProvider("AKIAX",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", session)
	w.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "GetCallerIdentity", Status: 403, Code: session,
		Message: "you sent " + session})
	expected{class: "AnswerUnusable", says: "unusable", result: doctor.Unknown}.expect(t, w.run())
}
