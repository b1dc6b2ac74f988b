package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	podidentitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
	registrationdoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	"github.com/workloadid/workloadid/internal/testing/document"
)

const doctorPage = "docs/doctor.md"

func TestDocumentedChecks(t *testing.T) {
	checks := map[string][]doctor.Check{"`wid doctor`": identitydoctor.Checks(), "`wid doctor registration`": registrationdoctor.Checks(),
		"`wid doctor pod-identity`": podidentitydoctor.Checks()}
	for _, row := range document.Read(t, doctorPage).Section("Chains").Rows("Command") {
		if got := document.Names(row[1]); !slices.Equal(got, names(checks[row[0]])) {
			t.Errorf("%s has the checks %q, not %q", row[0], names(checks[row[0]]), got)
		}
		delete(checks, row[0])
	}
	if len(checks) > 0 {
		t.Errorf("%s lacks %d commands", doctorPage, len(checks))
	}
}

func names(checks []doctor.Check) (ids []string) {
	for _, c := range checks {
		ids = append(ids, c.ID)
	}
	return ids
}

// The table has a row for each reason, and no other. Its checks exist.
func TestDocumentedReasons(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "doctor", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ += "(\w+)"$`).FindAllStringSubmatch(string(content), -1) {
		want = append(want, match[1])
	}
	for _, row := range document.Read(t, doctorPage).Section("Reasons").Rows("Reason") {
		got = append(got, document.Names(row[0])...)
		for _, check := range document.Names(row[1]) {
			if !slices.Contains(names(identitydoctor.Checks()), check) {
				t.Errorf("%s: %s names the check %q", row[0], doctorPage, check)
			}
		}
	}
	if len(want) < 40 || !slices.Equal(got, want) {
		t.Errorf("%s has the reasons\n%q instead of\n%q", doctorPage, got, want)
	}
}

// Each printed command exists, with its flags.
func TestDocumentedCommandsParse(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	printed, found := regexp.MustCompile(`(?:^| -- |\| |\()wid ([^|>)&;]+)`), 0
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		name, err := filepath.Rel(filepath.Join("..", ".."), page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range document.Read(t, name).Blocks("sh", "") {
			for line := range strings.Lines(strings.ReplaceAll(block.Text, "\\\n", "")) {
				for _, match := range printed.FindAllStringSubmatch(line, -1) {
					found++
					cmd, args, err := newRoot().Find(strings.Fields(match[1]))
					if err == nil {
						err = cmd.ParseFlags(args)
					}
					if err == nil {
						err = cmd.ValidateArgs(cmd.Flags().Args())
					}
					if err != nil {
						t.Errorf("%s: %s: %v", name, match[0], err)
					}
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("%d commands", found)
	}
}
