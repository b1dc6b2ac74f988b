package doctor_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// widens matches the commands that have a cloud trust more.
var widens = regexp.MustCompile(`update-assume-role-policy|"Effect":"Allow"|open-id-connect-provider[-a-z]* --(url|approve|client-id)|create-open-id|` +
	`associate-iam-oidc-provider|add-client-id|update-open-id|federated-credential (create|update)|providers (create|update)-oidc|undelete|` +
	`roles/iam.workloadIdentityUser --member|jwk-json-path|create-access-entry|authenticationMode=`)

// trustChange is the part of a remedy that --show-policy adds.
func trustChange(f *doctor.Finding) string {
	_, after, _ := strings.Cut(f.Remedy, "change what is trusted:\n")
	return after
}

// correctsFirst sees to it that no remedy widens what is trusted.
func correctsFirst(t *testing.T, report *doctor.Report) {
	t.Helper()
	for _, f := range report.Findings {
		if found := widens.FindString(f.Remedy); found != "" {
			t.Errorf("%s: the remedy has %q: %s", f.ID, found, f.Remedy)
		}
	}
	if m := report.Condition("Ready", 1).Message; widens.MatchString(m) {
		t.Errorf("the condition widens: %s", m)
	}
}

// What the user wrote is corrected first. The change to what the cloud trusts follows only on request, and never in a condition.
func TestCorrectionComesFirst(t *testing.T) {
	const annotate = "\nkubectl annotate serviceaccount -n tenant-a app --overwrite "
	const cluster = "use the right kube context"
	misspelt := func(audience string) func(w *world) {
		return func(w *world) {
			w.config.Options = append(w.config.Options, auth.WithAudiences(audience), auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
		}
	}
	otherProvider := func(w *world) {
		w.trust = gcpTrust("https://other.example", "", principal)
		w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Issuer = "https://other.example" })
	}
	for name, tc := range map[string]struct {
		provider      string
		spoil         func(w *world)
		check, remedy string
		begins        string
		changes       bool // with ShowPolicy
	}{
		"AWS, misspelt audience in the annotation": {"aws", func(w *world) {
			w.account.Annotations[aws.AudienceAnnotation] = "sts.amazonaws.co"
			w.allowAudience()
		}, "audience", annotate + aws.AudienceAnnotation + "-", "remove the annotation", false},
		"AWS, misspelt audience that the policy refuses": {"aws", func(w *world) { w.account.Annotations[aws.AudienceAnnotation] = "sts.amazonaws.co" },
			"identifiers", annotate + aws.AudienceAnnotation + "-", "remove the annotation", false},
		"AWS, misspelt audience of the caller":   {"aws", misspelt("sts.amazonaws.co"), "audience", "", "correct auth.WithAudiences", false},
		"Azure, misspelt audience of the caller": {"azure", misspelt("api://AzureADTokenExchang"), "audience", "", "correct auth.WithAudiences", false},
		"Google Cloud, misspelt audience of the caller": {"gcp", misspelt("//iam.googleapis.com/" + strings.Replace(poolProvider, "east", "eats", 1)),
			"audience", "", "correct auth.WithAudiences", false},
		"AWS, another tenant's role": {"aws", policy(`{"StringEquals":{"ISS:sub":"system:serviceaccount:tenant-b:app"}}`,
			authtest.Trust{Subjects: []string{"system:serviceaccount:tenant-b:app"}}), "trust-rule", annotate + aws.RoleARNAnnotation + "=VALUE", "correct the annotation", true},
		"AWS, another tenant's role, seen by the exchange alone": {"aws", func(w *world) {
			w.cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
		}, "exchange", annotate + aws.RoleARNAnnotation + "=VALUE", "correct the annotation", true},
		"Azure, another tenant's client ID": {"azure", func(w *world) {
			w.credential(func(c *authtest.FederatedCredential) {
				c.Subject = "system:serviceaccount:tenant-b:app"
				w.trust = azureTrust(c.Issuer, c.Subject, c.Audience)
			})
		}, "trust-anchor", annotate + azure.ClientIDAnnotation + "=VALUE", "correct the annotation", true},
		"Google Cloud, another tenant's service account": {"gcp", func(w *world) {
			other := strings.Replace(principal, "tenant-a", "tenant-b", 1)
			w.trust = gcpTrust(w.issuer.URL(), "", other)
			w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{WorkloadIdentityUsers: []string{other}})
		}, "trust-rule", annotate + gcp.ServiceAccountAnnotation + "=VALUE", "correct the annotation", true},
		"AWS, wrong cluster": {"aws", func(w *world) {
			w.trust = strings.ReplaceAll(awsTrust(w.issuer.URL(), goodCondition(w.issuer.URL())), `"Url":"issuer.example"`, `"Url":"other.example"`)
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
		}, "trust-anchor", "", cluster, true},
		"AWS, wrong cluster, seen by the exchange alone": {"aws", func(w *world) { w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL()) }, "exchange", "", cluster, true},
		"Azure, wrong cluster": {"azure", func(w *world) {
			w.credential(func(c *authtest.FederatedCredential) {
				c.Issuer = "https://other.example"
				w.trust = azureTrust(c.Issuer, c.Subject, c.Audience)
			})
		}, "trust-anchor", "", cluster, true},
		"Google Cloud, wrong cluster": {"gcp", otherProvider, "trust-anchor", "", cluster, true},
		"AWS, wrong cluster to reach": {"aws", func(w *world) { w.eks(401) }, "cluster", "", "correct the cluster's name", true},
		"AWS, a slash too many": {"aws", func(w *world) {
			w.trust = strings.ReplaceAll(awsTrust(w.issuer.URL(), goodCondition(w.issuer.URL())), `"Url":"issuer.example"`, `"Url":"issuer.example/"`)
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
		}, "trust-anchor", "", "correct the text that the cloud trusts", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, show := range []bool{false, true} {
				w := newWorld(t, tc.provider)
				w.config.ShowPolicy = show
				tc.spoil(w)
				report := w.run()
				f := report.Worst()
				if f == nil || f.ID != tc.check || f.Result != doctor.Fail || !strings.HasPrefix(f.Remedy, tc.begins) || !strings.Contains(f.Remedy, tc.remedy) {
					t.Fatalf("%+v\n%s", f, report)
				}
				if widens.MatchString(f.Remedy) != (show && tc.changes) {
					t.Errorf("with ShowPolicy %t: %s", show, f.Remedy)
				}
				if m := report.Condition("Ready", 1).Message; widens.MatchString(m) {
					t.Errorf("the condition widens: %s", m)
				}
				if !show || !tc.changes { // no typo is ever to be trusted
					correctsFirst(t, report)
				}
			}
		})
	}
}

// An audience that is known, or no typo of a known one, is left to the cloud.
func TestChosenAudiences(t *testing.T) {
	for _, audience := range []string{"sts.amazonaws.com.cn", "chosen", "sts.example.com"} {
		w := newWorld(t, "aws")
		w.account.Annotations[aws.AudienceAnnotation] = audience
		w.allowAudience()
		if f := w.run().Of("audience"); f.Result != doctor.Pass {
			t.Errorf("%q: %+v", audience, f)
		}
	}
	// The cloud may have been told to accept what looks like a typo.
	w := newWorld(t, "aws")
	w.account.Annotations[aws.AudienceAnnotation] = "sts.amazonaws.co"
	w.allowAudience()
	w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), "sts.amazonaws.co")
	if report := w.run(); report.Of("audience").Result != doctor.Pass || report.ExitCode() != doctor.ExitPass {
		t.Error(report)
	}
}
