package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

const (
	liveCluster = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	identityID  = "/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/rg-apps/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app"
)

// logins is the environment of an engineer who may read everything in all clouds, in the ways in which people log in.
func (w *world) logins(t *testing.T) []string {
	t.Helper()
	const engineer, secret = "99999999-2222-4333-8444-555555555555", "s3cret-of-the-engineer"
	id, key := w.cloud.AWS().AddUser(account, "engineer")
	w.write(t, filepath.Join(w.home, ".aws", "credentials"), "[engineer]\naws_access_key_id = "+id+"\naws_secret_access_key = "+key+"\n")
	w.cloud.Azure().SetClientSecret(azureTenant, engineer, secret)
	w.cloud.Azure().SetUserAssignedIdentity(identityID, azureTenant, azureClient, engineer)
	adc := filepath.Join(w.home, "adc.json")
	w.write(t, adc, string(w.cloud.GCP().AddUser("engineer@example.com")))
	w.cloud.GCP().SetIAMViewers("user:engineer@example.com")
	return []string{"AWS_PROFILE=engineer", "GOOGLE_APPLICATION_CREDENTIALS=" + adc,
		"AZURE_TENANT_ID=" + azureTenant, "AZURE_CLIENT_ID=" + engineer, "AZURE_CLIENT_SECRET=" + secret, "AZURE_TOKEN_CREDENTIALS=EnvironmentCredential"}
}

// The program asks each cloud with the login that it finds, and shows whose that is.
func TestDoctorTrustLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	logins := w.logins(t)
	for provider, tc := range map[string]struct{ audience, who string }{
		"aws":   {aws.DefaultAudience, "arn:aws:iam::" + account + ":user/engineer"},
		"azure": {azure.DefaultAudience, "application 99999999-2222-4333-8444-555555555555"},
		"gcp":   {"//iam.googleapis.com/" + gcpProvider, "engineer@example.com"},
	} {
		args := append(annotationFlags(), w.tokenFile(t, tc.audience), "--region=eu-central-1", "--provider="+provider, "--trust-live",
			"--skip=discovery,keys,issuer-tls")
		r := w.exec(t, "", logins, "wid", append([]string{"doctor"}, args...)...)
		if !strings.Contains(r.stdout, "19 PASS") || !strings.Contains(r.stdout, tc.who) || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", provider, r)
		}
		// Off by default: another person's login is nobody's business.
		before := len(w.cloud.Log())
		args = args[:len(args)-2]
		r = w.exec(t, "", logins, "wid", append([]string{"doctor"}, args...)...)
		for _, call := range w.cloud.Log()[before:] {
			if call.Service == "iam" || call.Service == "gcp-iam" || call.Service == "arm" || call.Service == "graph" {
				t.Errorf("%s: asked without being told to: %+v", provider, call)
			}
		}
		if !strings.Contains(r.stdout, "19 SKIP") || strings.Contains(r.stdout, "read as") {
			t.Errorf("%s: %+v", provider, r)
		}
	}
}

// The sample in docs/doctor.md is what the doctor says.
func TestDocumentedTrustLive(t *testing.T) {
	w := newWorld(t)
	logins := w.logins(t)
	w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
	w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL()+"/", w.issuer.HTTPClient(), aws.DefaultAudience)
	r := w.exec(t, "", logins, "wid", append([]string{"doctor", "--provider=aws", "--trust-live"}, w.inHand(t)...)...)
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "## Asking the cloud")
	_, sample, _ := strings.Cut(section, "```text\n")
	sample, _, ok := strings.Cut(sample, "```")
	if !ok || !strings.Contains(r.stdout, sample) {
		t.Errorf("docs/doctor.md shows another sample than:\n%s", r.stdout)
	}
}

