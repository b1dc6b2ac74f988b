package gcp_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

func TestRegistries(t *testing.T) {
	p := &gcp.Provider{}
	for repository, ok := range map[string]bool{
		"gcr.io/project/app":                               true,
		"us.gcr.io/project/app":                            true,
		"eu.gcr.io/project/app":                            true,
		"asia.gcr.io/project/app":                          true,
		"GCR.IO/project/app":                               true,
		"europe-docker.pkg.dev/project/repo/app":           true,
		"europe-west1-docker.pkg.dev/project/repo/app":     true,
		"europe-west1-docker.pkg.dev:443/project/repo/app": true,
		"":                                           false,
		"/":                                          false,
		"https://gcr.io/project":                     false,
		"gcr.io.evil.example/project":                false,
		"evilgcr.io/project":                         false,
		"evil.gcr.io/project":                        false,
		"us.gcr.io.:443":                             false,
		"gcr.io:8443/project":                        false,
		"gcr.io@evil.example/project":                false,
		"user:gcr.io@evil.example":                   false,
		"docker.pkg.dev/project":                     false,
		"-docker.pkg.dev/project":                    false,
		"x.us-docker.pkg.dev/project":                false,
		"usdocker.pkg.dev/project":                   false,
		"us-docker.pkg.dev.evil.example/p":           false,
		"us-docker-pkg.dev/p":                        false,
		"us-maven.pkg.dev/p":                         false,
		"us_1-docker.pkg.dev/p":                      false,
		"1us-docker.pkg.dev/p":                       false,
		"evil.example/gcr.io":                        false,
		"evil.example#gcr.io":                        false,
		"evil.example?x=us-docker.pkg.dev":           false,
		"gcr.io\\.evil.example/p":                    false,
		"gcr.io%2eevil.example/p":                    false,
		"gсr.io/cyrillic":                            false,
		"s3nsregistry.fr/p":                          false,
		"docker.s3nsregistry.fr.evil/p":              false,
		"docker.io/library/alpine":                   false,
		strings.Repeat("a", 300) + "-docker.pkg.dev": false,
	} {
		input, err := p.ParseArtifactRepository(repository, &provider.Options{})
		if ok && (err != nil || input != "gcp") {
			t.Errorf("%q: got %q, %v", repository, input, err)
		}
		if !ok {
			testworld.CheckError(t, err, auth.ErrMisconfigured)
		}
	}
}

// The password is the access token: no universe's goes to the registries and Git hosts of another one, another company's.
func TestUniversesKeepTheirTokens(t *testing.T) {
	google, s3ns := &gcp.Provider{}, &gcp.Provider{UniverseDomain: "s3nsapis.fr"}
	unknown, none := &gcp.Provider{UniverseDomain: "apis.example"}, &gcp.Provider{UniverseDomain: "not a universe"}
	for _, tc := range []struct {
		host  string
		owner *gcp.Provider
	}{
		{"gcr.io", google}, {"eu.gcr.io:443", google}, {"us-docker.pkg.dev", google},
		{"docker.s3nsregistry.fr", s3ns}, {"u-france-east1-docker.s3nsregistry.fr", s3ns},
	} {
		for _, p := range []*gcp.Provider{google, s3ns, unknown, none} {
			_, err := p.ParseArtifactRepository(tc.host+"/project/repo/app", &provider.Options{})
			if p == tc.owner {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			testworld.CheckError(t, err, auth.ErrMisconfigured, strings.TrimSuffix(tc.host, ":443"), "belongs to the universe", "UniverseDomain")
			if host, err := provider.RegistryHost(tc.host); err != nil || !p.OwnsRegistry(host) {
				t.Errorf("a keychain would be anonymous at %q", tc.host)
			}
		}
	}
	repository := &url.URL{Scheme: "https", Host: gitHost, Path: "/project/repo"}
	_, err := s3ns.ParseGitRepository(repository, &provider.Options{})
	testworld.CheckError(t, err, auth.ErrMisconfigured, gitHost, `"googleapis.com"`, `"s3nsapis.fr"`)
	if google.OwnsRegistry("ghcr.io") {
		t.Error("ghcr.io is none of Google's")
	}
}

// Whatever host is accepted is one of Google's.
func FuzzArtifactRepository(f *testing.F) {
	for _, s := range []string{"gcr.io/p", "us.gcr.io", "us-docker.pkg.dev/p/r/i", "docker.s3nsregistry.fr", "gcr.io.evil.example", "a@gcr.io", "us-docker.pkg.dev:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, repository string) {
		input, err := (&gcp.Provider{}).ParseArtifactRepository(repository, &provider.Options{})
		if err != nil {
			return
		}
		// Take the host as clients do.
		u, err := url.Parse("https://" + repository)
		if err != nil || input != "gcp" || u.User != nil || u.Port() != "" && u.Port() != "443" {
			t.Fatalf("%q is accepted: %v", repository, err)
		}
		switch host := strings.ToLower(u.Hostname()); {
		case host == "gcr.io", host == "us.gcr.io", host == "eu.gcr.io", host == "asia.gcr.io":
		case strings.HasSuffix(host, "-docker.pkg.dev") && strings.Count(host, ".") == 2:
		default:
			t.Fatalf("%q is accepted, but its host is %q", repository, host)
		}
	})
}

func TestRegistryCredentials(t *testing.T) {
	w := newWorld(t)
	const host = "europe-docker.pkg.dev"
	w.cloud.GCP().SetRepository(host+"/project/repo", "serviceAccount:"+email("tenant-a"))
	p := &gcp.Provider{}
	for tenant, status := range map[string]int{"tenant-a": http.StatusOK, "tenant-b": http.StatusForbidden} {
		token, err := w.getFrom(t, p, tenant, "app")
		if err != nil {
			t.Fatal(err)
		}
		creds, err := p.NewArtifactRegistryCredentials(t.Context(), "gcp", token, &provider.Options{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := creds.Authorization()
		if err != nil || config.Username != "oauth2accesstoken" || config.Password != token.AccessToken() || !creds.ExpiresAt().Equal(token.ExpiresAt()) {
			t.Errorf("user %q, expires %s, %v", config.Username, creds.ExpiresAt(), err)
		}
		if got := w.status(t, "https://"+host+"/v2/token?service="+host+"&scope=repository:project/repo/app:pull", config.Username, config.Password); got != status {
			t.Errorf("%s: status %d", tenant, got)
		}
	}
	if got := w.status(t, "https://"+host+"/v2/", "oauth2accesstoken", "wrong"); got != http.StatusUnauthorized {
		t.Errorf("status %d for a wrong password", got)
	}
	_, err := p.NewArtifactRegistryCredentials(t.Context(), "gcp", &gcp.IDToken{}, &provider.Options{})
	testworld.CheckError(t, err, auth.ErrMisconfigured, "*gcp.IDToken")
}

func (w *world) status(t *testing.T, address, user, password string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := w.cloud.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
