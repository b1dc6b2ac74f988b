package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth/cause"
)

// Check examines one thing.
type Check struct {
	ID    string   // the stable name, such as "trust-rule"
	Title string   // what the check examines, in a few words
	Needs []string // IDs of earlier checks; if one of them failed, or was skipped after a failure, this one is skipped
	// OverriddenBy is the ID of a later check that proves more, such as the
	// real exchange. If that check passes, a failure of this one becomes a
	// warning. If both fail, this one explains the failure, and the later one
	// repeats neither causes nor remedy.
	OverriddenBy string
	// Explains are the classes of the overriding check's failure that a failure
	// of this check explains. A failure of another class outranks this one. Nil
	// explains every failure.
	Explains []cause.Reason
	Timeout  time.Duration // bounds Run; zero means DefaultTimeout
	// Run examines. It honours ctx. A panic becomes an Unknown finding.
	Run func(ctx context.Context) Finding
}

// DefaultTimeout bounds a check that sets no Timeout.
const DefaultTimeout = 10 * time.Second

// Result is the outcome of a check.
type Result string

// Results of checks.
const (
	Pass    Result = "PASS"    // the check examined its object and found nothing wrong
	Warn    Result = "WARN"    // something may be wrong, or will be soon
	Fail    Result = "FAIL"    // the credential cannot be obtained, or is not the intended one
	Skip    Result = "SKIP"    // there was nothing to examine, or a needed check failed
	Unknown Result = "UNKNOWN" // the check could not look, which never counts as Pass
)

// Finding is the outcome of one check. A check sets Result and Message, and
// what it knows of the rest.
type Finding struct {
	Check   string `json:"check"` // the ID; Run sets it, and Title
	Title   string `json:"title"`
	Result  Result `json:"result"`
	Class   string `json:"class,omitempty"` // the reason, such as "IssuerNotTrusted"; docs/doctor.md lists them
	Message string `json:"message"`         // one sentence
	// Observed is the value found in place of Expected. Both or neither are set
	// in a comparison.
	Observed   *Value   `json:"observed,omitempty"`
	Expected   *Value   `json:"expected,omitempty"`
	Details    []Value  `json:"details,omitempty"` // for --verbose and JSON
	Causes     []string `json:"causes,omitempty"`  // the most frequent one first; none if Message is the cause
	Remedy     Remedy   `json:"remedy,omitzero"`
	StatusCode int      `json:"statusCode,omitempty"` // of a service's answer, as the next two
	Code       string   `json:"code,omitempty"`
	RequestID  string   `json:"requestID,omitempty"`
	Fact

	whole    bool // the line of a chain is not shortened
	cutShort bool // the check did not run: the examination ended before
}

// Event is a Warning Event of the object of a part.
type Event struct {
	Time    time.Time `json:"time"` // when it was seen last
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Object  string    `json:"object"`          // kind and name
	Remedy  Remedy    `json:"remedy,omitzero"` // the action that the Event names, or a command that looks
}

// Fact is a detail that a part of a chain reports beside its Finding.
type Fact struct {
	// Since is when the condition or the time that the Finding quotes began.
	// The zero value of a failure is an object that is missing: an Event may
	// say why. Now is an answer that the doctor itself got.
	Since  time.Time `json:"since,omitzero"`
	Worked time.Time `json:"worked,omitzero"`  // when the part last worked; an Event before it says nothing any more
	Events []Event   `json:"events,omitempty"` // Warning Events of the part's object, the newest first
}

// newest returns the newest Event after the last success, nil if there is none.
func (f *Fact) newest() *Event {
	if len(f.Events) == 0 || !f.Events[0].Time.After(f.Worked) {
		return nil
	}
	return &f.Events[0]
}

// Value is a value with its name, such as {"token",
// "system:serviceaccount:tenant-a:app"}.
type Value struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Remedy is one way to correct what is wrong, and the alternative to it. The
// zero value means that none is known.
type Remedy struct {
	Text string `json:"text,omitempty"` // a sentence; it introduces Commands: "If the role is wrong:"
	// Option is the auth.Error.Option of the error that Text is from. A program
	// adds its own setting to Text.
	Option string `json:"-"`
	// Commands are shell commands or lines of a manifest. Words in capitals are
	// for the reader to fill in.
	Commands []string `json:"commands,omitempty"`
	Or       *Policy  `json:"or,omitempty"` // the alternative, which makes a cloud trust more
}

// Policy is a change to what a cloud trusts. A report shows its Commands only
// with Examination.ShowPolicy.
type Policy struct {
	When     string   `json:"when"` // "If tenant-a is meant to have it"
	Commands []string `json:"commands,omitempty"`
}

// Passed returns the finding of a check that found nothing wrong.
func Passed(format string, args ...any) Finding {
	return Finding{Result: Pass, Message: fmt.Sprintf(format, args...)}
}

// Skipped returns the finding of a check that had nothing to examine.
func Skipped(format string, args ...any) Finding {
	return Finding{Result: Skip, Message: fmt.Sprintf(format, args...)}
}

// Unclear returns the finding of a check that could not look.
func Unclear(remedy Remedy, format string, args ...any) Finding {
	return Finding{Result: Unknown, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// Failed returns the finding of a check that found something wrong. class may
// be empty.
func Failed[C ~string](class C, remedy Remedy, format string, args ...any) Finding {
	return Finding{Result: Fail, Class: string(class), Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// As returns the finding with another result.
func (f Finding) As(r Result) Finding {
	f.Result = r
	return f
}

// Whole returns the finding for a chain that breaks its line instead of
// shortening it: a reader decides by all of it.
func (f Finding) Whole() Finding {
	f.whole = true
	return f
}

// Compare returns the finding with the value that was observed and the one that
// was expected.
func (f Finding) Compare(observedName, observed, expectedName, expected string) Finding {
	f.Observed, f.Expected = &Value{observedName, observed}, &Value{expectedName, expected}
	return f
}

// Detail returns the finding with another value for --verbose.
func (f Finding) Detail(name, text string) Finding {
	f.Details = append(f.Details[:len(f.Details):len(f.Details)], Value{name, text})
	return f
}

// With returns the finding with the time of its fact, the last success of its
// part, and its Events in the order of their age.
func (f Finding) With(since, worked time.Time, events ...Event) Finding {
	slices.SortStableFunc(events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	f.Fact = Fact{Since: since, Worked: worked, Events: events}
	return f
}

// Do returns the Remedy of a sentence and commands.
func Do(text string, commands ...string) Remedy { return Remedy{Text: text, Commands: commands} }

// OrTrust returns the remedy with a change to what a cloud trusts as the
// alternative.
func (r Remedy) OrTrust(when string, commands ...string) Remedy {
	r.Or = &Policy{When: when, Commands: commands}
	return r
}

// withoutPolicy keeps the condition of the alternative alone.
func (r Remedy) withoutPolicy() Remedy {
	if r.Or != nil {
		r.Or = &Policy{When: r.Or.When}
	}
	return r
}
