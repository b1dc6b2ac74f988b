package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

// Result is the outcome of a check.
type Result string

const (
	// Pass means that the check looked and found nothing wrong.
	Pass Result = "PASS"
	// Warn means that something may be wrong, or soon will be.
	Warn Result = "WARN"
	// Fail means that credentials cannot be had, or not those that are meant.
	Fail Result = "FAIL"
	// Skip means that there was nothing to look at, or that a check that this one needs has failed.
	Skip Result = "SKIP"
	// Unknown means that the check could not look. It never counts as Pass.
	Unknown Result = "UNKNOWN"
)

// Field is something observed beside what was expected.
type Field struct {
	// Name is that of a claim, an annotation, a variable.
	Name string `json:"name"`
	// Observed is what was found.
	Observed string `json:"observed"`
	// Expected is what it should be. Empty: nothing certain is known.
	Expected string `json:"expected,omitempty"`
	// Differs marks the field that is wrong.
	Differs bool `json:"differs,omitempty"`
}

// Finding is what a check has found.
type Finding struct {
	// Number is that of the check, from 1 to 25.
	Number int `json:"number"`
	// ID is the stable name of the check, such as "audience".
	ID string `json:"id"`
	// Result is the outcome.
	Result Result `json:"result"`
	// Class is the error class that the finding is evidence of, such as "A4". Those of RunBootstrap begin with B, those of
	// RunEnrolment with O, those of an exchange that got no usable answer with N; docs/doctor.md lists them. Empty for those
	// without a failure.
	Class string `json:"class,omitempty"`
	// Message says in one sentence what was found.
	Message string `json:"message"`
	// Fields show what was observed, and what was expected if that is known.
	Fields []Field `json:"fields,omitempty"`
	// Causes are the causes of a refusal, the most frequent one first.
	Causes []string `json:"causes,omitempty"`
	// Remedy is a command to run, a manifest to apply, or a sentence that says what to change.
	Remedy string `json:"remedy,omitempty"`
	// Needs is the number of the check that has to pass before, if that is why this one was skipped.
	Needs int `json:"needs,omitempty"`
	// StatusCode, Code and RequestID are those of a service's answer.
	StatusCode int    `json:"statusCode,omitempty"`
	Code       string `json:"code,omitempty"`
	RequestID  string `json:"requestID,omitempty"`

	// shared is the remedy for a condition, which people see who may not see all that the cloud holds. Empty: Remedy.
	shared string
	// nearly is the correction of a setting of the cloud that nearly admits the token.
	nearly string
	// unasked says that it is unknown because nobody was given who could tell. An exchange that works says enough then.
	unasked bool
	// tentative is a failure that need not stand in the way of the exchange, which is tried all the same.
	tentative bool
	// elsewhere reports that the kubeconfig is of another cluster.
	elsewhere bool
}

// Report holds the findings of all checks in their order. It encodes as JSON.
type Report struct {
	// Provider is the provider's name. Empty for what has none: a bootstrap discovery, an enrolment.
	Provider string `json:"provider"`
	// Target is what was examined where there is no provider.
	Target string `json:"target,omitempty"`
	// ServiceAccount is namespace/name. Empty: the program's own identity.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Findings has one entry for each check.
	Findings []Finding `json:"findings"`
}

// Exit codes of Report.ExitCode.
const (
	ExitPass      = 0
	ExitFail      = 1
	ExitUsage     = 2 // never of a Report
	ExitUncertain = 3
)

// ExitCode is 0 if all checks have passed or been skipped, 1 if one has failed, 3 if there are warnings or unknowns only.
func (r *Report) ExitCode() int {
	code := ExitPass
	for i := range r.Findings {
		switch r.Findings[i].Result {
		case Fail:
			return ExitFail
		case Warn, Unknown:
			code = ExitUncertain
		case Pass, Skip:
		}
	}
	return code
}

// Worst returns the finding to act on first: the first failure, or else an exchange of which is not known whether it works, or
// else the first warning, or else the first unknown. It is nil if there is none of them.
func (r *Report) Worst() *Finding {
	if f := r.first(Fail); f != nil {
		return f
	}
	blind := r.first(Unknown)
	if f := r.Of("exchange"); f != nil && f.Result == Unknown {
		if blind.Message == f.Message { // the same has kept an earlier check from looking
			return blind
		}
		return f
	}
	if f := r.first(Warn); f != nil {
		return f
	}
	return blind
}

