package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Check examines one thing.
type Check struct {
	// ID is the stable name, such as "trust-rule".
	ID string
	// Title says in a few words what the check examines.
	Title string
	// Needs are the IDs of earlier checks. If one of them failed, or was skipped after a failure, this check is skipped.
	Needs []string
	// OverriddenBy is the ID of a later check that proves more, such as the real exchange. If that check passes, a failure of this
	// one becomes a warning. If both fail, this one explains the failure, and the later one repeats neither causes nor remedy.
	OverriddenBy string
	// Explains are the classes of the overriding check's failure that a failure of this check explains. A failure of another class is
	// a specific answer: it outranks this one, which becomes a warning. Nil explains every failure.
	Explains []string
	// Timeout bounds Run. Zero means DefaultTimeout.
	Timeout time.Duration
	// Run examines. It honours ctx. A panic becomes an Unknown finding.
	Run func(ctx context.Context) Finding
}

// DefaultTimeout bounds a check that sets no Timeout.
const DefaultTimeout = 10 * time.Second

// Result is the outcome of a check.
type Result string

const (
	// Pass means that the check examined its object and found nothing wrong.
	Pass Result = "PASS"
	// Warn means that something may be wrong, or will be soon.
	Warn Result = "WARN"
	// Fail means that the credential cannot be obtained, or is not the intended one.
	Fail Result = "FAIL"
	// Skip means that there was nothing to examine, or that a needed check failed.
	Skip Result = "SKIP"
	// Unknown means that the check could not look. It never counts as Pass.
	Unknown Result = "UNKNOWN"
)

// Finding is the outcome of one check. A check sets Result and Message, and what it knows of the rest.
type Finding struct {
	// Check is the ID of the check. Run sets it.
	Check string `json:"check"`
	// Title is that of the check. Run sets it.
	Title  string `json:"title"`
	Result Result `json:"result"`
	// Class is the reason of the finding, such as "IssuerNotTrusted". docs/doctor.md lists the reasons.
	Class string `json:"class,omitempty"`
	// Message says in one sentence what was found.
	Message string `json:"message"`
	// Observed is what was found where Expected should be. Both or neither are set in a comparison.
	Observed *Value `json:"observed,omitempty"`
	Expected *Value `json:"expected,omitempty"`
	// Details are further values, for --verbose and JSON.
	Details []Value `json:"details,omitempty"`
	// Causes are the possible causes, the most frequent one first. Empty if Message is the cause.
	Causes []string `json:"causes,omitempty"`
	// Remedy says what to do.
	Remedy Remedy `json:"remedy,omitzero"`
	// StatusCode, Code and RequestID are those of a service's answer.
	StatusCode int    `json:"statusCode,omitempty"`
	Code       string `json:"code,omitempty"`
	RequestID  string `json:"requestID,omitempty"`
	Fact
	// Because is the ID of the failed check that explains this finding. Run sets it.
	Because string `json:"because,omitempty"`

	whole    bool // the line of a chain is not shortened
	cutShort bool // the check did not run: the examination ended before, or the caller skips it
}

// Event is a Warning Event of the object of a part.
type Event struct {
	// Time is when the Event was seen last.
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	// Object is the kind and the name of the object.
	Object string `json:"object"`
	// Remedy is the action that the Event names, or a command that looks.
	Remedy Remedy `json:"remedy,omitzero"`
}

// Fact is what a part of a chain says of itself, beside its Finding.
type Fact struct {
	// Since is when the condition or the time that the Finding quotes began. The zero value of a failure is an object that is missing: an Event
	// may say why. Now is an answer that the doctor itself got.
	Since time.Time `json:"since,omitzero"`
	// Worked is the last time at which the part is known to have worked. An Event before it says nothing any more.
	Worked time.Time `json:"worked,omitzero"`
	// Events are the Warning Events of the part's object, the newest first.
	Events []Event `json:"events,omitempty"`
}

// newest returns the newest Event after the last success, nil if there is none.
func (f *Fact) newest() *Event {
	if len(f.Events) == 0 || !f.Events[0].Time.After(f.Worked) {
		return nil
	}
	return &f.Events[0]
}

// Value is a value with its name, such as {"token", "system:serviceaccount:tenant-a:app"}.
type Value struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Remedy is one way to correct what is wrong, and the alternative to it. The zero value means that none is known.
type Remedy struct {
	// Text is a sentence. With Commands it introduces them: "If the role is wrong:".
	Text string `json:"text,omitempty"`
	// Option is the auth.Error.Option of the error that Text is from. A program adds its own setting to Text.
	Option string `json:"-"`
	// Commands are shell commands or lines of a manifest. Words in capitals are for the reader to fill in.
	Commands []string `json:"commands,omitempty"`
	// Or is the alternative, which makes a cloud trust more.
	Or *Policy `json:"or,omitempty"`
}

// Policy is a change to what a cloud trusts. A report shows its Commands only with Examination.ShowPolicy.
type Policy struct {
	// When says when the change is right: "If tenant-a is meant to have it".
	When     string   `json:"when"`
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

// Failed returns the finding of a check that found something wrong. class may be empty.
func Failed(class string, remedy Remedy, format string, args ...any) Finding {
	return Finding{Result: Fail, Class: class, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// As returns the finding with another result.
func (f Finding) As(r Result) Finding {
	f.Result = r
	return f
}

// Whole returns the finding for a chain that breaks its line instead of shortening it: a reader decides by all of it.
func (f Finding) Whole() Finding {
	f.whole = true
	return f
}

// Compare returns the finding with the value that was observed and the one that was expected.
func (f Finding) Compare(observedName, observed, expectedName, expected string) Finding {
	f.Observed, f.Expected = &Value{observedName, observed}, &Value{expectedName, expected}
	return f
}

// Detail returns the finding with another value for --verbose.
func (f Finding) Detail(name, text string) Finding {
	f.Details = append(f.Details[:len(f.Details):len(f.Details)], Value{name, text})
	return f
}

// With returns the finding with the time of its fact, the last success of its part, and its Events in the order of their age.
func (f Finding) With(since, worked time.Time, events ...Event) Finding {
	slices.SortStableFunc(events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	f.Fact = Fact{Since: since, Worked: worked, Events: events}
	return f
}

// Do returns the Remedy of a sentence and commands.
func Do(text string, commands ...string) Remedy { return Remedy{Text: text, Commands: commands} }

// OrTrust returns the remedy with a change to what a cloud trusts as the alternative.
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
