package gcpname_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/gcpname"
)

func TestHosts(t *testing.T) {
	for _, tc := range []struct {
		name     string
		knows    func(string) bool
		yes, not []string
	}{
		{"registry", func(s string) bool { return gcpname.RegistryUniverse(s) == gcpname.DefaultUniverse },
			[]string{"gcr.io", "asia.gcr.io", "us-docker.pkg.dev", "me-central2-docker.pkg.dev"},
			[]string{"", "GCR.io", "fr.gcr.io", ".gcr.io", "a.b-docker.pkg.dev", "-docker.pkg.dev", "a--docker.pkg.dev.",
				"pkg.dev", "docker.s3nsregistry.fr"}},
		{"registry of S3NS", func(s string) bool { return gcpname.RegistryUniverse(s) == "s3nsapis.fr" },
			[]string{"docker.s3nsregistry.fr", "u-france-east1-docker.s3nsregistry.fr"},
			[]string{"", "gcr.io", "us-docker.pkg.dev", "s3nsregistry.fr", "-docker.s3nsregistry.fr",
				"a.b-docker.s3nsregistry.fr", "docker.s3nsregistry.fr.evil"}},
		{"Git", gcpname.IsGitHost,
			[]string{"i-1-git.us-central1.sourcemanager.dev", "a-b-c-123-git.us-central1.p.sourcemanager.dev"},
			[]string{"", "i-git.us-central1.sourcemanager.dev", "i-0-git.us.sourcemanager.dev",
				"i-1-ssh.us.sourcemanager.dev", "i-1-git..sourcemanager.dev",
				strings.Repeat("i", 60) + "-1-git.us.sourcemanager.dev"}},
		{"DNS endpoint", gcpname.IsDNSEndpoint,
			[]string{"gke-0a1b-123.us-central1.gke.goog", "x.gke.goog"},
			[]string{"", "gke.goog", ".gke.goog", "xgke.goog", "x.gke.goog.", "X.gke.goog", "x_y.gke.goog",
				strings.Repeat("a.", 130) + "gke.goog"}},
		{"universe", gcpname.ValidUniverse,
			[]string{"googleapis.com", "s3nsapis.fr", "apis-berlin-build0.goog"},
			[]string{"", "com", "1.2.3.4", "Googleapis.com", "googleapis.com/", "a b.com", "-a.com", "[::1]"}},
		{"project", gcpname.ValidProject, []string{"p", "my-project-1", "123", "example.com:my-project"},
			[]string{"", "P", "a.b", "a/b", ":p", "example.com:", "..", "a:b:c"}},
	} {
		for _, s := range tc.yes {
			if !tc.knows(s) {
				t.Errorf("%s: %q is refused", tc.name, s)
			}
		}
		for _, s := range tc.not {
			if tc.knows(s) {
				t.Errorf("%s: %q is accepted", tc.name, s)
			}
		}
	}
}
