package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/doctor"
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

// The program asks each cloud with the login that it finds.
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
			"--skip=discovery,keys,issuer-tls", "--verbose")
		r := w.exec(t, "", logins, "wid", append([]string{"doctor"}, args...)...)
		if !strings.Contains(r.stdout, "✓ trust-anchor") || strings.Contains(r.stdout, "✗") || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", provider, r)
		}
		// The login of the person is used on request only.
		before := len(w.cloud.Log())
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == "--trust-live" })
		r = w.exec(t, "", logins, "wid", append([]string{"doctor"}, args...)...)
		for _, call := range w.cloud.Log()[before:] {
			if call.Service == "iam" || call.Service == "gcp-iam" || call.Service == "arm" || call.Service == "graph" {
				t.Errorf("%s: asked without being told to: %+v", provider, call)
			}
		}
		if !strings.Contains(r.stdout, "- trust-anchor") || strings.Contains(r.stdout, "read as") {
			t.Errorf("%s: %+v", provider, r)
		}
	}
}

// The cluster answers 401. EKS tells that there is no access entry. The command that creates one is printed on request.
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
	report := func(more ...string) (*doctor.Report, string) {
		r := w.exec(t, "", env, "wid", append(args[:len(args):len(args)], append(more, "-o=json")...)...)
		return parseReport(t, r.stdout), r.stdout
	}
	r, text := report()
	if f := r.Of("cluster"); f.Result != doctor.Fail || f.Class != "A19" || !strings.Contains(f.Message, "access entry") || strings.Contains(text, create) {
		t.Errorf("%+v", f)
	}
	if _, text = report("--show-policy"); !strings.Contains(text, create+role("tenant-a")) {
		t.Errorf("%s", text)
	}
	w.cloud.AWS().SetEKSAccessEntry(liveCluster, role("tenant-a"), authtest.EKSAccessEntry{Groups: []string{"viewers"}})
	if _, text = report(); !strings.Contains(text, "viewers") {
		t.Errorf("%s", text)
	}
}

// A misspelt audience is corrected where it was written, and no cloud is to trust it.
func TestDoctorMisspeltAudience(t *testing.T) {
	w := newWorld(t)
	const misspelt = "sts.amazonaws.co"
	r := w.exec(t, "", w.logins(t), "wid", append(annotationFlags(), "doctor", "--provider=aws", "--trust-live", "--show-policy",
		"--region=eu-central-1", "--skip=discovery,keys,issuer-tls", "--audience="+misspelt, w.tokenFile(t, misspelt))...)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "[audience, A4]") || !strings.Contains(r.stdout, "--audience") || strings.Contains(r.stdout, "add-client-id") {
		t.Errorf("%+v", r)
	}
}

// Without a login, or with one in another account, the report says how to log in.
func TestDoctorWithoutLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere, secret := w.cloud.AWS().AddUser("210987654321", "engineer")
	for _, tc := range []struct {
		provider, text string
		env            []string
	}{
		{"aws", "no usable login for AWS", nil},
		{"aws", "not in account " + account, []string{"AWS_ACCESS_KEY_ID=" + elsewhere, "AWS_SECRET_ACCESS_KEY=" + secret}},
		{"aws", "aws sso login", []string{"AWS_PROFILE=typo"}},
		{"azure", "az login", []string{"AZURE_TOKEN_CREDENTIALS=AzureCLICredential"}},
		{"gcp", "gcloud auth application-default login", []string{"GOOGLE_APPLICATION_CREDENTIALS=/nonexistent"}},
	} {
		audience := map[string]string{"aws": aws.DefaultAudience, "azure": azure.DefaultAudience, "gcp": "//iam.googleapis.com/" + gcpProvider}[tc.provider]
		args := append([]string{"doctor", "--provider=" + tc.provider, "--trust-live", "--region=eu-central-1", "-o=json", w.tokenFile(t, audience)}, annotationFlags()...)
		r := w.exec(t, "", tc.env, "wid", args...)
		if f := parseReport(t, r.stdout).Of("trust-anchor"); f.Result != doctor.Unknown || !strings.Contains(r.stdout, tc.text) || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", tc.text, r)
		}
	}
}

// A file with a role's trust policy explains the refusal. The command that widens it is printed on request.
func TestDoctorTrustFile(t *testing.T) {
	w := newWorld(t)
	w.env = nil
	issuer := strings.TrimPrefix(w.issuer.URL(), "https://")
	w.cloud.AWS().SetRole(role("tenant-a"), authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
	file := filepath.Join(w.home, "trust.json")
	w.write(t, file, `{"Role":{"Arn":"`+role("tenant-a")+`","AssumeRolePolicyDocument":{"Version":"2012-10-17","Statement":[{"Effect":"Allow",`+
		`"Principal":{"Federated":"arn:aws:iam::`+account+`:oidc-provider/`+issuer+`"},"Action":"sts:AssumeRoleWithWebIdentity",`+
		`"Condition":{"StringEquals":{"`+issuer+`:sub":"system:serviceaccount:tenant-b:app"}}}]}}}`)
	args := append(w.inHand(t), "--provider=aws", "--trust-file="+file)
	stdout, code := w.doctorOf(t, args...)
	if code != doctor.ExitFail || !strings.Contains(stdout, "[trust-rule, A1]") || !strings.Contains(stdout, "policy  system:serviceaccount:tenant-b:app\n") ||
		!strings.Contains(stdout, "see: wid doctor … --show-policy\n") || strings.Contains(stdout, "aws iam update-assume-role-policy") || strings.Count(stdout, "\n") > 14 {
		t.Errorf("ends with %d:\n%s", code, stdout)
	}
	if stdout, _ = w.doctorOf(t, append(args, "--show-policy")...); !strings.Contains(stdout, "aws iam update-assume-role-policy") {
		t.Errorf("%s", stdout)
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
