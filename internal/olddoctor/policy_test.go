package doctor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

const (
	allowStatement = `{"Effect":"Allow","Principal":{"Federated":"PROVIDER"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"issuer.example:sub":"SUB","issuer.example:aud":"sts.amazonaws.com"}}}`
	oidcProvider   = "arn:aws:iam::" + account + ":oidc-provider/issuer.example"
)

// judged is what is said of a trust policy, whatever the exchange would say.
func judged(t *testing.T, policy string, change func(w *world)) *doctor.Finding {
	t.Helper()
	w := newWorld(t, "aws")
	w.config.Skip, w.config.ShowPolicy = []string{"exchange"}, true
	policy = strings.NewReplacer("PROVIDER", oidcProvider, "SUB", subject).Replace(policy)
	w.config.Trust = &reading{trust: &doctor.Trust{Policy: []byte(policy)}}
	if change != nil {
		change(w)
	}
	return w.run().Of("trust-rule")
}

func statements(list ...string) string {
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(list, ",") + `]}`
}

// What denies counts wherever it stands, and what is not understood of it does not count as nothing.
func TestPolicyDenies(t *testing.T) {
	t.Parallel()
	const federated = `"Principal":{"Federated":"PROVIDER"},"Action":"sts:AssumeRoleWithWebIdentity"`
	const condition = `,"Condition":`
	for deny, want := range map[string]doctor.Result{
		federated: doctor.Fail,
		`"Principal":{"federated":["x","PROVIDER"]},"Action":["x","sts:*"]`:                                doctor.Fail,
		`"Principal":"*","NotAction":["sts:TagSession","sts:assumerolewith*"]`:                             doctor.Pass,
		`"Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"*"`:                                doctor.Unknown,
		`"Principal":{"AWS":["123456789012"]},"Action":"*"`:                                                doctor.Unknown,
		`"Principal":{"AWS":"arn:aws:iam::*:root"},"Action":"*"`:                                           doctor.Unknown,
		`"Principal":{"Federated":"*"},"Action":"*"`:                                                       doctor.Unknown,
		`"Principal":{"Somebody":"x"},"Action":"*"`:                                                        doctor.Unknown,
		`"Principal":{"Service":"ec2.amazonaws.com"},"Action":"*"`:                                         doctor.Pass,
		`"Principal":{"Federated":"arn:aws-cn:iam::123456789012:oidc-provider/issuer.example"},"Action":1`: doctor.Unknown,
		`"Principal":"*"`: doctor.Unknown,
		`"Principal":"*","Action":"x","NotAction":"y"`:                                                  doctor.Unknown,
		federated + `,"Resource":"*"`:                                                                   doctor.Unknown,
		federated + `,"effect":"Allow"`:                                                                 doctor.Unknown,
		federated + `,"Condition":{"StringEquals":{"aws:x":"y"},"stringequals":{"aws:x":"z"}}`:          doctor.Unknown,
		federated + condition + `[]`:                                                                    doctor.Unknown,
		federated + condition + `{"StringEquals":{"issuer.example:sub":[]}}`:                            doctor.Unknown,
		federated + condition + `{"StringEquals":{"issuer.example:sub":null}}`:                          doctor.Unknown,
		federated + condition + `{"StringEqualsNot":{"issuer.example:sub":"SUB"}}`:                      doctor.Unknown,
		federated + condition + `{"Null":{"issuer.example:sub":"true"}}`:                                doctor.Unknown,
		federated + condition + `{"ForAnyValue:ForAllValues:StringEquals":{"other.example:sub":"SUB"}}`: doctor.Unknown,
		federated + condition + `{"ForAnyValue:StringNotEquals":{"issuer.example:sub":"x"}}`:            doctor.Unknown,
		federated + condition + `{"StringNotEquals":{"issuer.example:sub":"x"}}`:                        doctor.Fail,
		federated + condition + `{"StringNotEquals":{"issuer.example:sub":["x","SUB"]}}`:                doctor.Pass,
		federated + condition + `{"StringNotEqualsIgnoreCase":{"issuer.example:sub":"SYSTEM:x"}}`:       doctor.Fail,
		federated + condition + `{"StringNotEquals":{"aws:PrincipalOrgID":"o-1"}}`:                      doctor.Unknown,
		federated + condition + `{"Bool":{"aws:SecureTransport":false}}`:                                doctor.Unknown,
		federated + condition + `{"StringEquals":{"issuer.example:sub":"${aws:userid}"}}`:               doctor.Unknown,
		federated + condition + `{"StringEquals":{"issuer.example:sub":["${aws:userid}","SUB"]}}`:       doctor.Fail,
		federated + condition + `{"StringNotLike":{"issuer.example:sub":"${aws:userid}"}}`:              doctor.Unknown,
		federated + condition + `{"StringEqualsIgnoreCase":{"issuer.example:sub":"ſystem"}}`:            doctor.Unknown,
		federated + condition + `{"StringEquals":{"issuer.example:namespace":"x"}}`:                     doctor.Unknown,
		federated + condition + `{"StringEquals":{"aws:x":"y","issuer.example:sub":"x"}}`:               doctor.Pass,
		federated + condition + `{"StringNotEquals":{"other.example:sub":"x"}}`:                         doctor.Fail,
		federated + condition + `{"StringEquals":{"other.example:sub":"x"}}`:                            doctor.Pass,
		federated + condition + `{"ForAllValues:StringLike":{"ISSUER.example:aud":"sts.*"}}`:            doctor.Fail,
		federated + condition + `{"ForAllValues:StringLike":{"other.example:aud":"sts.*"}}`:             doctor.Fail,
		federated + condition + `{"ForAnyValue:StringLike":{"other.example:aud":"sts.*"}}`:              doctor.Pass,
	} {
		denied := `{"Effect":"Deny",` + deny + `}`
		for _, policy := range []string{statements(allowStatement, denied), statements(denied, allowStatement)} {
			if f := judged(t, policy, nil); f.Result != want || want != doctor.Pass && f.Remedy == "" {
				t.Errorf("%s: %+v instead of %s", policy, f, want)
			}
		}
		if f := judged(t, statements(denied), nil); f.Result == doctor.Pass || f.Result == doctor.Unknown && !strings.Contains(f.Message, "understands") {
			t.Errorf("%s alone: %+v", denied, f)
		}
	}
}

