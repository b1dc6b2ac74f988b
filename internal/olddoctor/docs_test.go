package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
)

// normal replaces what differs from run to run: keys, hashes, times.
func normal(s string) string {
	for pattern, text := range map[string]string{
		`kid [A-Za-z0-9_-]+`:                        "kid KID",
		`sha256 [0-9a-f]{8}`:                        "sha256 HASH",
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`:           "TIME",
		`(?m)[ \t]+$`:                               "",
		`HTTP \d+, request [0-9a-f-]+`:              "REQUEST",
		`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`: "UUID",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, text)
	}
	return strings.TrimSpace(s)
}

// The sample in docs/doctor.md is what the doctor says.
func TestDocumentedSample(t *testing.T) {
	w := newWorld(t, "aws")
	const all = "system:serviceaccount:tenant-a:*"
	policy(`{"StringEquals":{"ISS:sub":"`+all+`"}}`, authtest.Trust{Subjects: []string{all}})(w)
	w.config.Repository = ecrHost + "/app"
	got := w.run().String()
	content, err := os.ReadFile(filepath.Join("..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(content), "```text\n")
	sample, _, _ = strings.Cut(sample, "```")
	if normal(sample) != normal(got) {
		t.Errorf("docs/doctor.md shows another sample than:\n%s", got)
	}
}

// The checks that docs/doctor.md names are all there are.
func TestDocumentedChecks(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range newWorld(t, "generic").run().Findings {
		if !strings.Contains(string(content), "`"+f.ID+"`") {
			t.Errorf("docs/doctor.md does not name %s", f.ID)
		}
	}
}
