package aws_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// runRule performs the check.
func runRule(ctx context.Context, query doctor.TrustQuery,
	check func(context.Context, doctor.TrustQuery) doctor.Finding, timeout time.Duration) *doctor.Report {
	return doctor.Run(ctx, doctor.Examination{Subject: "tenant-a/app → cloud",
		Cluster:    "cluster prod (https://10.0.0.1:6443)",
		ShowPolicy: true, Timeout: timeout, Checks: []doctor.Check{
			{ID: rule, Title: "the rule", Run: func(ctx context.Context) doctor.Finding { return check(ctx, query) }},
		}})
}

// verify expects a report that fits on a screen and shows neither tokens, web
// pages, nor what is hidden.
func verify(t testing.TB, report *doctor.Report, hidden ...string) {
	t.Helper()
	text := report.String()
	if n := strings.Count(withoutPolicies(report).Text(doctor.TextOptions{PolicyHint: "wid doctor … --show-policy"}),
		"\n"); n > 14 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 81 && !strings.HasPrefix(line, "    ") && len(strings.Fields(line)) > 1 {
			t.Errorf("too wide: %s", line)
		}
	}
	encoded, err := json.Marshal(report)
	if err != nil {
		t.Error(err)
	}
	text += string(encoded) + report.Text(doctor.TextOptions{Verbose: true})
	for _, secret := range append([]string{"eyJhbGci", "<html", "\x1b"}, hidden...) {
		if strings.Contains(text, secret) {
			t.Errorf("the report holds %q:\n%s", secret, text)
		}
	}
	for _, f := range report.Findings {
		if len([]rune(f.Message)) > 200 || !strings.HasSuffix(f.Message, ".") && !strings.Contains(f.Message, ":") {
			t.Errorf("%s: a long message, or no sentence: %s", f.Check, f.Message)
		}
	}
}

// withoutPolicies returns the report as a person sees it who does not ask for
// policies.
func withoutPolicies(report *doctor.Report) *doctor.Report {
	r := *report
	r.Findings = slices.Clone(r.Findings)
	for i := range r.Findings {
		if or := r.Findings[i].Remedy.Or; or != nil {
			r.Findings[i].Remedy.Or = &doctor.Policy{When: or.When}
		}
	}
	return &r
}

// expected is one line of a table of faults. Class is empty for an Unknown
// finding.
type expected struct {
	class, says string
	result      doctor.Result
}

// expect compares the headline with a row: the finding, its remedy, and the
// exit code.
func (r expected) expect(t testing.TB, report *doctor.Report) *doctor.Finding {
	t.Helper()
	f, exit := report.Worst(), map[doctor.Result]int{doctor.Fail: 1, doctor.Unknown: 3}[r.result]
	text := strings.ReplaceAll(strings.Join(strings.Fields(report.String()), " "), " \\ ", " ") // without breaks of lines
	if f == nil || f.Check != rule || f.Result != r.result || f.Class != r.class || !strings.Contains(text, r.says) ||
		report.ExitCode() != exit {
		t.Fatalf("got %+v instead of %+v:\n%s", f, r, report)
	}
	if f.Remedy.Text == "" {
		t.Errorf("no remedy:\n%s", report)
	}
	return f
}

// hostile returns values that a shell or a terminal would interpret. A shell
// that does so creates the file "owned".
func hostile() []string {
	return []string{"$(>owned)", "`>owned`", "'; >owned; '", `"; >owned; "`, "\x1b[2J", "a\nb", "-o", "\u202e"}
}

// paste runs the commands of a report in a shell without programs, and expects
// no file "owned".
func paste(t *testing.T, report *doctor.Report) {
	t.Helper()
	var script strings.Builder
	for _, f := range report.Findings {
		commands := f.Remedy.Commands
		if f.Remedy.Or != nil {
			commands = slices.Concat(commands, f.Remedy.Or.Commands)
		}
		for _, command := range commands {
			script.WriteString(command + "\n")
		}
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", script.String()) //nolint:gosec // what a person would paste
	sh.Dir, sh.Env = t.TempDir(), []string{"PATH=/nonexistent"}
	out, _ := sh.CombinedOutput() // no program is found
	if _, err := os.Stat(filepath.Join(sh.Dir, "owned")); err == nil || strings.Contains(string(out), "yntax") {
		t.Errorf("the shell says %s, and obeys\n%s", out, &script)
	}
}
