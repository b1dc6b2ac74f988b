package gcp_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
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
			testenv.CheckError(t, err, auth.ErrMisconfigured)
		}
	}
}

// The password is the access token: no universe's goes to the registries and
// Git hosts of another one, another company's.
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
			testenv.CheckError(t, err, auth.ErrMisconfigured, strings.TrimSuffix(tc.host, ":443"), "belongs to the universe",
				"UniverseDomain")
			if host, err := provider.RegistryHost(tc.host); err != nil || !p.OwnsRegistry(host) {
				t.Errorf("a keychain would be anonymous at %q", tc.host)
			}
		}
	}
	repository := &url.URL{Scheme: "https", Host: gitHost, Path: "/project/repo"}
	_, err := s3ns.ParseGitRepository(repository, &provider.Options{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, gitHost, `"googleapis.com"`, `"s3nsapis.fr"`)
}

// At a host that is named as a registry of Google, but whose form is not known,
// a Keychain is not anonymous. Some hosts have public images alone.
func TestHostsNamedAsRegistries(t *testing.T) {
	for host, want := range map[string]bool{
		"gcr.io": true, "us-docker.pkg.dev": true, "us-west1.gcr.io": false, "us_1-docker.pkg.dev": true,
		"a.us-docker.pkg.dev": true,
		"x-y.s3nsregistry.fr": true, "mirror.gcr.io": false, "k8s.gcr.io": false, "ghcr.io": false, "evilgcr.io": false,
		"us-maven.pkg.dev": false, "us-docker.pkg.dev.evil.example": false,
	} {
		if got := (&gcp.Provider{}).OwnsRegistry(host); got != want {
			t.Errorf("%q: got %t, want %t", host, got, want)
		}
	}
}
