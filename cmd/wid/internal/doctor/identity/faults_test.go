package identity_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// fault is something that is wrong in an environment in which all else fits.
type fault struct {
	name     string
	provider string
	spoil    func(w *environment)
	// check and class are those of the finding to act on first.
	check, class string
	// says is a part of its message.
	says string
}

// Every fault is named: the finding that the report says to begin with is of
// the right check and class.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	printed := remedies{}
	t.Run("each", func(t *testing.T) {
		for _, list := range [][]fault{tokenFaults(), issuerFaults(), kubernetesFaults(), awsFaults(), azureFaults(),
			gcpFaults(), podFaults()} {
			for _, f := range list {
				t.Run(f.provider+"/"+f.name, func(t *testing.T) {
					t.Parallel()
					report := f.diagnosed(t)
					mu.Lock()
					defer mu.Unlock()
					printed.add(report)
				})
			}
		}
	})
	t.Run("commands", func(t *testing.T) { printed.check(t, builtKubectl()) })
}

func (f *fault) diagnosed(t *testing.T) *doctor.Report {
	w := newEnvironment(t, f.provider)
	f.spoil(w)
	report := w.run()
	first := report.Worst()
	if first == nil || first.Check != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) {
		t.Fatalf("want %s %s %q:\n%s", f.check, f.class, f.says, report)
	}
	want := doctor.Fail
	// the cloud has other keys, or asks from elsewhere
	if report.Of("exchange").Result == doctor.Pass && first.Check == "issuer" {
		want = doctor.Warn
	}
	if first.Result != want || first.Remedy.Text == "" && len(first.Remedy.Commands) == 0 {
		t.Errorf("not %s, or no remedy: %+v", want, first)
	}
	if remedy := fmt.Sprint(first.Remedy.Text, first.Remedy.Commands); first.Class != "RightMissing" &&
		widening().MatchString(remedy) {
		t.Errorf("the remedy makes a service trust or permit more: %s", remedy)
	}
	readable(t, report)
	return report
}

// widening finds a grant. Only the rights of the person who runs the doctor
// (K1) may be in a remedy.
func widening() *regexp.Regexp {
	return regexp.MustCompile(
		`(?i)role assignment|policy-binding|access-entry|attach|grant|allow |trust policy|roles/|federated-credential (create|update)|assign`)
}

// readable asserts what holds for every report.
func readable(t *testing.T, report *doctor.Report) {
	t.Helper()
	text := report.String()
	if n := strings.Count(text, "\n"); n > 14 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 81 && !hasValue(line) {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	remedies := map[string]string{}
	for _, f := range report.Findings {
		if remedy := fmt.Sprint(f.Remedy.Text, f.Remedy.Commands); f.Result == doctor.Fail && remedy != "[]" {
			if other := remedies[remedy]; other != "" {
				t.Errorf("%s and %s have the same remedy: %s", other, f.Check, remedy)
			}
			remedies[remedy] = f.Check
		}
		if f.Result != doctor.Skip && !strings.ContainsAny(f.Message[len(f.Message)-1:], ".?") &&
			!strings.Contains(f.Message, ": http") {
			t.Errorf("%s: no sentence: %q", f.Check, f.Message)
		}
	}
	if code := report.ExitCode(); (code == doctor.ExitFail) != (report.Result == doctor.Fail) {
		t.Errorf("exit code %d", code)
	}
	encoded, err := json.Marshal(report)
	if all := fmt.Sprint(text, report.Text(doctor.TextOptions{Verbose: true}), string(encoded)); err != nil ||
		strings.Contains(all, "eyJhbGci") {
		t.Errorf("a token is in the report: %v\n%s", err, all)
	}
}

// hasValue reports a line that a long value, a quoted command or a comparison
// keeps from being wrapped.
func hasValue(line string) bool {
	const long = 40
	return strings.ContainsAny(line, `'"`) || strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     ") ||
		slices.ContainsFunc(strings.Fields(line), func(word string) bool { return len(word) > long })
}
