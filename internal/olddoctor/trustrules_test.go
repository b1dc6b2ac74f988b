package doctor_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// anchored is what is said of what a cloud trusts, whatever the exchange would say.
func anchored(t *testing.T, provider string, trust *doctor.Trust, change func(w *world)) *doctor.Report {
	t.Helper()
	w := newWorld(t, provider)
	w.config.Skip, w.config.ShowPolicy = []string{"exchange"}, true
	w.config.Trust = &reading{trust: trust}
	if change != nil {
		change(w)
	}
	return w.run()
}

// A federated credential with an expression is neither a pass nor a failure, unless something else decides.
func TestAzureExpressions(t *testing.T) {
	const audience, iss = "api://AzureADTokenExchange", "https://issuer.example"
	good := doctor.Anchor{Name: "good", Issuer: iss, Subject: subject, Audiences: []string{audience}}
	other := doctor.Anchor{Name: "other", Issuer: iss, Subject: "system:serviceaccount:x:y", Audiences: []string{audience}}
	with := func(a doctor.Anchor, change func(a *doctor.Anchor)) doctor.Anchor {
		change(&a)
		return a
	}
	expression := with(good, func(a *doctor.Anchor) { a.Subject, a.Expression = "", "claims['sub'] matches 'x'" })
	both := with(good, func(a *doctor.Anchor) { a.Expression = "claims['sub'] eq 'x'" })
	for name, tc := range map[string]struct {
		anchors []doctor.Anchor
		want    doctor.Result
		class   string
		remedy  string
	}{
		"alone":                    {[]doctor.Anchor{expression}, doctor.Unknown, "", "by hand"},
		"with a subject":           {[]doctor.Anchor{both}, doctor.Unknown, "", "by hand"},
		"beside one that fits":     {[]doctor.Anchor{expression, good}, doctor.Pass, "", ""},
		"beside another":           {[]doctor.Anchor{other, expression}, doctor.Unknown, "", "by hand"},
		"for another issuer":       {[]doctor.Anchor{with(expression, func(a *doctor.Anchor) { a.Issuer = "https://x" })}, doctor.Fail, "Z2", "federated-credential create"},
		"for another audience":     {[]doctor.Anchor{with(expression, func(a *doctor.Anchor) { a.Audiences = []string{"x"} })}, doctor.Fail, "Z3", "federated-credential create"},
		"somebody else's subject":  {[]doctor.Anchor{other}, doctor.Fail, "Z4", "federated-credential create --name CREDENTIAL_NAME --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --issuer " + iss + " --subject " + subject + " --audiences " + audience},
		"another cluster's issuer": {[]doctor.Anchor{with(good, func(a *doctor.Anchor) { a.Issuer = iss + "/old" })}, doctor.Fail, "Z2", "federated-credential create"},
		"a slash":                  {[]doctor.Anchor{with(good, func(a *doctor.Anchor) { a.Issuer = iss + "/" })}, doctor.Fail, "Z2", "federated-credential update --name good"},
		"another audience":         {[]doctor.Anchor{with(good, func(a *doctor.Anchor) { a.Audiences = []string{"x"} })}, doctor.Fail, "Z3", "--audiences " + audience},
	} {
		f := anchored(t, "azure", &doctor.Trust{Anchors: tc.anchors}, nil).Of("trust-anchor")
		if f.Result != tc.want || f.Class != tc.class || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A token with several audiences is not said to fit, since clouds differ in what they make of it.
func TestSeveralAudiences(t *testing.T) {
	for provider, trust := range map[string]string{"aws": awsTrust("https://issuer.example", "{}"), "azure": azureTrust("https://issuer.example", subject, "api://AzureADTokenExchange"),
		"gcp": gcpTrust("https://issuer.example", "", principal)} {
		f := anchored(t, provider, nil, func(w *world) {
			w.trust = trust
			w.write(w.sign(func(claims map[string]any) { claims["aud"] = []string{w.audience(), "x"} }))
		}).Of("trust-anchor")
		if f.Result != doctor.Unknown || f.Remedy == "" {
			t.Errorf("%s: %+v", provider, f)
		}
	}
}

// The subject that policies of Google Cloud name is what the provider makes of the token.
func TestGoogleSubject(t *testing.T) {
	const base = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/clusters/subject/"
	everybody := strings.Replace(strings.TrimSuffix(base, "subject/"), "principal:", "principalSet:", 1) + "*"
	for name, tc := range map[string]struct {
		mapping, condition, member string
		anchor, rule               doctor.Result
	}{
		"sub":                             {"assertion.sub", "", principal, doctor.Pass, doctor.Pass},
		"another claim":                   {"assertion['kubernetes.io'].namespace", "", base + "tenant-a", doctor.Pass, doctor.Pass},
		"another claim, but sub is bound": {"assertion['kubernetes.io'].namespace", "", principal, doctor.Pass, doctor.Fail},
		"joined":                          {"'k8s::' + assertion['kubernetes.io']['namespace']", "", base + "k8s::tenant-a", doctor.Pass, doctor.Pass},
		"beyond this check":               {"assertion.sub.extract('{a}:')", "", principal, doctor.Unknown, doctor.Unknown},
		"not read":                        {"", "", principal, doctor.Pass, doctor.Unknown},
		"not read, but all are bound":     {"", "", everybody, doctor.Pass, doctor.Pass},
		"missing claim":                   {"assertion.email", "", principal, doctor.Unknown, doctor.Unknown},
		"missing, but all are bound":      {"assertion.email", "", everybody, doctor.Unknown, doctor.Pass},
		"empty, but all are bound":        {"''", "'x' in assertion.aud || true", everybody, doctor.Unknown, doctor.Pass},
		"missing, and rejected":           {"assertion.email", "assertion.sub == 'x'", everybody, doctor.Fail, doctor.Pass},
		"too long":                        {"assertion.sub + assertion.sub + assertion.sub + assertion.sub", "", principal, doctor.Fail, doctor.Fail},
		"condition on it":                 {"'x'", "google.subject == '" + subject + "'", principal, doctor.Fail, doctor.Fail},
		"condition on it that fits":       {"'x'", "google.subject == 'x' && assertion.sub.startsWith('system:')", base + "x", doctor.Pass, doctor.Pass},
		"condition on an unknown one":     {"assertion.sub.extract('{a}:')", "google.subject == 'x'", principal, doctor.Unknown, doctor.Unknown},
		"anybody":                         {"assertion.sub", "", "allAuthenticatedUsers", doctor.Pass, doctor.Unknown},
		"by an attribute":                 {"assertion.sub", "", strings.Replace(everybody, "/*", "/attribute.x/y", 1), doctor.Pass, doctor.Unknown},
	} {
		anchor := doctor.Anchor{Name: poolProvider, Issuer: "https://issuer.example", SubjectMapping: tc.mapping, Condition: tc.condition}
		report := anchored(t, "gcp", &doctor.Trust{Anchors: []doctor.Anchor{anchor}, Members: []string{tc.member}}, nil)
		if a, r := report.Of("trust-anchor"), report.Of("trust-rule"); a.Result != tc.anchor || r.Result != tc.rule {
			t.Errorf("%s: %+v\n%+v", name, a, r)
		}
	}
}

// What was read of another role or provider says nothing about this one.
func TestTrustOfAnother(t *testing.T) {
	aws := awsTrust("https://issuer.example", goodCondition("https://issuer.example"))
	role := func(arn, policy string) string {
		return strings.Replace(policy, `"Role":{`, `"Role":{"Arn":"`+arn+`",`, 1)
	}
	bad := awsTrust("https://issuer.example", `{"StringEquals":{"issuer.example:sub":"x"}}`)
	for name, tc := range map[string]struct {
		provider, trust string
		want            doctor.Result
	}{
		"this role":                   {"aws", role(roleARN, aws), doctor.Pass},
		"another role":                {"aws", role(roleARN+"x", aws), doctor.Unknown},
		"both roles":                  {"aws", role(roleARN+"x", aws) + role(roleARN, bad), doctor.Fail},
		"both roles, the other order": {"aws", role(roleARN, bad) + role(roleARN+"x", aws), doctor.Fail},
		"two without a name":          {"aws", aws + bad, doctor.Unknown},
		"another provider":            {"gcp", strings.Replace(gcpTrust("https://issuer.example", "", principal), poolProvider, poolProvider+"x", 1), doctor.Unknown},
		"a custom role":               {"gcp", strings.Replace(gcpTrust("https://issuer.example", "", principal), "roles/iam.workloadIdentityUser", "projects/p/roles/x", 1), doctor.Unknown},
		"another predefined role":     {"gcp", strings.Replace(gcpTrust("https://issuer.example", "", principal), "roles/iam.workloadIdentityUser", "roles/viewer", 1), doctor.Fail},
	} {
		f := anchored(t, tc.provider, nil, func(w *world) { w.trust = tc.trust }).Of("trust-rule")
		if f.Result != tc.want || f.Result != doctor.Pass && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// The list of allowed audiences is replaced, so the remedy keeps what is in it.
func TestRemedyKeepsAudiences(t *testing.T) {
	anchor := doctor.Anchor{Name: poolProvider, Issuer: "https://issuer.example", Audiences: []string{"one", "two"}}
	f := anchored(t, "gcp", &doctor.Trust{Anchors: []doctor.Anchor{anchor}}, nil).Of("trust-anchor")
	if want := "update-oidc " + poolProvider + " --allowed-audiences=one,two,//iam.googleapis.com/" + poolProvider; f.Class != "G3" || !strings.HasSuffix(f.Remedy, want) {
		t.Errorf("%+v", f)
	}
}

// A failure that the exchange has refuted is a doubt about what was read, and no reason to change what works.
func TestRefutedTrust(t *testing.T) {
	w := newWorld(t, "aws")
	w.trust = awsTrust("https://issuer.example", `{"StringEquals":{"issuer.example:sub":"x"}}`)
	f := w.run().Of("trust-rule")
	if f.Result != doctor.Warn || strings.Contains(f.Remedy, "update-assume-role-policy") || !strings.Contains(f.Remedy, "read it again") {
		t.Errorf("%+v", f)
	}
}

// Whose a credential is that tells it itself by nothing is unknown if somebody has asked in vain, and skipped if nobody was given
// who asks.
func TestWhoseCredential(t *testing.T) {
	for want, identify := range map[doctor.Result]func(context.Context, auth.Token) (string, error){
		doctor.Unknown: func(context.Context, auth.Token) (string, error) { return "", nil },
		doctor.Skip:    nil,
	} {
		w := newWorld(t, "gcp")
		w.config.Identify = identify
		f := w.run().Of("identity")
		if f.Result != want || strings.Contains(f.Remedy, "--skip identity") != (identify != nil) {
			t.Errorf("%+v", f)
		}
	}
	w := newWorld(t, "gcp")
	delete(w.account.Annotations, gcp.ServiceAccountAnnotation)
	w.config.Identify = nil
	if f := w.run().Of("identity"); f.Result != doctor.Skip {
		t.Errorf("%+v", f)
	}
}

// What a cloud was told to trust may be somebody else's text: no remedy runs it, and no terminal obeys it.
func TestHostileTrust(t *testing.T) {
	t.Parallel()
	for _, evil := range append(hostileValues(), `\"; touch owned; \"`) {
		quoted, err := json.Marshal(evil)
		if err != nil {
			t.Fatal(err)
		}
		text := string(quoted)
		for _, statement := range []string{
			`{"Sid":` + text + `,"Effect":"Allow","Principal":{"Service":` + text + `},"Action":"sts:AssumeRole"}`,
			`{"Effect":"Allow","Principal":{"Federated":"` + oidcProvider + `"},"Action":"sts:*","Condition":{"StringEquals":{"issuer.example:sub":` + text + `}}}`,
			`{"Effect":"Allow","Principal":{"Federated":"` + oidcProvider + `"},"Action":"sts:*","Condition":{"StringEquals":{` + text + `:"x"}}}`,
			`{"Effect":"Allow","Principal":{"Federated":"` + oidcProvider + `"},"Action":"sts:*","Condition":{` + text + `:{"x":"x"}}}`,
			`{` + text + `:"Allow"}`,
		} {
			harmless(t, anchored(t, "aws", &doctor.Trust{Policy: []byte(`{"Id":` + text + `,"Statement":` + statement + `}`)}, nil))
		}
		iss := "https://issuer.example"
		for _, a := range []doctor.Anchor{
			{Name: evil, Issuer: iss, Subject: subject, Audiences: []string{evil}}, {Name: poolProvider, Issuer: iss, Audiences: []string{evil}},
			{Name: poolProvider, Issuer: iss, SubjectMapping: evil, Condition: evil}, {Name: poolProvider, Issuer: evil, Disabled: evil},
			{Name: evil, Issuer: iss, Subject: "System" + subject[6:], Expression: evil}, {Name: poolProvider, Issuer: iss, SubjectMapping: "assertion.sub", Condition: "assertion.sub == '" + evil + "'"},
		} {
			for _, provider := range []string{"azure", "gcp"} {
				harmless(t, anchored(t, provider, &doctor.Trust{Anchors: []doctor.Anchor{a}, Members: []string{"principal:" + evil + subject}}, nil))
			}
		}
	}
}