// What allows may be written in more ways than one, and what this check cannot know is open.
func TestPolicyAllows(t *testing.T) {
	const rest = `"Effect":"Allow","Principal":{"Federated":"PROVIDER"},`
	const action = rest + `"Action":"sts:AssumeRoleWithWebIdentity","Condition":`
	for allow, want := range map[string]doctor.Result{
		rest + `"Action":["sts:TagSession","sts:AssumeRoleWith?ebIdentity"]`:                                                         doctor.Pass,
		rest + `"NotAction":"sts:AssumeRole"`:                                                                                        doctor.Pass,
		rest + `"Action":"sts:AssumeRole"`:                                                                                           doctor.Fail,
		rest + `"NotAction":"sts:*"`:                                                                                                 doctor.Fail,
		action + `{"stringequals":{"ISSUER.example:Sub":"SUB"}}`:                                                                     doctor.Pass,
		action + `{"StringEqualsIfExists":{"other.example:sub":"x"}}`:                                                                doctor.Pass,
		action + `{"StringEquals":{"other.example:sub":"x"}}`:                                                                        doctor.Fail,
		action + `{"StringEqualsIfExists":{"aws:SourceVpc":"x"}}`:                                                                    doctor.Unknown,
		action + `{"StringEquals":{"sts:RoleSessionName":"x","issuer.example:sub":"y"}}`:                                             doctor.Fail,
		action + `{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`:                                                                     doctor.Unknown,
		action + `{"StringNotEquals":{"issuer.example:sub":"x"}}`:                                                                    doctor.Pass,
		action + `{"StringNotEquals":{"issuer.example:sub":"SUB"}}`:                                                                  doctor.Fail,
		action + `{"StringEquals":{"issuer.example:sub":"${aws:x}"}}`:                                                                doctor.Unknown,
		action + `{"StringEquals":{"issuer.example:sub":["SUB","${aws:x}"]}}`:                                                        doctor.Pass,
		action + `{"StringEqualsIfExists":{"issuer.example:sub":"x"}}`:                                                               doctor.Fail,
		action + `{"StringEquals":{"issuer.example:email":"x"}}`:                                                                     doctor.Unknown,
		`"Effect":"Allow","Principal":"*","Action":"sts:AssumeRoleWithWebIdentity"`:                                                  doctor.Fail,
		`"Effect":"allow","Principal":{"Federated":"PROVIDER"},"Action":"sts:*"`:                                                     doctor.Unknown,
		`"Effect":"Allow","NotPrincipal":{"AWS":"x"},"Action":"sts:*"`:                                                               doctor.Unknown,
		`"Effect":"Allow","Principal":{"Federated":"arn:aws-cn:iam::` + account + `:oidc-provider/issuer.example"},"Action":"sts:*"`: doctor.Fail,
		`"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::*:oidc-provider/issuer.example"},"Action":"sts:*"`:                  doctor.Unknown,
	} {
		if strings.Contains(allow, `"Principal":"*"`) {
			want = doctor.Unknown // whether everybody includes those with a token is not documented
		}
		if f := judged(t, statements("{"+allow+"}"), nil); f.Result != want {
			t.Errorf("%s: %+v instead of %s", allow, f, want)
		}
	}
}

