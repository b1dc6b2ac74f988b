package gcp_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const gitHost = "my-instance-" + number + "-git.europe-west1.sourcemanager.dev"

func TestGitHosts(t *testing.T) {
	p := &gcp.Provider{}
	for address, ok := range map[string]bool{
		"https://" + gitHost + "/project/repo.git":                                           true,
		"https://" + gitHost + ":443/project/repo":                                           true,
		"https://" + strings.ToUpper(gitHost) + "/project/repo":                              true,
		"https://i-1-git.us-central1.p.sourcemanager.dev/project/repo":                       true,
		"http://" + gitHost + "/project/repo":                                                false,
		"ssh://" + gitHost + "/project/repo":                                                 false,
		"https://" + gitHost + ":8443/project/repo":                                          false,
		"https://" + gitHost + ".evil.example/project/repo":                                  false,
		"https://" + gitHost + "./project/repo":                                              false,
		"https://evil.example/" + gitHost:                                                    false,
		"https://my-instance-" + number + ".europe-west1.sourcemanager.dev/project/repo":     false,
		"https://my-instance-" + number + "-api.europe-west1.sourcemanager.dev/project/repo": false,
		"https://my-instance-project-git.europe-west1.sourcemanager.dev/project/repo":        false,
		"https://" + number + "-git.europe-west1.sourcemanager.dev/project/repo":             false,
		"https://-" + number + "-git.europe-west1.sourcemanager.dev/project/repo":            false,
		"https://my-instance-" + number + "-git.sourcemanager.dev/project/repo":              false,
		"https://my-instance-" + number + "-git.a.b.sourcemanager.dev/project/repo":          false,
		"https://x.my-instance-1-git.europe-west1.sourcemanager.dev/project/repo":            false,
		"https://my-instance-1-git.europe-west1-sourcemanager.dev/project/repo":              false,
		"https://my-instance-1-git.europe-west1.sourcemanager.dev.co/project/repo":           false,
		"https://sourcemanager.dev/project/repo":                                             false,
		"https://source.developers.google.com/p/project/r/repo":                              false,
		"https://github.com/org/repo":                                                        false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		input, err := p.ParseGitRepository(u, &provider.Options{})
		if ok && (err != nil || input == "") {
			t.Errorf("%q: got %q, %v", address, input, err)
		}
		if !ok {
			testenv.CheckError(t, err, auth.ErrMisconfigured, "sourcemanager.dev")
		}
	}
}

func TestGitCredentials(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.GCP().SetGitRepository(gitHost+"/project/repo", "serviceAccount:"+email("tenant-a"))
	p := &gcp.Provider{}
	const refs = "https://" + gitHost + "/project/repo.git/info/refs?service=git-upload-pack"
	for tenant, status := range map[string]int{"tenant-a": http.StatusOK, "tenant-b": http.StatusForbidden} {
		token, err := w.getFrom(t, p, tenant, "app")
		if err != nil {
			t.Fatal(err)
		}
		creds, err := p.NewGitCredentials(t.Context(), "gcp", token, &provider.Options{})
		if err != nil || creds.Password() != token.AccessToken() || creds.BearerToken() != "" ||
			!creds.ExpiresAt().Equal(token.ExpiresAt()) {
			t.Fatalf("got %v, %v", creds, err)
		}
		if got := w.status(t, refs, creds.Username(), creds.Password()); got != status {
			t.Errorf("%s: status %d", tenant, got)
		}
	}
	if got := w.status(t, refs, "oauth2accesstoken", "wrong"); got != http.StatusUnauthorized {
		t.Errorf("status %d for a wrong password", got)
	}
	_, err := p.NewGitCredentials(t.Context(), "gcp", &gcp.IDToken{}, &provider.Options{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "*gcp.IDToken")
}

func (w *environment) status(t *testing.T, address, user, password string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := w.Cloud.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
