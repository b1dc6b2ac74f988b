// Package reporttest asserts what every report of the doctor has to satisfy, for the tests of the checks.
package reporttest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/doctor"
)

// Want is the headline of a report.
type Want struct {
	Check, Class string
	// Says is a part of the message.
	Says string
	// Result is Fail if it is empty.
	Result doctor.Result
}

// Headline asserts that the report names the fault first, says how to correct it, and suits its readers.
func Headline(t testing.TB, r *doctor.Report, want Want, secrets ...string) {
	t.Helper()
	if want.Result == "" {
		want.Result = doctor.Fail
	}
	f := r.Worst()
	if f == nil || f.Check != want.Check || f.Class != want.Class || f.Result != want.Result || !strings.Contains(f.Message, want.Says) {
		t.Fatalf("want %+v, got\n%s", want, r.Text(doctor.TextOptions{Verbose: true}))
	}
	if f.Remedy.Text == "" && len(f.Remedy.Commands) == 0 {
		t.Errorf("no remedy: %+v", f)
	}
	code := doctor.ExitFail
	if want.Result != doctor.Fail {
		code = doctor.ExitUncertain
	}
	if r.ExitCode() != code {
		t.Errorf("exit code %d instead of %d", r.ExitCode(), code)
	}
	Readable(t, r, secrets...)
}

// Healthy asserts that the report gives no alarm.
func Healthy(t testing.TB, r *doctor.Report, secrets ...string) {
	t.Helper()
	if r.ExitCode() != doctor.ExitPass || r.Subject == "" || strings.Count(r.String(), "\n") > 4 {
		t.Errorf("exit code %d:\n%s", r.ExitCode(), r.Text(doctor.TextOptions{Verbose: true}))
	}
	Readable(t, r, secrets...)
}

// Readable asserts that the report fits a screen, that one remedy stands under one check, and that it holds no secret.
func Readable(t testing.TB, r *doctor.Report, secrets ...string) {
	t.Helper()
	text := r.String()
	if n := strings.Count(text, "\n"); n > 14 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 81 && !isValue(line) {
			t.Errorf("a line of %d columns:\n%s", utf8.RuneCountInString(line)-1, line)
		}
	}
	said := map[string]string{}
	for _, f := range r.Findings {
		remedy := f.Remedy.Text + strings.Join(f.Remedy.Commands, "\n")
		if by := said[remedy]; by != "" && f.Result == doctor.Fail {
			t.Errorf("%s and %s have the same remedy: %s", by, f.Check, remedy)
		}
		if f.Result == doctor.Fail && remedy != "" {
			said[remedy] = f.Check
		}
		if f.Message != "" && f.Result != doctor.Skip && !strings.HasSuffix(f.Message, ".") && f.Because == "" {
			t.Errorf("not a sentence: %q", f.Message)
		}
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	all := text + r.Text(doctor.TextOptions{Verbose: true}) + string(encoded)
	for _, secret := range append(secrets, "eyJhbGci") {
		if strings.Contains(all, secret) {
			t.Errorf("%.8q… is in the report:\n%s", secret, all)
		}
	}
}

// isValue reports a line of a comparison, a quoted command that stays in one piece, or one with a long word.
func isValue(line string) bool {
	const long = 50
	for word := range strings.FieldsSeq(line) {
		if len(word) > long {
			return true
		}
	}
	return strings.ContainsAny(line, `'"`) || strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     ") || strings.HasPrefix(line, "✗") || strings.HasPrefix(line, "?") || strings.HasPrefix(line, "!") || strings.HasPrefix(line, "✓")
}
