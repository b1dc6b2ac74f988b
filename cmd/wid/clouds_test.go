package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/azure"
)

// asked is what a service answers to a credential.
func (w *world) asked(t *testing.T, url string, authorize func(r *http.Request)) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	authorize(r)
	resp, err := w.cloud.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to read
	return resp.StatusCode
}

// The provider is found by the registry's host, for all clouds.
func TestDockerCredentialsOfAllClouds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	member := "principal://iam.googleapis.com/" + strings.TrimSuffix(gcpProvider, "/providers/east") + "/subject/" + subjectOfApp
	w.cloud.Azure().SetRegistry("teamregistry.azurecr.io", authtest.AzureRegistry{Tenant: azureTenant, Pull: []string{azureClient}})
	w.cloud.GCP().SetRepository("europe-docker.pkg.dev/project/repo", member)
	for host, tc := range map[string]struct {
		audience, user string
		valid          func(password string) bool
	}{
		"teamregistry.azurecr.io": {azure.DefaultAudience, "00000000-0000-0000-0000-000000000000", func(p string) bool { return strings.HasPrefix(p, "eyJ") }},
		"europe-docker.pkg.dev": {"//iam.googleapis.com/" + gcpProvider, "oauth2accesstoken", func(p string) bool {
			_, ok := w.cloud.GCP().Identity(p)
			return ok
		}},
		registryHost: {"sts.amazonaws.com", "AWS", func(p string) bool {
			_, ok := w.cloud.AWS().ValidRegistryPassword(registryHost, "AWS", p)
			return ok
		}},
	} {
		args := append(annotationFlags(), w.tokenFile(t, tc.audience), "docker-credential", "get")
		var got struct{ Username, Secret string }
		for range 2 {
			if err := json.Unmarshal([]byte(w.mustWid(t, host, args...)), &got); err != nil || got.Username != tc.user || !tc.valid(got.Secret) {
				t.Errorf("%s: user %q, %v", host, got.Username, err)
			}
		}
	}
	for _, action := range [][2]string{{"ecr", ""}, {"sts", ""}, {"gcp-sts", ""}, {"acr", ""}} {
		if n := w.cloud.Calls(action[0], action[1]); n != 1 {
			t.Errorf("%d calls of %s", n, action[0])
		}
	}
}

// And by the repository's host: a bearer for Azure DevOps, a user and a password for the others.
func TestGitCredentialsOfAllClouds(t *testing.T) {
	w := newWorld(t)
	w.cloud.Azure().SetGitRepository("org/project/_git/repo", azureClient)
	get := func(audience, request string) map[string]string {
		args := append(annotationFlags(), w.tokenFile(t, audience), "git-credential", "get")
		got := map[string]string{}
		for line := range strings.Lines(w.mustWid(t, request, args...)) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[key] = value
		}
		return got
	}
	devops := "protocol=https\nhost=dev.azure.com\npath=org/project/_git/repo\n"
	bearer := get(azure.DefaultAudience, "capability[]=authtype\ncapability[]=state\n"+devops)
	if bearer["authtype"] != "Bearer" || bearer["capability[]"] != "authtype" || bearer["password"] != "" || bearer["password_expiry_utc"] == "" {
		t.Errorf("%d attributes of type %q", len(bearer), bearer["authtype"])
	}
	refs := "https://dev.azure.com/org/project/_git/repo/info/refs?service=git-upload-pack"
	if status := w.asked(t, refs, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+bearer["credential"]) }); status != http.StatusOK {
		t.Errorf("Azure DevOps answers %d", status)
	}
	basic := get(azure.DefaultAudience, devops)
	if id, ok := w.cloud.Azure().Identity(basic["password"]); !ok || id.ClientID != azureClient || basic["authtype"] != "" {
		t.Errorf("a git before 2.46 gets %d attributes", len(basic))
	}
	source := get("//iam.googleapis.com/"+gcpProvider, "protocol=https\nhost=inst-123-git.europe-west1.sourcemanager.dev\npath=p/r\n")
	if _, ok := w.cloud.GCP().Identity(source["password"]); !ok || source["username"] != "oauth2accesstoken" {
		t.Errorf("Secure Source Manager: %q", source["username"])
	}
}
