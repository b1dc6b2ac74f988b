package doctor

import (
	"slices"
	"strings"
	"time"
)

// Report holds the findings of all checks in their order. It encodes as JSON
// and YAML under stable names.
type Report struct {
	Subject string `json:"subject"`
	Cluster string `json:"cluster,omitempty"`
	Result  Result `json:"result"` // Pass, Warn, Unknown or Fail
	// Headline is the ID of the check to act on first. Empty if nothing is
	// wrong.
	Headline string `json:"headline,omitempty"`
	// the first Event of the headline's finding is the newest fact; chains
	// alone have Events
	ByEvent  bool      `json:"byEvent,omitempty"`
	Findings []Finding `json:"findings"` // one for each check

	decisive string
	chain    bool
}

// Exit codes of Report.ExitCode.
const (
	ExitPass      = 0
	ExitFail      = 1
	ExitUsage     = 2 // of a command line, never of a Report
	ExitUncertain = 3
)

// ExitCode returns 0 if all checks passed or were skipped, 1 if one failed, 3
// if there are only warnings and unknowns.
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
func (r *Report) Worst() *Finding { return r.Of(r.Headline) }

// Summary returns the headline as a finding, in the words of the Event if one
// is the newest fact. The zero value means that nothing is wrong.
func (r *Report) Summary() Finding {
	switch f := r.Worst(); {
	case f == nil:
		return Finding{}
	case r.ByEvent:
		e := f.Events[0]
		return Finding{Check: f.Check, Result: Fail, Class: e.Reason, Message: e.Object + " says: " + e.Message,
			Remedy: e.Remedy}
	default:
		return *f
	}
}

// verdict takes the first finding of the lowest rank. A Warning Event up to
// that part replaces it, if it is newer than the finding and than the last
// success of its own part. Parts are in the order of their causes, so Events of
// later parts follow from the first ✗.
func (r *Report) verdict() {
	var event *Event
	about, since, lowest := "", time.Time{}, r.rank(&Finding{Result: Pass})
	r.Result = Pass
	for i := range r.Findings {
		f := &r.Findings[i]
		if e := f.newest(); e != nil && r.Result != Fail && (event == nil || e.Time.After(event.Time)) {
			event, about = e, f.Check
		}
		if rank := r.rank(f); rank < lowest {
			r.Result, r.Headline, since, lowest = f.Result, f.Check, f.Since, rank
		}
	}
	if event != nil && (r.Result != Fail || !since.After(event.Time)) {
		r.Result, r.Headline, r.ByEvent = Fail, about, true
	}
}

// rank puts a decisive check that could not look before warnings, because
// nothing is proved. If it passed, a warning comes before what could not be
// examined, and what was cut short comes last.
func (r *Report) rank(f *Finding) int {
	return slices.Index([]bool{f.Result == Fail, f.Result == Unknown && f.Check == r.decisive && !f.cutShort,
		f.Result == Warn, f.Result == Unknown && !f.cutShort, f.Result == Unknown, true}, true)
}

// also lists the other checks that did not pass: "✗ exchange, ! issuer".
func (r *Report) also() string {
	var all []string
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Check != r.Headline && f.Result != Pass && f.Result != Skip {
			all = append(all, sign(f.Result)+" "+f.Check)
		}
	}
	return strings.Join(all, ", ")
}
