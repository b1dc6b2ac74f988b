package azure_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestGit(t *testing.T) {
	clearEnvironment(t)
	w, p := newEnvironment(t), &azure.Provider{}
	w.Cloud.Azure().SetGitRepository("org/project/_git/app", clientA)
	for _, address := range []string{"https://dev.azure.com/org/project/_git/app",
		"https://DEV.azure.com:443/org/project/_git/app", "https://org.visualstudio.com/project/_git/app"} {
		c, err := auth.GetGitCredentials(t.Context(), p,
			w.Options("tenant-a", "app", auth.WithGitURL(parseURL(t, address)))...)
		if err != nil || c.Username() != "" || c.Password() != "" || c.GetDuration() <= 0 {
			t.Fatalf("got %v, %v, want a bearer token without a user", c, err)
		}
		for bearer, want := range map[string]int{c.BearerToken(): http.StatusOK, "": http.StatusUnauthorized} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				strings.ToLower(address)+"/info/refs?service=git-upload-pack", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+bearer)
			resp, err := w.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s answers %d, want %d", address, resp.StatusCode, want)
			}
		}
	}
}

func parseURL(t *testing.T, address string) url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

// The token goes to no host that only looks like Azure DevOps.
func TestGitURLsThatAreRefused(t *testing.T) {
	clearEnvironment(t)
	p := &azure.Provider{}
	for _, address := range []string{
		"https://evil.example/dev.azure.com", "https://dev.azure.com.evil.example/x", "https://evildev.azure.com/x",
		"https://a.dev.azure.com/x", "https://azure.com/x",
		"https://dev.azure.com@evil.example/x", "https://dev.azure.com:8443/x", "https://dev.azure.com:/x",
		"http://dev.azure.com/x", "ssh://git@ssh.dev.azure.com/v3/o/p/r", "https://ssh.dev.azure.com/x",
		"https://visualstudio.com/x", "https://.visualstudio.com/x", "https://a.b.visualstudio.com/x",
		"https://vs-ssh.visualstudio.com/x", "https://org.vs-ssh.visualstudio.com/x", "https://evilvisualstudio.com/x",
		"https://org.visualstudio.com.evil.example/x", "https://-org.visualstudio.com/x", "https://o_rg.visualstudio.com/x",
		"https://dev.azure.com./x",
		"https://github.com/o/r", "https://dev.azure.us/x",
	} {
		u := parseURL(t, address)
		input, err := p.ParseGitRepository(&u, &provider.Options{})
		if err == nil {
			t.Errorf("%s is accepted as %q", address, input)
			continue
		}
		testenv.CheckError(t, err, auth.ErrMisconfigured)
	}
	u, _ := url.Parse("https://dev.azure.com/org/project/_git/app")
	_, err := (&azure.Provider{AuthorityHost: "https://login.microsoftonline.us"}).ParseGitRepository(u,
		&provider.Options{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "public cloud", "Azure US Government")
}
