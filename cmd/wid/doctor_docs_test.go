package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/internal/doctor"
	bootstrapdoctor "github.com/workloadid/workloadid/internal/doctor/bootstrap"
	identitydoctor "github.com/workloadid/workloadid/internal/doctor/identity"
	podidentitydoctor "github.com/workloadid/workloadid/internal/doctor/podidentity"
	registrationdoctor "github.com/workloadid/workloadid/internal/doctor/registration"
)

func doctorPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestDocumentedChecks(t *testing.T) {
	page := doctorPage(t)
	for command, checks := range map[string][]doctor.Check{"wid doctor": identitydoctor.Checks(), "wid doctor bootstrap": bootstrapdoctor.Checks(),
		"wid doctor registration": registrationdoctor.Checks(), "wid doctor pod-identity": podidentitydoctor.Checks()} {
		row := "| `" + command + "` |"
		for _, c := range checks {
			row += " `" + c.ID + "`"
		}
		if !strings.Contains(page, row+" |\n") {
			t.Errorf("docs/doctor.md has to have this row:\n%s |", row)
		}
	}
}

// The table has a row for each reason, and no other. Its checks exist.
func TestDocumentedReasons(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "internal", "doctor", "internal", "reason", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ += "(\w+)"$`).FindAllStringSubmatch(string(content), -1) {
		want = append(want, match[1])
	}
	var checks []string
	for _, c := range identitydoctor.Checks() {
		checks = append(checks, c.ID)
	}
	_, tables, _ := strings.Cut(doctorPage(t), "\n## Reasons\n")
	tables, _, _ = strings.Cut(tables, "\n| Bootstrap |")
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\| (.*?) \\| .+ \\|$").FindAllStringSubmatch(tables, -1) {
		got = append(got, row[1])
		for _, check := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(row[2], -1) {
			if !slices.Contains(checks, check[1]) {
				t.Errorf("%s: docs/doctor.md names the check %q", row[1], check[1])
			}
		}
	}
	if len(want) < 40 || !slices.Equal(got, want) {
		t.Errorf("docs/doctor.md has the reasons\n%q instead of\n%q", got, want)
	}
}

// Causes have names, no numbers.
func TestNoNumberedCauses(t *testing.T) {
	numbered := regexp.MustCompile(`["\x60][ABGKNOPZ][0-9]{1,2}["\x60]`)
	err := filepath.WalkDir(filepath.Join("..", "..", "internal", "doctor"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // a path of this module
		for _, match := range numbered.FindAll(content, -1) {
			t.Errorf("%s says %s", path, match)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range numbered.FindAllString(doctorPage(t), -1) {
		t.Errorf("docs/doctor.md says %s", match)
	}
}

// Every reason with a remedy is in the table of its package, and the table has no other.
func TestDocumentedReasonsOfTargets(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	for heading, remedies := range map[string]map[string]doctor.Remedy{
		"Bootstrap": bootstrapdoctor.Remedies(bootstrapdoctor.Config{}), "Pod identity": podidentitydoctor.Remedies(podidentitydoctor.Config{})} {
		_, table, _ := strings.Cut(doctorPage(t), "\n| "+heading+" | Check | |\n")
		table, _, _ = strings.Cut(table, "\n\n")
		var onPage []string
		for _, match := range row.FindAllStringSubmatch(table, -1) {
			onPage = append(onPage, strings.Fields(strings.ReplaceAll(match[1], "`", ""))...)
		}
		slices.Sort(onPage)
		if want := slices.Sorted(maps.Keys(remedies)); !slices.Equal(want, onPage) {
			t.Errorf("%s: the code has\n%s, docs/doctor.md\n%s", heading, want, onPage)
		}
	}
}

// The commands of the page have flags that exist.
func TestDocumentedDoctorCommands(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(doctorPage(t), -1)
	found := 0
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			_, rest, ok := strings.Cut(line, "wid doctor")
			if !ok {
				continue
			}
			found++
			cmd, args, err := newRoot().Find(append([]string{"doctor"}, strings.Fields(rest)...))
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err != nil || cmd.Flags().NArg() != 0 {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d commands", found)
	}
}

// The table has every flag of the commands, but those of an identity, which docs/wid.md has.
func TestDocumentedDoctorFlags(t *testing.T) {
	ofIdentity := map[string]bool{"help": true, "help-all": true}
	for _, s := range parsed(t).Settings() {
		ofIdentity[s.Name] = true
	}
	root, _, err := newRoot().Find([]string{"doctor"})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	commands := map[string][]string{}
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd == root && ofIdentity[f.Name] || f.Name == "help" || f.Name == "help-all" {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name += ", `-" + f.Shorthand + "`"
			}
			row := "| " + name + " | " + strings.ReplaceAll(f.Usage, "<", "\\<") + " | "
			rows = append(rows, row)
			commands[row] = append(commands[row], "`"+cmd.Name()+"`")
		})
	}
	page := doctorPage(t)
	slices.Sort(rows)
	for _, row := range slices.Compact(rows) {
		if want := row + strings.Replace(strings.Join(commands[row], ", "), "`doctor`, `bootstrap`, `pod-identity`, `registration`", "all", 1) + " |\n"; !strings.Contains(page, want) {
			t.Errorf("docs/doctor.md has to have this row:\n%s", want)
		}
	}
}