// What a request has of a token that is not like those of Kubernetes is open.
func TestPolicyAndOddTokens(t *testing.T) {
	for name, change := range map[string]func(claims map[string]any){
		"azp":               func(claims map[string]any) { claims["azp"] = "x" },
		"several audiences": func(claims map[string]any) { claims["aud"] = []string{"sts.amazonaws.com", "x"} },
	} {
		f := judged(t, statements(allowStatement), func(w *world) { w.write(w.sign(change)) })
		if f.Result != doctor.Unknown {
			t.Errorf("%s: %+v", name, f)
		}
	}
	both := strings.Replace(allowStatement, `"sts.amazonaws.com"`, `["sts.amazonaws.com","x"]`, 1)
	for policy, want := range map[string]doctor.Result{
		both: doctor.Unknown, strings.Replace(both, "StringEquals", "ForAllValues:StringEquals", 1): doctor.Pass,
		strings.Replace(both, `["sts.amazonaws.com","x"]`, `"y"`, 1): doctor.Fail,
	} {
		f := judged(t, statements(policy), func(w *world) {
			w.write(w.sign(func(claims map[string]any) { claims["aud"] = []string{"sts.amazonaws.com", "x"} }))
		})
		if f.Result != want {
			t.Errorf("%s: %+v", policy, f)
		}
	}
}

// Documents that can be read in two ways, or are none.
func TestOddPolicies(t *testing.T) {
	for _, policy := range []string{`[]`, `{}`, `null`, `{"Statement":[]}`, `{"Statement":[],"statement":` + allowStatement + `}`, `{"Statement":"x"}`, `{"Statement":[null]}`,
		`{"Statement":[` + allowStatement + `,7]}`, `{"Statement":` + allowStatement + `,"Statement":` + allowStatement + `}`,
		`{"Statement":` + allowStatement + `,"Id":"` + strings.Repeat("x", 20<<10) + `"}`, strings.Repeat(`{"Statement":`, 20000), "{\"Statement\":\"\xff\"}"} {
		if f := judged(t, policy, nil); f.Result != doctor.Unknown {
			t.Errorf("%.100s: %+v", policy, f)
		}
	}
}

