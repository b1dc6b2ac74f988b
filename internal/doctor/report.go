package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Report holds the findings of all checks in their order. It encodes as JSON and YAML under stable names.
type Report struct {
	Subject string `json:"subject"`
	Cluster string `json:"cluster,omitempty"`
	// Result is Pass, Warn, Unknown or Fail.
	Result Result `json:"result"`
	// Headline is the ID of the check to act on first. Empty if nothing is wrong.
	Headline string `json:"headline,omitempty"`
	// Findings has one entry for each check.
	Findings []Finding `json:"findings"`

	decisive string
}

// Exit codes of Report.ExitCode.
const (
	ExitPass      = 0
	ExitFail      = 1
	ExitUsage     = 2 // of a command line, never of a Report
	ExitUncertain = 3
)

// ExitCode returns 0 if all checks passed or were skipped, 1 if one failed, 3 if there are only warnings and unknowns.
func (r *Report) ExitCode() int {
	switch r.Result {
	case Fail:
		return ExitFail
	case Warn, Unknown:
		return ExitUncertain
	case Pass, Skip:
	}
	return ExitPass
}

// Of returns the finding of a check, nil if there is none.
func (r *Report) Of(check string) *Finding {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == check })
	if i < 0 {
		return nil
	}
	return &r.Findings[i]
}

// Worst returns the finding to act on first, nil if nothing is wrong.
func (r *Report) Worst() *Finding {
	if r.Headline == "" {
		return nil
	}
	return r.Of(r.Headline)
}

// verdict takes the first failure. Without one, a decisive check that could not look comes before warnings, because nothing is
// proved; if it passed, a warning comes before what could not be examined.
func (r *Report) verdict() (Result, string) {
	first := func(match func(f *Finding) bool) string {
		for i := range r.Findings {
			if match(&r.Findings[i]) {
				return r.Findings[i].Check
			}
		}
		return ""
	}
	is := func(result Result) func(*Finding) bool {
		return func(f *Finding) bool { return f.Result == result && !f.cutShort }
	}
	if id := first(is(Fail)); id != "" {
		return Fail, id
	}
	if id := first(func(f *Finding) bool { return f.Check == r.decisive && is(Unknown)(f) }); id != "" {
		return Unknown, id
	}
	for _, result := range []Result{Warn, Unknown} {
		if id := first(is(result)); id != "" {
			return result, id
		}
	}
	if id := first(func(f *Finding) bool { return f.cutShort }); id != "" {
		return Unknown, id
	}
	return Pass, ""
}

// counts says how many findings there are, without that of one check: "2 warnings; 14 passed, 6 skipped".
func (r *Report) counts(without string) (doubtful, fine string) {
	n := map[Result]int{}
	for i := range r.Findings {
		if r.Findings[i].Check != without {
			n[r.Findings[i].Result]++
		}
	}
	var doubts, rest []string
	for _, kind := range []struct {
		list        *[]string
		result      Result
		one, plural string
	}{
		{&doubts, Fail, "failure", "failures"}, {&doubts, Warn, "warning", "warnings"}, {&doubts, Unknown, "unknown", "unknown"},
		{&rest, Pass, "passed", "passed"}, {&rest, Skip, "skipped", "skipped"},
	} {
		switch count := n[kind.result]; count {
		case 0:
		case 1:
			*kind.list = append(*kind.list, "1 "+kind.one)
		default:
			*kind.list = append(*kind.list, fmt.Sprintf("%d %s", count, kind.plural))
		}
	}
	return strings.Join(doubts, ", "), strings.Join(rest, ", ")
}
