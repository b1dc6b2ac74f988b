package doctor_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// fault is something that is wrong in a world in which all else fits.
type fault struct {
	name     string
	provider string
	spoil    func(w *world)
	// check and class are those of the finding to act on first.
	check, class string
	// says is a part of its message.
	says string
}

// Every fault is named: the finding that the report says to begin with is of the right check and class. The recall is of this
// list; faults that no fake can show are not in it.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	found, all, classes := map[string]int{}, map[string]int{}, map[string]bool{}
	t.Run("each", func(t *testing.T) {
		for _, f := range allFaults() {
			all[f.provider]++
			t.Run(f.provider+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				f.diagnosed(t)
				mu.Lock()
				defer mu.Unlock()
				if !t.Failed() {
					found[f.provider]++
					if f.class != "" {
						classes[f.class] = true
					}
				}
			})
		}
	})
	total, sum := 0, 0
	for _, provider := range []string{"aws", "azure", "gcp", "generic"} {
		t.Logf("recall %-8s %3d of %3d faults", provider, found[provider], all[provider])
		total, sum = total+found[provider], sum+all[provider]
	}
	t.Logf("recall %-8s %3d of %3d faults, %d error classes: %s", "all", total, sum, len(classes), strings.Join(sorted(classes), " "))
}

func (f *fault) diagnosed(t *testing.T) {
	w := newWorld(t, f.provider)
	f.spoil(w)
	report := w.run()
	first := report.Worst()
	if first == nil || first.ID != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) {
		t.Fatalf("begins with %+v instead of %s %s %q:\n%s", first, f.check, f.class, f.says, report)
	}
	// A token that lives shorter than was asked for works, until somebody relies on the rest; so does one beside a clock that is off.
	want := doctor.Fail
	if f.name == "lifetime shortened" || strings.HasPrefix(f.name, "clock skew") && report.Of("exchange").Result == doctor.Pass {
		want = doctor.Warn
	}
	if first.Result != want || first.Remedy == "" {
		t.Errorf("not %s, or no remedy: %+v", want, first)
	}
	if slices.Contains([]string{"source", "token-format", "claims", "audience", "identifiers", "service-account", "pod", "token-request"}, first.ID) {
		pasteable(t, first)
	}
	if report.ExitCode() == doctor.ExitPass || report.Condition("Ready", 1).Status == "True" && first.Result == doctor.Fail {
		t.Errorf("exit code %d", report.ExitCode())
	}
	standing(t, report)
	forReaders(t, report)
	correctsFirst(t, report)
	encoded, err := json.Marshal(report)
	if text := fmt.Sprint(report, report.Condition("Ready", 1), string(encoded)); err != nil || strings.Contains(text, "eyJ") {
		t.Errorf("a token is in the report: %v\n%s", err, text)
	}
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
