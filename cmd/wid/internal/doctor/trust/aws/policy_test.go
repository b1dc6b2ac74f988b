package aws_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

func checked(t *testing.T, statements string, change ...func(*doctor.TrustQuery)) *doctor.Finding {
	t.Helper()
	return parsed(t, printed(statements), change...).Of(rule)
}

func TestPolicies(t *testing.T) {
	const federated = `{"Effect":"Allow","Principal":{"Federated":"PROVIDER"},`
	for statements, want := range map[string]doctor.Result{
		good:                            doctor.Pass,
		"[" + good + "]":                doctor.Pass,
		federated + `"Action":"sts:*"}`: doctor.Pass,
		federated +
			`"Action":["sts:TagSession","STS:assumeRoleWith?ebIdentity"]}`: doctor.Pass,
		federated +
			`"Action":"sts:AssumeRole"}`: doctor.Fail,
		federated +
			`"NotAction":"sts:AssumeRole"}`: doctor.Unknown,
		federated +
			`"Action":"sts:*","Resource":"*"}`: doctor.Unknown,
		`{"Effect":"Allow","Principal":"*","Action":"sts:*"}`:                                                            doctor.Unknown,
		`{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:*"}`:                                                    doctor.Unknown,
		`{"Effect":"Allow","Principal":{"Service":"x"},"Action":"sts:*"}`:                                                doctor.Fail,
		`{"Effect":"Allow","NotPrincipal":{"AWS":"x"},"Action":"sts:*"}`:                                                 doctor.Unknown,
		`{"Effect":"Allow","Principal":{"Federated":["x","PROVIDER"]},"Action":"sts:*"}`:                                 doctor.Pass,
		`{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::*:oidc-provider/ISS"},"Action":"sts:*"}`:               doctor.Unknown,
		`{"Effect":"Allow","Principal":{"Federated":"arn:aws-cn:iam::123456789012:oidc-provider/ISS"},"Action":"sts:*"}`: doctor.Fail,
		`{"Effect":"allow","Principal":{"Federated":"PROVIDER"},"Action":"sts:*"}`:                                       doctor.Unknown,
		allow +
			`{"stringlike":{"iss.x:SUB":"x"}}}`: doctor.Unknown,
		allow +
			`{"stringequals":{"Issuer.EXAMPLE:Sub":"SUB"}}}`: doctor.Pass,
		allow +
			`{"StringLike":{"ISS:sub":["x","system:*:a?p"]}}}`: doctor.Pass,
		allow +
			`{"StringLike":{"ISS:sub":"SUB-"}}}`: doctor.Fail,
		allow +
			`{"StringLike":{"ISS:sub":"tenant-a"}}}`: doctor.Fail,
		allow +
			`{"StringLike":{"ISS:sub":"system.*"}}}`: doctor.Fail,
		allow +
			`{"StringLike":{"ISS:sub":"${aws:userid}"}}}`: doctor.Unknown,
		allow +
			`{"StringEquals":{"ISS:sub":["SUB","${aws:userid}"]}}}`: doctor.Pass,
		allow +
			`{"StringEquals":{"ISS:sub":[]}}}`: doctor.Unknown,
		allow +
			`{"StringEquals":{"ISS:sub":null}}}`: doctor.Unknown,
		allow +
			`{"StringEquals":{"ISS:email":"x"}}}`: doctor.Unknown,
		allow +
			`{"StringEquals":{"aws:SourceVpc":"x","ISS:sub":"SUB"}}}`: doctor.Unknown,
		allow +
			`{"StringEquals":{"aws:SourceVpc":"x","ISS:sub":"y"}}}`: doctor.Fail,
		allow +
			`{"StringNotEquals":{"ISS:sub":"x"}}}`: doctor.Unknown,
		allow +
			`{"ForAnyValue:StringEquals":{"ISS:aud":"x"}}}`: doctor.Unknown,
		allow +
			`{"StringEqualsIfExists":{"ISS:sub":"SUB"}}}`: doctor.Unknown,
		allow +
			`{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}}`: doctor.Unknown,
		allow + `{}}`: doctor.Pass,
		allow + `[]}`: doctor.Unknown,
		allow + `{"StringEquals":{"ISS:sub":"x"}}},` + good: doctor.Pass,
		allow + `{"Bool":{"aws:x":true}}},` + good:          doctor.Pass,
		good + `,` + federated + `"NotAction":"x"}`:         doctor.Pass,
		good + `,7`:    doctor.Unknown,
		good + `,null`: doctor.Unknown,
		`7`:            doctor.Unknown,
		`[]`:           doctor.Unknown,
		good + `,{"Effect":"Deny","Principal":"*","Action":"sts:TagSession"}`:                           doctor.Unknown,
		`{"Effect":"Deny","Principal":"*","Action":"*"},` + good:                                        doctor.Unknown,
		`{"Effect":"Deny","Principal":"*","Action":"*"},` + allow + `{"StringEquals":{"ISS:sub":"x"}}}`: doctor.Fail,
		`{"Effect":"Deny","Principal":"*","Action":"*"}`:                                                doctor.Fail,
	} {
		t.Run(statements, func(t *testing.T) {
			if strings.Contains(statements, "},{") || strings.Contains(statements, "},7") ||
				strings.Contains(statements, "},null") {
				statements = "[" + statements + "]"
			}
			f := checked(t, statements)
			if f.Result != want || want == doctor.Unknown && len(f.Remedy.Commands) == 0 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A pattern under StringEquals admits no ServiceAccount, and perhaps was not
// meant to admit this one.
func TestPatternUnderStringEqualsIsNotWidened(t *testing.T) {
	f := checked(t, allow+`{"StringEquals":{"ISS:sub":"`+everywhere+`"}}}`)
	if !strings.Contains(f.Message, "literally") || !strings.HasPrefix(f.Remedy.Text, "If the role is wrong") ||
		f.Remedy.Or == nil || strings.Contains(strings.Join(f.Remedy.Commands, "\n"), "StringLike") {
		t.Errorf("%+v", f)
	}
}

// The message of what is not checked quotes it.
func TestUncheckedIsQuoted(t *testing.T) {
	for statements, quoted := range map[string]string{
		allow + `{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}}`: `{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`,
		"[" + good + `,{"Effect":"Deny","Principal":"*"}]`:       `{"Effect":"Deny","Principal":"*"}`,
	} {
		f := checked(t, statements)
		if !strings.Contains(f.Message, quoted) || f.Details[0].Text != quoted ||
			f.Remedy.Commands[0] != "aws iam get-role --role-name tenant-a --query Role.AssumeRolePolicyDocument" {
			t.Errorf("%+v", f)
		}
	}
}

func TestTokensWithSeveralAudiences(t *testing.T) {
	report := parsed(t, printed(good), func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{audience, "x"} })
	if f := report.Of(rule); f.Result != doctor.Unknown {
		t.Errorf("%+v", f)
	}
}

// Pasted as they stand, the commands of the alternative add a statement that
// admits the token, and keep the rest of the policy.
func TestPastedPolicyAdmits(t *testing.T) {
	jq, err := exec.LookPath("jq")
	for _, statements := range []string{`{"Effect":"Deny","Principal":{"AWS":"x"},"Action":"$(touch owned)"}`,
		`[` + allow + `{"StringEquals":{"ISS:sub":"x"}}}]`} {
		commands := checked(t, statements).Remedy.Or.Commands
		if len(commands) != 2 ||
			commands[1] != "aws iam update-assume-role-policy --role-name tenant-a --policy-document file://trust.json" {
			t.Fatalf("%q", commands)
		}
		_, script, _ := strings.Cut(commands[0], "| jq ")
		added := extended(t, statements)
		if err == nil { // jq is installed
			added = pasted(t, jq+" "+script, statements)
		}
		if f := checked(t, added); f.Result != doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
}

// extended is the statement that the command adds.
func extended(t *testing.T, statements string) string {
	t.Helper()
	_, statement, _ := strings.Cut(checked(t, statements).Remedy.Or.Commands[0], "[.Statement, ")
	statement, _, _ = strings.Cut(statement, "] | flatten)")
	return statement
}

// pasted runs jq on the policy and returns the statement that it has added.
func pasted(t *testing.T, script, statements string) string {
	t.Helper()
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	sh.Dir, sh.Stdin = t.TempDir(), strings.NewReader(printed(statements))
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(sh.Dir, "trust.json"))
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Version   string
		Statement []json.RawMessage
	}
	if err := json.Unmarshal(content, &policy); err != nil || len(policy.Statement) != 2 || policy.Version == "" {
		t.Fatalf("%v: %s", err, content)
	}
	return string(policy.Statement[1])
}

// A policy cannot name a subject with wildcards literally, so the reader fills
// it in. Nor does the doctor make a cloud trust an audience that the person did
// not choose.
func TestOddTokensAreNotFilledIn(t *testing.T) {
	const other = allow + `{"StringEquals":{"ISS:sub":"x"}}}`
	for _, sub := range []string{"", "system:*", "${aws:userid}", "ü"} {
		f := checked(t, other, func(q *doctor.TrustQuery) { q.Claims.Subject = sub })
		if !strings.Contains(f.Remedy.Or.Commands[0], `"issuer.example:sub":"SUBJECT"`) {
			t.Errorf("%.10q: %+v", sub, f.Remedy.Or)
		}
	}
	f := checked(t, other, func(q *doctor.TrustQuery) { q.Claims.Audiences = []string{"https://kubernetes.default.svc"} })
	if !strings.Contains(f.Remedy.Or.Commands[0], `"issuer.example:aud":"AUDIENCE"`) {
		t.Errorf("%q", f.Remedy.Or.Commands)
	}
}

// Texts of tenants and accounts reach neither the shell nor the terminal.
func TestHostileTexts(t *testing.T) {
	for _, evil := range hostile() {
		quoted, err := json.Marshal(evil)
		if err != nil {
			t.Fatal(err)
		}
		change := func(q *doctor.TrustQuery) {
			q.Claims.Subject, q.Claims.Namespace, q.Claims.ServiceAccount, q.Claims.Audiences = evil, evil, evil, []string{evil}
		}
		for _, report := range []*doctor.Report{
			parsed(t, printed(allow+`{"StringEquals":{"ISS:sub":`+string(quoted)+`}}}`)),
			parsed(t, printed(allow+`{"StringEquals":{"ISS:sub":"x"}}}`), change),
			parsed(t, printed(allow+`{"StringEquals":{"ISS:sub":"x"}}}`), func(q *doctor.TrustQuery) {
				q.Claims.Issuer = "https://x/" + evil
			}),
		} {
			paste(t, report)
		}
	}
}

// FuzzDocument expects a finding without panics and line breaks of each
// document, whatever it holds.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{printed(good), printed("[" + good + `,{"Effect":"Deny"}]`), `{"Statement":[{}]}`} {
		f.Add(seed, subject, audience)
	}
	f.Fuzz(func(t *testing.T, document, sub, aud string) {
		q := queryOf("https://issuer.example")
		q.Claims.Subject, q.Claims.Audiences = sub, []string{aud}
		report := runRule(t.Context(), q, written(document), 0)
		if _, err := json.Marshal(report); err != nil {
			t.Error(err)
		}
		if f := report.Of(rule); f.Result == "" || f.Message == "" || strings.Contains(f.Message, "panicked") ||
			strings.ContainsAny(f.Message, "\n\x1b") {
			t.Errorf("%+v", f)
		}
	})
}

// FuzzPolicy expects that no policy passes that mentions neither the subject
// nor a wildcard, unless it has no condition on it.
func FuzzPolicy(f *testing.F) {
	f.Add("StringEquals", "issuer.example:sub", subject)
	f.Add("StringLike", "issuer.example:sub", "system:*")
	f.Add("StringLike", "ISSUER.example:aud", "sts?amazonaws.com")
	f.Add("Bool", "aws:SecureTransport", "true")
	f.Fuzz(func(t *testing.T, operator, key, value string) {
		condition, err := json.Marshal(map[string]any{operator: map[string]string{key: value}})
		if err != nil {
			return
		}
		finding := checked(t, allow+string(condition)+"}")
		exact := value == subject || value == audience
		if finding.Result == doctor.Pass && !exact && !strings.ContainsAny(value, "*?") {
			t.Errorf("%s passes", condition)
		}
		if finding.Result == doctor.Pass && !strings.EqualFold(operator, "StringEquals") &&
			!strings.EqualFold(operator, "StringLike") {
			t.Errorf("%s is checked", condition)
		}
	})
}