// The cluster says no more than 401. EKS says that there is no access entry. The command that makes one is printed on request.
func TestDoctorAccessEntry(t *testing.T) {
	w := newWorld(t)
	logins := w.logins(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: liveCluster, Endpoint: server.URL, CA: ca})
	env := append(logins, "NO_PROXY="+strings.TrimPrefix(server.URL, "https://"))
	args := append([]string{"doctor", "--provider=aws", "--trust-live", "--cluster=" + liveCluster, "--skip=discovery,keys,issuer-tls"}, w.inHand(t)...)
	const create = "aws eks create-access-entry --cluster-name prod --region eu-central-1 --principal-arn "
	r := w.exec(t, "", env, "wid", args...)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "there is no access entry for "+role("tenant-a")) ||
		strings.Contains(r.stdout, create) || !strings.Contains(r.stdout, "do: correct the cluster's name") {
		t.Errorf("%+v", r)
	}
	if r = w.exec(t, "", env, "wid", append(args, "--show-policy")...); !strings.Contains(r.stdout, create+role("tenant-a")) {
		t.Errorf("%+v", r)
	}
	w.cloud.AWS().SetEKSAccessEntry(liveCluster, role("tenant-a"), authtest.EKSAccessEntry{Groups: []string{"viewers"}})
	if r = w.exec(t, "", env, "wid", args...); !strings.Contains(r.stdout, "groups: viewers") {
		t.Errorf("%+v", r)
	}
}

// A misspelt audience is corrected where it was written, and no cloud is to trust it.
func TestDoctorMisspeltAudience(t *testing.T) {
	w := newWorld(t)
	const misspelt = "sts.amazonaws.co"
	r := w.exec(t, "", w.logins(t), "wid", append(annotationFlags(), "doctor", "--provider=aws", "--trust-live", "--show-policy",
		"--region=eu-central-1", "--skip=discovery,keys,issuer-tls", "--audience="+misspelt, w.tokenFile(t, misspelt))...)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "do: correct --audience, or leave it out") ||
		!strings.Contains(r.stdout, "Begin with check 6 (audience)") || strings.Contains(r.stdout, "add-client-id") {
		t.Errorf("%+v", r)
	}
}

// What an engineer gets to read who has not logged in, or not there.
func TestDoctorWithoutLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere, secret := w.cloud.AWS().AddUser("210987654321", "engineer")
	for _, tc := range []struct {
		provider, text string
		env            []string
	}{
		{"aws", "there is no login for AWS on this machine", nil},
		{"aws", "but the role tenant-a is in account " + account, []string{"AWS_ACCESS_KEY_ID=" + elsewhere, "AWS_SECRET_ACCESS_KEY=" + secret}},
		{"aws", "AWS_PROFILE=PROFILE", []string{"AWS_PROFILE=typo"}},
		{"azure", "az login", []string{"AZURE_TOKEN_CREDENTIALS=AzureCLICredential"}},
		{"gcp", "gcloud auth application-default login", []string{"GOOGLE_APPLICATION_CREDENTIALS=/nonexistent"}},
	} {
		audience := map[string]string{"aws": aws.DefaultAudience, "azure": azure.DefaultAudience, "gcp": "//iam.googleapis.com/" + gcpProvider}[tc.provider]
		args := append([]string{"doctor", "--provider=" + tc.provider, "--trust-live", "--region=eu-central-1", w.tokenFile(t, audience)}, annotationFlags()...)
		r := w.exec(t, "", tc.env, "wid", args...)
		if !strings.Contains(r.stdout, "19 UNKNOWN") || !strings.Contains(r.stdout, tc.text) || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", tc.text, r)
		}
	}
}

func TestDoctorTrustLiveMistakes(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.home, "trust.json")
	w.write(t, file, "[]")
	for _, args := range [][]string{{"--provider=aws", "--trust-file=" + file}, {"--provider=generic"}} {
		r := w.wid(t, "", append([]string{"doctor", "--trust-live"}, args...)...)
		if r.code != doctor.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "--trust-live") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
