package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

func doctorDocs(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// sampleUnder is the first sample under a heading of docs/doctor.md.
func sampleUnder(t *testing.T, heading string) string {
	t.Helper()
	_, section, _ := strings.Cut(doctorDocs(t), "\n## "+heading+"\n")
	_, sample, _ := strings.Cut(section, "```text\n")
	sample, _, found := strings.Cut(sample, "```")
	if !found {
		t.Fatalf("docs/doctor.md has no sample under %q", heading)
	}
	return sample
}

// alike replaces what differs between two clusters.
func alike(s string) string {
	for pattern, text := range map[string]string{`(https://)?(127\.0\.0\.1:\d+|10\.0\.0\.1:6443)`: "SERVER", `sha256:[0-9a-f]{64}`: "PIN"} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, text)
	}
	return normal(s)
}

// The samples of the targets without a provider are what the doctor says.
func TestDocumentedTargets(t *testing.T) {
	boot := newBootWorld(t)
	boot.tokenOf(func(c *bootstrap.TokenConfig) { c.Expires = time.Now().Add(-time.Hour) })
	hub := newHubWorld(t)
	fresh(hub)
	const usual = "open-cluster-management-agent"
	part(hub.klusterlet, "spec")["namespace"] = usual
	part(hub.boot, "metadata")["namespace"], part(hub.agent, "metadata")["namespace"] = usual, usual
	hub.csrs = []object{newCSR("cluster1-xk2vq", "system:serviceaccount:open-cluster-management:agent-registration-bootstrap", "", time.Minute)}
	for heading, report := range map[string]*doctor.Report{"A machine that cannot join": boot.run(), "A cluster that its hub does not manage": hub.run()} {
		if alike(sampleUnder(t, heading)) != alike(report.String()) {
			t.Errorf("docs/doctor.md shows another sample under %q than:\n%s", heading, report)
		}
	}
}

// Checks and classes of the targets are all documented.
func TestDocumentedTargetClasses(t *testing.T) {
	docs := doctorDocs(t)
	for _, c := range append(doctor.BootstrapChecks(), doctor.EnrolmentChecks()...) {
		if !strings.Contains(docs, "`"+c.ID+"`") || c.Title == "" || c.Number != 25 {
			t.Errorf("docs/doctor.md does not name %+v", c)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`"([BO]\d+)"`).FindAllStringSubmatch(string(content), -1) {
			if !regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(docs) {
				t.Errorf("%s: docs/doctor.md does not name the class %s", file, match[1])
			}
		}
	}
}
