package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// The headline is the first failure of the chain, or a newer Warning Event of a part up to there.
func TestChainHeadline(t *testing.T) {
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	event := func(reason string, minutes int) doctor.Event {
		return doctor.Event{Time: ago(minutes), Reason: reason, Message: "said so", Object: "Secret x", Remedy: doctor.Do("Do "+reason+".", "kubectl get "+reason)}
	}
	well, failed := doctor.Passed("well"), doctor.Failed("Wrong", doctor.Do("Mend it."), "it is wrong")
	for name, tc := range map[string]struct {
		agent, credential, lease doctor.Finding
		want                     string
	}{
		"all well":                             {well, well, well, "PASS "},
		"the credential was not tried":         {well, doctor.Unclear(doctor.Remedy{}, "no address"), well, "UNKNOWN credential"},
		"a part that could not look":           {well, well, doctor.Unclear(doctor.Remedy{}, "no right"), "UNKNOWN lease: no right"},
		"the first failure":                    {well, failed.With(now, time.Time{}), failed.With(now, time.Time{}), "FAIL credential: it is wrong"},
		"an Event after the last success":      {well.With(time.Time{}, ago(5), event("Refused", 1)), well, well, "FAIL agent: | Secret x says: said so"},
		"an Event before the last success":     {well.With(time.Time{}, ago(1), event("Refused", 5)), well, well, "PASS "},
		"an Event newer than the failure":      {well.With(time.Time{}, ago(9), event("Refused", 1)), well, failed.With(ago(5), time.Time{}), "FAIL agent: | Secret x says: said so"},
		"an Event older than the failure":      {well.With(time.Time{}, ago(9), event("Refused", 7)), well, failed.With(ago(5), time.Time{}), "FAIL lease: it is wrong"},
		"an Event explains what is missing":    {well.With(time.Time{}, ago(9), event("Refused", 7)), failed, well, "FAIL agent: | Secret x says: said so"},
		"an Event behind the first failure":    {well, failed.With(ago(5), time.Time{}), well.With(time.Time{}, time.Time{}, event("Refused", 1)), "FAIL credential: it is wrong"},
		"the newest of two Events of one part": {well.With(time.Time{}, time.Time{}, event("Old", 8), event("New", 2)), well, well, "FAIL agent: | Secret x says: said so"},
	} {
		t.Run(name, func(t *testing.T) {
			part := func(id string, f doctor.Finding) doctor.Check {
				return doctor.Check{ID: id, Title: id, Run: func(context.Context) doctor.Finding { return f }}
			}
			r := doctor.Run(t.Context(), doctor.Examination{Subject: "it", Chain: true, Decisive: "credential",
				Checks: []doctor.Check{part("agent", tc.agent), part("credential", tc.credential), part("lease", tc.lease)}})
			result, said, _ := strings.Cut(tc.want, " ")
			check, message, _ := strings.Cut(said, ": ")
			if string(r.Result) != result || r.Headline != check || !strings.Contains(r.String(), message) {
				t.Errorf("want %q:\n%s %s\n%s", tc.want, r.Result, r.Headline, r)
			}
			if r.ByEvent && (r.Said().Remedy.Text != "Do "+r.Worst().Events[0].Reason+"." || strings.HasPrefix(name, "the newest") && r.Worst().Events[0].Reason != "New") {
				t.Errorf("action %+v of %+v", r.Said(), r.Worst().Events)
			}
		})
	}
}

// A report shortens evidence, to the width of the screen too. It never cuts a remedy: a pasted part of a command would do something else.
func TestTextCutsNoRemedy(t *testing.T) {
	long, command := strings.TrimSpace(strings.Repeat("evidence ", 120)), "kubectl get "+strings.Repeat("a", 50)
	f := doctor.Failed("Wrong", doctor.Do("Run:", slices.Repeat([]string{command}, 40)...), "%s", long).Compare("a", "1", "b", "2").
		With(time.Now(), time.Time{}, doctor.Event{Time: time.Now().Add(-time.Hour), Reason: "R", Message: long})
	f.Causes = slices.Repeat([]string{"one of many causes"}, 9)
	for name, isChain := range map[string]bool{"a chain": true, "checks": false} {
		t.Run(name, func(t *testing.T) {
			r := doctor.Run(t.Context(), doctor.Examination{Subject: "it", Chain: isChain, Decisive: "a", Checks: []doctor.Check{fixed("a", f)}})
			text, verbose := r.String(), r.Text(doctor.TextOptions{Verbose: true})
			if strings.Count(text, command) != 40 || strings.Count(text, "evidence") > 80 || strings.Count(text, "causes") > 1 {
				t.Errorf("%s", text)
			}
			if strings.Count(verbose, command) != 40 || strings.Count(verbose, "evidence") < 300 || strings.Count(verbose, "causes") != 9 {
				t.Errorf("--verbose: %s", verbose)
			}
			for line := range strings.Lines(text) {
				if utf8.RuneCountInString(line) > 81 {
					t.Errorf("too wide: %q", line)
				}
			}
		})
	}
}