// remedied is the policy of a remedy, which admits the token if it is set.
func remedied(t *testing.T, remedy string, change func(w *world)) string {
	t.Helper()
	lines := strings.Split(remedy, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "{") && json.Valid([]byte(line)) && i == len(lines)-2 && strings.Contains(lines[i+1], "--policy-document file://trust.json") {
			if f := judged(t, line, change); f.Result != doctor.Pass {
				t.Errorf("the remedy does not help: %+v\n%s", f, line)
			}
			return line
		}
	}
	t.Errorf("no policy in %q", remedy)
	return ""
}

// The remedy is the whole policy, in which nothing is missing that was there.
func TestPolicyToPaste(t *testing.T) {
	other := `{"Sid":"Nodes","Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}`
	for _, policy := range []string{
		statements(other), `{"Statement":` + other + `}`, `{"Version":"2008-10-17","Id":"mine","Statement":` + other + `}`,
		statements(other, strings.NewReplacer("SUB", "x", "PROVIDER", oidcProvider).Replace(allowStatement)),
		statements(other, `{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"StringEquals":{"issuer.example:sub":"$(touch owned)'!`+"`"+`"}}}`),
	} {
		line := remedied(t, judged(t, policy, nil).Remedy, nil)
		var before, after struct {
			Version, ID string
			Statement   any
		}
		if json.Unmarshal([]byte(policy), &before) != nil || json.Unmarshal([]byte(line), &after) != nil {
			t.Fatal(policy, line)
		}
		want, ok := before.Statement.([]any)
		if !ok {
			want = []any{before.Statement}
		}
		got, ok := after.Statement.([]any)
		if !ok || len(got) != len(want)+1 || fmt.Sprint(got[:len(want)]) != fmt.Sprint(want) || before.Version != after.Version || before.ID != after.ID {
			t.Errorf("%s became %s", policy, line)
		}
		if strings.ContainsAny(line, "$`'!") {
			t.Errorf("a shell obeys it: %s", line)
		}
	}
}

// What is not fit for a terminal, or too long, is left to the command line of AWS.
func TestPolicyNotToPaste(t *testing.T) {
	const other = `{"Sid":"SID","Effect":"Allow","Principal":{"Service":"x"},"Action":"sts:AssumeRole"}`
	for _, sid := range []string{strings.Repeat("x", 5000), `a\u001b[2J`, "\u202e", "ü"} {
		f := judged(t, statements(strings.Replace(other, "SID", sid, 1)), nil)
		lines := strings.Split(trustChange(f), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "aws iam get-role --role-name tenant-a") || strings.Contains(f.Remedy, "SID") || len(f.Remedy) > 2000 ||
			judged(t, statements(lines[2]), nil).Result != doctor.Pass {
			t.Errorf("%.20s: %q", sid, f.Remedy)
		}
	}
}

