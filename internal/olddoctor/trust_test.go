package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/testworld"
)

// reading is a TrustReader or an AccessReader with a given answer.
type reading struct {
	trust  *doctor.Trust
	access *doctor.Access
	err    error
	asked  []string
}

func (r *reading) ReadTrust(_ context.Context, q doctor.TrustQuery) (*doctor.Trust, error) {
	r.asked = append(r.asked, fmt.Sprint(q.Identity, len(q.Annotations), q.Claims.Subject))
	return r.trust, r.err
}

func (r *reading) ReadAccess(_ context.Context, cluster, role string) (*doctor.Access, error) {
	r.asked = append(r.asked, cluster+" "+role)
	return r.access, r.err
}

// What was read decides as far as it goes: it can fail a check, but what was not read cannot pass one.
func TestHalfRead(t *testing.T) {
	denied := &auth.Error{Reason: auth.ErrDenied, Message: "refused", Remedy: "grant it", StatusCode: 403, Code: "AccessDenied"}
	missing := &auth.Error{Reason: auth.ErrMisconfigured, Message: "gone", Remedy: "make it", Err: doctor.ErrMissing}
	good := []doctor.Anchor{{Issuer: "https://issuer.example", Audiences: []string{"sts.amazonaws.com"}}}
	bad := []doctor.Anchor{{Issuer: "https://issuer.example/", Audiences: []string{"sts.amazonaws.com"}}}
	policy := []byte(`{"Statement":{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::` + account + `:oidc-provider/issuer.example"},"Action":"sts:AssumeRoleWithWebIdentity"}}`)
	elsewhere := []byte(strings.Replace(string(policy), account, "210987654321", 1))
	for name, tc := range map[string]struct {
		reading      reading
		anchor, rule doctor.Result
		says         string
	}{
		"all":                   {reading{trust: &doctor.Trust{Anchors: good, Policy: policy, ReadBy: "me"}}, doctor.Pass, doctor.Pass, "read as me"},
		"nothing":               {reading{trust: &doctor.Trust{}}, doctor.Unknown, doctor.Unknown, "not among what was read"},
		"nil":                   {reading{}, doctor.Unknown, doctor.Unknown, "not among what was read"},
		"an empty list":         {reading{trust: &doctor.Trust{Anchors: []doctor.Anchor{}, Policy: policy}}, doctor.Warn, doctor.Pass, "no OIDC provider"},
		"good, not all":         {reading{trust: &doctor.Trust{Anchors: good, AnchorErr: denied, RuleErr: denied}}, doctor.Unknown, doctor.Unknown, "refused"},
		"bad, not all":          {reading{trust: &doctor.Trust{Anchors: bad, AnchorErr: denied, Policy: policy}}, doctor.Warn, doctor.Pass, "only by the /"},
		"gone":                  {reading{trust: &doctor.Trust{AnchorErr: missing, RuleErr: missing}}, doctor.Warn, doctor.Warn, "gone"},
		"no answer":             {reading{err: denied}, doctor.Unknown, doctor.Unknown, "refused"},
		"an error of no kind":   {reading{err: errors.New("x\x1b y")}, doctor.Unknown, doctor.Unknown, "read: x  y"},
		"another account's":     {reading{trust: &doctor.Trust{Anchors: good, Policy: elsewhere}}, doctor.Pass, doctor.Warn, "the account has"},
		"a policy that is none": {reading{trust: &doctor.Trust{Anchors: good, Policy: []byte("<html>")}}, doctor.Pass, doctor.Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "aws")
			w.config.Trust = &tc.reading
			report := w.run()
			anchor, rule := report.Of("trust-anchor"), report.Of("trust-rule")
			if anchor.Result != tc.anchor || rule.Result != tc.rule || !strings.Contains(anchor.Message, tc.says) {
				t.Errorf("%+v\n%+v", anchor, rule)
			}
			if tc.reading.err != nil && !strings.Contains(rule.Message, "see check 19") {
				t.Errorf("%+v", rule)
			}
			if errors.Is(tc.reading.err, auth.ErrDenied) && (anchor.Remedy != "grant it" || anchor.StatusCode != 403 || anchor.Code != "AccessDenied") {
				t.Errorf("%+v", anchor)
			}
			if want := roleARN + "1" + subject; len(tc.reading.asked) != 1 || tc.reading.asked[0] != want {
				t.Errorf("asked %q instead of %q", tc.reading.asked, want)
			}
		})
	}
}

