package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
)

// Every provider, with a token in hand.
func TestToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	endpoint := w.cloud.OAuth().TokenEndpoint()
	for provider, tc := range map[string]struct {
		audience string
		flags    []string
		secret   string
		valid    func(values map[string]string) bool
	}{
		"aws": {aws.DefaultAudience, []string{"--region=eu-central-1"}, "AWS_SECRET_ACCESS_KEY", func(v map[string]string) bool {
			id, ok := w.cloud.AWS().Identity(v["AWS_ACCESS_KEY_ID"])
			return ok && id.RoleARN == role("tenant-a") && v["AWS_SESSION_TOKEN"] != ""
		}},
		"azure": {azure.DefaultAudience, []string{"--scope=https://management.azure.com/.default"}, "AZURE_ACCESS_TOKEN", func(v map[string]string) bool {
			id, ok := w.cloud.Azure().Identity(v["AZURE_ACCESS_TOKEN"])
			return ok && id.ClientID == azureClient
		}},
		"gcp": {"//iam.googleapis.com/" + gcpProvider, nil, "CLOUDSDK_AUTH_ACCESS_TOKEN", func(v map[string]string) bool {
			_, ok := w.cloud.GCP().Identity(v["CLOUDSDK_AUTH_ACCESS_TOKEN"])
			return ok
		}},
		"generic": {"vault", []string{"--audience=vault"}, "WID_TOKEN", func(v map[string]string) bool { return strings.HasPrefix(v["WID_TOKEN"], "eyJ") }},
		"exchange": {endpoint, []string{"--exchange-endpoint=" + endpoint}, "WID_TOKEN", func(v map[string]string) bool {
			id, ok := w.cloud.OAuth().Identity(v["WID_TOKEN"])
			return ok && id.Subject == subjectOfApp
		}},
	} {
		t.Run(provider, func(t *testing.T) {
			args := append([]string{"token", "--provider=" + provider, w.tokenFile(t, tc.audience)}, append(tc.flags, annotationFlags()...)...)
			var open, closed struct {
				Provider, ServiceAccount, Identity, Expires string
				Values                                      map[string]string
				Redacted                                    []string
			}
			if err := json.Unmarshal([]byte(w.mustWid(t, "", append(args, "-o=json", "--reveal")...)), &open); err != nil {
				t.Fatal(err)
			}
			if !tc.valid(open.Values) || open.Provider != provider || open.ServiceAccount != "tenant-a/app" || open.Expires == "" || len(open.Redacted) != 0 {
				t.Errorf("got %+v", open)
			}
			secret := open.Values[tc.secret]
			env := w.mustWid(t, "", append(args, "-o=env", "--reveal")...)
			if len(secret) < 20 || !strings.Contains(env, "export "+tc.secret+"='"+secret+"'\n") {
				t.Errorf("the environment is %s", env)
			}
			redacted := w.mustWid(t, "", append(args, "-o=json")...)
			if err := json.Unmarshal([]byte(redacted), &closed); err != nil || closed.Values[tc.secret] != "" || len(closed.Redacted) == 0 {
				t.Errorf("%v: %s", err, redacted)
			}
			table := w.mustWid(t, "", args...)
			if strings.Contains(redacted+table, secret) || strings.Contains(redacted+table, "eyJ") || !strings.Contains(table, "tenant-a/app") {
				t.Errorf("the table is %s", table)
			}
			if table := w.mustWid(t, "", append(args, "--reveal")...); !strings.Contains(table, secret) {
				t.Errorf("the whole table is %s", table)
			}
		})
	}
}

// Without a ServiceAccount it is the identity of the process: nothing of it is kept on disk.
func TestTokenOfTheControllerItself(t *testing.T) {
	w := newWorld(t)
	w.write(t, filepath.Join(w.home, "web-identity"), w.jwt(t, aws.DefaultAudience))
	env := []string{"AWS_ROLE_ARN=" + role("tenant-a"), "AWS_WEB_IDENTITY_TOKEN_FILE=" + filepath.Join(w.home, "web-identity"), "AWS_REGION=eu-central-1"}
	for range 2 {
		r := w.exec(t, "", env, "wid", "token", "--provider=aws", "-o=json")
		if r.code != 0 || !strings.Contains(r.stdout, `"AWS_ACCESS_KEY_ID": "ASIA`) || strings.Contains(r.stdout, "serviceAccount") {
			t.Errorf("%+v", r)
		}
	}
	if _, err := os.Stat(filepath.Join(w.home, ".cache", "workloadid")); err == nil || w.mints() != 2 {
		t.Errorf("%d exchanges, the cache: %v", w.mints(), err)
	}
}

// The only cloud in the annotations is the provider, and --provider has any case.
func TestProviderOfAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, args := range map[string][]string{
		"aws":             {w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1", "--annotation=" + aws.RoleARNAnnotation + "=" + role("tenant-a")},
		"azure":           {w.tokenFile(t, azure.DefaultAudience), "--scope=https://management.azure.com/.default", "--annotation=" + azure.ClientIDAnnotation + "=" + azureClient, "--annotation=" + azure.TenantIDAnnotation + "=" + azureTenant},
		"gcp":             {w.tokenFile(t, "//iam.googleapis.com/"+gcpProvider), "--annotation=" + gcp.WorkloadIdentityProviderAnnotation + "=" + gcpProvider},
		"aws, upper case": append(w.inHand(t), "--provider=AWS"),
	} {
		provider, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) {
			if out := w.mustWid(t, "", append([]string{"token", "-o=yaml"}, args...)...); !strings.Contains(out, "provider: "+provider+"\n") {
				t.Error(out)
			}
		})
	}
}
