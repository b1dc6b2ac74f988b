package diagnose_test

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/diagnose"
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

// Every fault is named: the finding that the report says to begin with is of the right check and class.
func TestFaults(t *testing.T) {
	type score struct{ found, all int }
	recall := map[string]*score{}
	classes := map[string]bool{}
	for _, f := range allFaults() {
		if recall[f.provider] == nil {
			recall[f.provider] = &score{}
		}
		recall[f.provider].all++
		named := t.Run(f.provider+"/"+f.name, func(t *testing.T) {
			w := newWorld(t, f.provider)
			f.spoil(w)
			report := w.run()
			first := report.Worst()
			if first == nil || first.ID != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) {
				t.Fatalf("begins with %+v instead of %s %s %q:\n%s", first, f.check, f.class, f.says, report)
			}
			if first.Result == diagnose.Unknown || first.Remedy == "" {
				t.Errorf("no verdict, or no remedy: %+v", first)
			}
			if text := fmt.Sprint(report, report.Condition("Ready", 1)); strings.Contains(text, "eyJ") {
				t.Errorf("a token is in the report:\n%s", text)
			}
		})
		if named {
			recall[f.provider].found++
			classes[f.class] = true
		}
	}
	found, all := 0, 0
	for _, provider := range []string{"aws", "azure", "gcp", "generic"} {
		if s := recall[provider]; s != nil {
			t.Logf("recall %-8s %3d of %3d faults", provider, s.found, s.all)
			found, all = found+s.found, all+s.all
		}
	}
	t.Logf("recall %-8s %3d of %3d faults, %d error classes: %s", "all", found, all, len(classes), strings.Join(sorted(classes), " "))
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