// A file with one document says nothing about the other.
func TestHalfATrustFile(t *testing.T) {
	for _, tc := range []struct{ provider, document, unknown string }{
		{"aws", strings.Split(awsTrust("https://issuer.example", goodCondition("https://issuer.example")), "\n")[0], "trust-anchor"},
		{"aws", `{"Url":"issuer.example","ClientIDList":["sts.amazonaws.com"]}`, "trust-rule"},
		{"gcp", strings.Split(gcpTrust("https://issuer.example", "", principal), "\n")[0], "trust-rule"},
		{"gcp", strings.Split(gcpTrust("https://issuer.example", "", principal), "\n")[1], "trust-anchor"},
	} {
		w := newWorld(t, tc.provider)
		w.trust = tc.document
		if f := w.run().Of(tc.unknown); f.Result != doctor.Unknown || f.Remedy == "" {
			t.Errorf("%s: %+v", tc.document, f)
		}
	}
	w := newWorld(t, "azure")
	w.federate()
	w.trust = "[]"
	if f := w.run().Of("trust-anchor"); f.Result != doctor.Fail || f.Class != "Z6" {
		t.Errorf("%+v", f)
	}
}

// What an access entry holds comes from others: it is shown, but not made part of a command.
func TestHostileAccessEntry(t *testing.T) {
	w := newWorld(t, "aws")
	w.eks(401)
	r := &reading{access: &doctor.Access{Entry: &doctor.AccessEntry{Type: "STANDARD", Groups: []string{"plain", "$(reboot)", "\x1b[2J"}}, ReadBy: "me"}}
	w.config.Access, w.config.ShowPolicy = r, true
	report := w.run()
	f := report.Of("cluster")
	if f.Class != "A19" || !strings.Contains(f.Remedy, "--kubernetes-groups plain GROUP_NAME GROUP_NAME") || strings.Contains(f.Remedy, "reboot") || strings.Contains(report.String(), "\x1b") {
		t.Errorf("%+v", f)
	}
	if len(r.asked) != 1 || r.asked[0] != clusterARN+" "+roleARN {
		t.Errorf("%q", r.asked)
	}
}

// FuzzTrust has the checks judge whatever a cloud may say.
func FuzzTrust(f *testing.F) {
	f.Add(byte(0), []byte(awsTrust("https://issuer.example", goodCondition("https://issuer.example"))))
	f.Add(byte(0), []byte(`{"Role":{"AssumeRolePolicyDocument":"%7B%22Statement%22%3A%5B%7B%7D%5D%7D"}}{"Url":"*"}`))
	f.Add(byte(1), []byte(`[{"issuer":"https://issuer.example","claimsMatchingExpression":{"value":"x"}}]`))
	f.Add(byte(2), []byte(gcpTrust("https://issuer.example", `,"attributeMapping":{"google.subject":"x"},"attributeCondition":"assertion.sub in ['a']"`, principal)))
	issuer := testworld.SharedIssuer(f)
	f.Fuzz(func(t *testing.T, which byte, content []byte) {
		reader, err := doctor.ParseTrust(content)
		if err != nil {
			return
		}
		w := &world{t: t, issuer: issuer}
		sa := &corev1.ServiceAccount{}
		sa.Namespace, sa.Name = "tenant-a", "app"
		config := providerConfig([]string{"aws", "azure", "gcp"}[which%3])
		w.config = config
		if config.Token, err = issuer.Sign(issuer.Claims(sa, []string{w.audience()}, time.Hour)); err != nil {
			t.Fatal(err)
		}
		config.Trust = reader
		for _, c := range doctor.Checks() {
			if c.Number > 4 && c.Number < 19 && c.Number != 9 || c.Number > 20 {
				config.Skip = append(config.Skip, c.ID)
			}
		}
		for _, finding := range doctor.Run(t.Context(), config).Findings {
			if strings.HasPrefix(finding.Message, "the check failed") || strings.ContainsAny(finding.Message, "\n\x1b") {
				t.Errorf("%+v", finding)
			}
		}
	})
}

// providerConfig examines a ServiceAccount that needs no cluster.
func providerConfig(provider string) doctor.Config {
	config := doctor.Config{Annotations: map[string]string{aws.RoleARNAnnotation: roleARN, azure.ClientIDAnnotation: azureClient, azure.TenantIDAnnotation: azureTenant,
		gcp.WorkloadIdentityProviderAnnotation: poolProvider, gcp.ServiceAccountAnnotation: gcpEmail}}
	config.Provider = map[string]auth.Provider{"aws": &aws.Provider{}, "azure": &azure.Provider{}, "gcp": &gcp.Provider{}}[provider]
	config.Options = []auth.Option{auth.WithSTSRegion("eu-central-1")}
	return config
}