// Pasted as it stands, a remedy replaces no policy that nobody has read: what sets it has read it before.
func TestUnreadPolicyIsKept(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.ShowPolicy = true
	w.cloud.AWS().RemoveRole(roleARN)
	f := w.run().Of("exchange")
	lines := strings.Split(trustChange(f), "\n")
	if f.Class != "A1" || len(lines) != 4 || !strings.Contains(lines[1], "was not read") || judged(t, statements(lines[2]), nil).Result != doctor.Pass {
		t.Fatalf("%+v", f)
	}
	dir := t.TempDir()
	const old = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	for name, content := range map[string]string{"old.json": old, "aws": `#!/bin/bash
case "$2" in
get-role) cat old.json ;;
update-assume-role-policy) for file; do :; done; cp "${file#file://}" new.json ;;
esac
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil { //nolint:gosec // one is a program
			t.Fatal(err)
		}
	}
	shell := exec.CommandContext(t.Context(), "bash")
	shell.Dir, shell.Stdin, shell.Env = dir, strings.NewReader(trustChange(f)+"\n"), []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	out, err := shell.CombinedOutput()
	set, _ := os.ReadFile(filepath.Join(dir, "new.json"))
	if err != nil || string(set) != old {
		t.Errorf("%v: %s\n%s\n%s", err, out, set, f.Remedy)
	}
}

// A policy is of the role's own partition, for the audience that tokens there are to have, also if the role's own was not read.
func TestPolicyOfPartition(t *testing.T) {
	regions := map[string]string{"aws": "eu-central-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
	for partition, audience := range map[string]string{"aws": "sts.amazonaws.com", "aws-cn": "sts.amazonaws.com.cn", "aws-us-gov": "sts.amazonaws.com"} {
		change := func(w *world) {
			w.account.Annotations[aws.RoleARNAnnotation] = "arn:" + partition + ":iam::" + account + ":role/path/tenant-a"
			w.account.Annotations[aws.AudienceAnnotation] = audience
			w.config.Options = append(w.config.Options, auth.WithPolicy(auth.Policy{Audiences: []string{audience}}), auth.WithSTSRegion(regions[partition]))
			w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), audience)
			w.write(w.sign(func(claims map[string]any) { claims["aud"] = audience }))
		}
		known := judged(t, statements(`{"Effect":"Allow","Principal":{"AWS":"x"},"Action":"*"}`), change)
		w := newWorld(t, "aws")
		w.config.ShowPolicy = true
		change(w)
		w.cloud.AWS().RemoveRole(roleARN)
		exchange := w.run().Of("exchange")
		if exchange.Class != "A1" || !strings.Contains(exchange.Remedy, "--role-name tenant-a ") {
			t.Errorf("%s: %+v", partition, exchange)
		}
		lines := strings.Split(exchange.Remedy, "\n")
		for _, line := range []string{remedied(t, known.Remedy, change), lines[len(lines)-2]} {
			if !strings.Contains(line, `"arn:`+partition+":iam::"+account+`:oidc-provider/issuer.example"`) || !strings.Contains(line, `"`+audience+`"`) {
				t.Errorf("%s: %s", partition, line)
			}
		}
	}
}

// A policy names one token exactly, or there is none to paste.
func TestPolicyForHostileTokens(t *testing.T) {
	for _, sub := range []string{"*", "system:serviceaccount:*:x", "${aws:userid}", "a b", "ü", "\x1b", strings.Repeat("x", 600)} {
		f := judged(t, statements(`{"Effect":"Allow","Principal":{"AWS":"x"},"Action":"*"}`), func(w *world) {
			w.write(w.sign(func(claims map[string]any) { claims["sub"] = sub }))
			w.config.Skip = append(w.config.Skip, "subject")
		})
		if f.Result != doctor.Fail || strings.Contains(f.Remedy, "{") {
			t.Errorf("%q: %+v", sub, f)
		}
	}
}

// No remedy has a cloud trust another audience than the one that is wanted.
func TestWrongAudienceIsNotTrusted(t *testing.T) {
	t.Parallel()
	for provider, trusts := range map[string][]string{
		"aws": {awsTrust("https://issuer.example", `{"StringEquals":{"issuer.example:sub":"x"}}`)},
		"azure": {"[]", azureTrust("https://issuer.example", subject, "api://AzureADTokenExchange"), azureTrust("https://issuer.example/x", subject, "x"),
			azureTrust("https://issuer.example", "x", "x"), `[{"issuer":"https://issuer.example","audiences":["x"],"claimsMatchingExpression":{"value":"x"}}]`},
		"gcp": {gcpTrust("https://issuer.example", "", principal)},
	} {
		for _, trust := range trusts {
			for _, audience := range []any{"wrong-audience", []string{"wrong-audience", "x"}, "https://kubernetes.default.svc", "https://issuer.example"} {
				for _, skip := range []string{"", "audience"} {
					w := newWorld(t, provider)
					w.trust, w.config.Skip, w.config.ShowPolicy = trust, []string{skip}, true
					w.write(w.sign(func(claims map[string]any) { claims["aud"] = audience }))
					report := w.run()
					for _, id := range []string{"trust-anchor", "trust-rule", "exchange"} {
						f := report.Of(id)
						if strings.Contains(f.Remedy, "wrong-audience") || strings.Contains(f.Remedy, "kubernetes.default") || f.Result == doctor.Pass && id == "trust-anchor" {
							t.Errorf("%s: %+v", provider, f)
						}
						if id == "trust-anchor" && skip == "" && (f.Result != doctor.Skip || f.Needs != 6) {
							t.Errorf("%s: %+v", provider, f)
						}
					}
				}
			}
		}
	}
}

// A tenant that asks for the audience of API servers does not get a command that has the cloud trust their tokens.
func TestAudienceOfAPIServersIsNotTrusted(t *testing.T) {
	const apiServer = "https://kubernetes.default.svc"
	w := newWorld(t, "aws")
	w.trust = awsTrust("https://issuer.example", `{"StringEquals":{"issuer.example:sub":"x"}}`)
	w.account.Annotations[aws.AudienceAnnotation] = apiServer
	w.config.Options = append(w.config.Options, auth.WithPolicy(auth.Policy{Audiences: []string{apiServer}}))
	w.config.Skip, w.config.ShowPolicy = []string{"exchange"}, true
	w.write(w.sign(func(claims map[string]any) { claims["aud"] = apiServer }))
	report := w.run()
	for _, id := range []string{"trust-anchor", "trust-rule"} {
		if f := report.Of(id); f.Result == doctor.Pass || strings.Contains(f.Remedy, "kubernetes.default") {
			t.Errorf("%+v", f)
		}
	}
	if f := report.Of("audience"); f.Result != doctor.Fail || !strings.Contains(f.Remedy, aws.AudienceAnnotation) {
		t.Errorf("%+v", f)
	}
}

// The refusal of STS is explained by the policy that was read, if there is one.
func TestRemedyOfRefusal(t *testing.T) {
	for policy, want := range map[string]string{
		statements(allowStatement):                                                   "try again a minute after a change",
		statements(strings.Replace(allowStatement, "SUB", "x", 1)):                   "see check 20",
		statements(strings.Replace(allowStatement, "SUB", "${aws:x}", 1)):            "by hand",
		statements(`{"Effect":"Deny","Principal":"*","Action":"*"}`, allowStatement): "see check 20",
	} {
		f := judged(t, policy, nil)
		w := newWorld(t, "aws")
		w.config.Trust = &reading{trust: &doctor.Trust{Policy: []byte(strings.NewReplacer("PROVIDER", oidcProvider, "SUB", subject).Replace(policy))}}
		w.cloud.AWS().RemoveRole(roleARN)
		if exchange := w.run().Of("exchange"); exchange.Class != "A1" || !strings.Contains(exchange.Remedy, want) {
			t.Errorf("%s: %+v\n%+v", policy, exchange, f)
		}
	}
}

// A condition is seen by those who may not see the role's other statements.
func TestPolicyIsNotInConditions(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.Skip, w.config.ShowPolicy = []string{"exchange"}, true
	w.config.Trust = &reading{trust: &doctor.Trust{Anchors: []doctor.Anchor{{Issuer: "https://issuer.example", Audiences: []string{"sts.amazonaws.com"}}},
		Policy: []byte(statements(`{"Effect":"Allow","Principal":{"AWS":"x"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"partner"}}}`))}}
	report := w.run()
	message := report.Condition("Ready", 1).Message
	if f := report.Of("trust-rule"); f.Result != doctor.Fail || !strings.Contains(f.Remedy, "partner") || strings.Contains(message, "partner") ||
		widens.MatchString(message) || !strings.Contains(message, aws.RoleARNAnnotation) {
		t.Errorf("%+v\n%s", f, message)
	}
}