func (r *Report) first(result Result) *Finding {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Result == result })
	if i < 0 {
		return nil
	}
	return &r.Findings[i]
}

// Of returns the finding of a check by its stable name, nil if there is none.
func (r *Report) Of(id string) *Finding {
	for i := range r.Findings {
		if r.Findings[i].ID == id {
			return &r.Findings[i]
		}
	}
	return nil
}

// String is the report for people: one line a check, with more below what is not as it should be.
func (r *Report) String() string {
	var b strings.Builder
	counts := map[Result]int{}
	width := 15
	for i := range r.Findings {
		width = max(width, len(r.Findings[i].ID))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		counts[f.Result]++
		f.print(&b, width)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d warnings, %d unknown, %d skipped\n",
		counts[Pass], counts[Fail], counts[Warn], counts[Unknown], counts[Skip])
	if w := r.Worst(); w != nil {
		if w.Result != Fail {
			b.WriteString("Nothing has failed. ")
		}
		fmt.Fprintf(&b, "Begin with check %d (%s): %s\n", w.Number, w.ID, clean(w.Message))
	}
	return b.String()
}

func (f Finding) print(b *strings.Builder, width int) {
	f = f.printable()
	fmt.Fprintf(b, "%2d %-7s %-*s %s", f.Number, f.Result, width, f.ID, f.Message)
	if f.Class != "" {
		fmt.Fprintf(b, " [%s]", f.Class)
	}
	b.WriteByte('\n')
	indent := strings.Repeat(" ", width+12)
	for _, field := range f.Fields {
		if f.Result == Pass && !field.Differs {
			continue
		}
		mark := "  "
		if field.Differs {
			mark = "! "
		}
		fmt.Fprintf(b, "%s%s%s: %s\n", indent[2:], mark, field.Name, field.Observed)
		if field.Expected != "" {
			fmt.Fprintf(b, "%s%s  expected %s\n", indent, strings.Repeat(" ", max(0, len(field.Name)-9)), field.Expected)
		}
	}
	for i, cause := range f.Causes {
		fmt.Fprintf(b, "%scause %d: %s\n", indent, i+1, cause)
	}
	lead := "do: "
	for line := range strings.SplitSeq(f.Remedy, "\n") {
		if line != "" {
			fmt.Fprintf(b, "%s%s%s\n", indent, lead, line)
			lead = "    "
		}
	}
}

// refusal is refusal with what is known of this case in the remedy.
func (e *examination) refusal(ctx context.Context, err error) Finding {
	f := refusalFilled(err, func(remedy string) string { return e.filled(ctx, remedy) })
	if changesTrust(f.Class) {
		return e.correctFirst(f)
	}
	return f
}

// refusal turns an error of the library into a finding.
func refusal(err error) Finding {
	return refusalFilled(err, func(remedy string) string { return remedy })
}

func refusalFilled(err error, fill func(remedy string) string) Finding {
	f := Finding{Result: Fail, Message: err.Error()}
	e, ok := asError(err)
	if !ok {
		f.Result = Unknown
		return f
	}
	f.StatusCode, f.Code, f.RequestID = e.StatusCode, e.Code, e.RequestID
	class := classify(e)
	f.Class, f.Causes, f.Remedy = class.ID, class.Causes, inCapitals(e.Remedy)
	if known, ok := classByID(class.ID); ok && known.Remedy != e.Remedy {
		f.Remedy = strings.TrimSpace(f.Remedy + "\n" + fill(known.Remedy)) // what is known of this case, then the command for all
	}
	f.Message = oneLine(e.Message)
	if class.ID != "" {
		f.Message = class.Service + ": " + class.Summary + ": " + f.Message
	}
	// Nobody has judged anything if the service was not reached.
	if class.ID == "" && e.Reason == auth.ErrUnavailable || e.Reason == auth.ErrThrottled {
		f.Result = Unknown
	}
	return f
}
