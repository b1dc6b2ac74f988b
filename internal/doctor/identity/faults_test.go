package identity_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/identity"
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

// Every fault is named: the finding that the report says to begin with is of the right check and class. The recall is of this
// list; faults that no fake can show are not in it.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	found, all, classes, printed := map[string]int{}, map[string]int{}, map[string]bool{}, remedies{}
	t.Run("each", func(t *testing.T) {
		for _, f := range allFaults() {
			all[f.provider]++
			t.Run(f.provider+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				report := f.diagnosed(t)
				mu.Lock()
				defer mu.Unlock()
				printed.add(report)
				if !t.Failed() {
					found[f.provider]++
					if f.class != "" {
						classes[f.class] = true
					}
				}
			})
		}
	})
	t.Run("commands", func(t *testing.T) { printed.check(t, builtKubectl()) })
	total, sum := 0, 0
	for _, provider := range []string{"aws", "azure", "gcp", "generic"} {
		t.Logf("recall %-8s %3d of %3d faults", provider, found[provider], all[provider])
		total, sum = total+found[provider], sum+all[provider]
	}
	t.Logf("recall %-8s %3d of %3d faults, %d error classes: %s", "all", total, sum, len(classes), strings.Join(sorted(classes), " "))
}

func (f *fault) diagnosed(t *testing.T) *doctor.Report {
	w := newEnvironment(t, f.provider)
	f.spoil(w)
	report := w.run()
	first := report.Worst()
	if first == nil || first.Check != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) {
		t.Fatalf("want %s %s %q:\n%s", f.check, f.class, f.says, report)
	}
	// A token works beside a clock that is off.
	want := doctor.Fail
	if report.Of("exchange").Result == doctor.Pass && slices.Contains(overridden(), first.Check) {
		want = doctor.Warn
	}
	if first.Result != want || first.Remedy.Text == "" && len(first.Remedy.Commands) == 0 {
		t.Errorf("not %s, or no remedy: %+v", want, first)
	}
	if remedy := fmt.Sprint(first.Remedy.Text, first.Remedy.Commands); first.Class != "RightMissing" && widening().MatchString(remedy) {
		t.Errorf("the remedy makes a service trust or permit more: %s", remedy)
	}
	readable(t, report)
	return report
}

// widening finds a grant. Only the rights of the person who runs the doctor (K1) may be in a remedy.
func widening() *regexp.Regexp {
	return regexp.MustCompile(`(?i)role assignment|policy-binding|access-entry|attach|grant|allow |trust policy|roles/|federated-credential (create|update)|assign`)
}

// overridden are the checks that the exchange proves wrong.
func overridden() (ids []string) {
	for _, c := range identity.Checks() {
		if c.OverriddenBy == "exchange" {
			ids = append(ids, c.ID)
		}
	}
	return ids
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
		if f.Result != doctor.Skip && !strings.ContainsAny(f.Message[len(f.Message)-1:], ".?") && !strings.Contains(f.Message, ": http") {
			t.Errorf("%s: no sentence: %q", f.Check, f.Message)
		}
	}
	if code := report.ExitCode(); (code == doctor.ExitFail) != (report.Result == doctor.Fail) {
		t.Errorf("exit code %d", code)
	}
	encoded, err := json.Marshal(report)
	if all := fmt.Sprint(text, report.Text(doctor.TextOptions{Verbose: true}), report.Condition("Ready", 1), string(encoded)); err != nil || strings.Contains(all, "eyJhbGci") {
		t.Errorf("a token is in the report: %v\n%s", err, all)
	}
}

// hasValue reports a line that a long value, a quoted command or a comparison keeps from being wrapped.
func hasValue(line string) bool {
	const long = 40
	return strings.ContainsAny(line, `'"`) || strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     ") ||
		slices.ContainsFunc(strings.Fields(line), func(word string) bool { return len(word) > long })
}

func sorted(set map[string]bool) (list []string) {
	for s := range set {
		list = append(list, s)
	}
	sort.Strings(list)
	return list
}

func allFaults() (all []fault) {
	for _, list := range [][]fault{tokenFaults(), issuerFaults(), kubernetesFaults(), awsFaults(), azureFaults(), gcpFaults(), podFaults()} {
		all = append(all, list...)
	}
	return all
}
