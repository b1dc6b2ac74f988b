package diagnose_test

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
	"github.com/workloadid/workloadid/auth/diagnose"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/testworld"
)

// reading is a TrustReader or an AccessReader with a given answer.
type reading struct {
	trust  *diagnose.Trust
	access *diagnose.Access
	err    error
	asked  []string
}

func (r *reading) ReadTrust(_ context.Context, q diagnose.TrustQuery) (*diagnose.Trust, error) {
	r.asked = append(r.asked, fmt.Sprint(q.Identity, len(q.Annotations), q.Claims.Subject))
	return r.trust, r.err
}

func (r *reading) ReadAccess(_ context.Context, cluster, role string) (*diagnose.Access, error) {
	r.asked = append(r.asked, cluster+" "+role)
	return r.access, r.err
}

// What was read decides as far as it goes: it can fail a check, but what was not read cannot pass one.
func TestHalfRead(t *testing.T) {
	denied := &auth.Error{Reason: auth.ErrDenied, Message: "refused", Remedy: "grant it", StatusCode: 403, Code: "AccessDenied"}
	missing := &auth.Error{Reason: auth.ErrMisconfigured, Message: "gone", Remedy: "make it", Err: diagnose.ErrMissing}
	good := []diagnose.Anchor{{Issuer: "https://issuer.example", Audiences: []string{"sts.amazonaws.com"}}}
	bad := []diagnose.Anchor{{Issuer: "https://issuer.example/", Audiences: []string{"sts.amazonaws.com"}}}
	policy := []byte(`{"Statement":{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::` + account + `:oidc-provider/issuer.example"},"Action":"sts:AssumeRoleWithWebIdentity"}}`)
	elsewhere := []byte(strings.Replace(string(policy), account, "210987654321", 1))
	for name, tc := range map[string]struct {
		reading      reading
		anchor, rule diagnose.Result
		says         string
	}{
		"all":                   {reading{trust: &diagnose.Trust{Anchors: good, Policy: policy, ReadBy: "me"}}, diagnose.Pass, diagnose.Pass, "read as me"},
		"nothing":               {reading{trust: &diagnose.Trust{}}, diagnose.Unknown, diagnose.Unknown, "not among what was read"},
		"nil":                   {reading{}, diagnose.Unknown, diagnose.Unknown, "not among what was read"},
		"an empty list":         {reading{trust: &diagnose.Trust{Anchors: []diagnose.Anchor{}, Policy: policy}}, diagnose.Warn, diagnose.Pass, "no OIDC provider"},
		"good, not all":         {reading{trust: &diagnose.Trust{Anchors: good, AnchorErr: denied, RuleErr: denied}}, diagnose.Unknown, diagnose.Unknown, "refused"},
		"bad, not all":          {reading{trust: &diagnose.Trust{Anchors: bad, AnchorErr: denied, Policy: policy}}, diagnose.Warn, diagnose.Pass, "only by the /"},
		"gone":                  {reading{trust: &diagnose.Trust{AnchorErr: missing, RuleErr: missing}}, diagnose.Warn, diagnose.Warn, "gone"},
		"no answer":             {reading{err: denied}, diagnose.Unknown, diagnose.Unknown, "refused"},
		"an error of no kind":   {reading{err: errors.New("x\x1b y")}, diagnose.Unknown, diagnose.Unknown, "read: x  y"},
		"another account's":     {reading{trust: &diagnose.Trust{Anchors: good, Policy: elsewhere}}, diagnose.Pass, diagnose.Warn, "the account has"},
		"a policy that is none": {reading{trust: &diagnose.Trust{Anchors: good, Policy: []byte("<html>")}}, diagnose.Pass, diagnose.Unknown, ""},
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
		if f := w.run().Of(tc.unknown); f.Result != diagnose.Unknown || f.Remedy == "" {
			t.Errorf("%s: %+v", tc.document, f)
		}
	}
	w := newWorld(t, "azure")
	w.federate()
	w.trust = "[]"
	if f := w.run().Of("trust-anchor"); f.Result != diagnose.Fail || f.Class != "Z6" {
		t.Errorf("%+v", f)
	}
}

// What an access entry holds comes from others: it is shown, but not made part of a command.
func TestHostileAccessEntry(t *testing.T) {
	w := newWorld(t, "aws")
	w.eks(401)
	r := &reading{access: &diagnose.Access{Entry: &diagnose.AccessEntry{Type: "STANDARD", Groups: []string{"plain", "$(reboot)", "\x1b[2J"}}, ReadBy: "me"}}
	w.config.Access = r
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
		reader, err := diagnose.ParseTrust(content)
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
		for _, c := range diagnose.Checks() {
			if c.Number > 4 && c.Number < 19 && c.Number != 9 || c.Number > 20 {
				config.Skip = append(config.Skip, c.ID)
			}
		}
		for _, finding := range diagnose.Run(t.Context(), config).Findings {
			if strings.HasPrefix(finding.Message, "the check failed") || strings.ContainsAny(finding.Message, "\n\x1b") {
				t.Errorf("%+v", finding)
			}
		}
	})
}

// providerConfig examines a ServiceAccount that needs no cluster.
func providerConfig(provider string) diagnose.Config {
	config := diagnose.Config{Annotations: map[string]string{aws.RoleARNAnnotation: roleARN, azure.ClientIDAnnotation: azureClient, azure.TenantIDAnnotation: azureTenant,
		gcp.WorkloadIdentityProviderAnnotation: poolProvider, gcp.ServiceAccountAnnotation: gcpEmail}}
	config.Provider = map[string]auth.Provider{"aws": &aws.Provider{}, "azure": &azure.Provider{}, "gcp": &gcp.Provider{}}[provider]
	config.Options = []auth.Option{auth.WithSTSRegion("eu-central-1")}
	return config
}
