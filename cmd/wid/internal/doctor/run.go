// Package doctor finds out why something does not work and reports it on one
// screen: what is wrong, on which cluster, and what to do. It is the engine: an
// Examination is an ordered list of checks, which Run performs. The packages
// below it hold the checks.
//
// A report holds no secret that Examination.Secrets names, no JWT, and no
// character that a terminal would interpret.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/redact"
)

const (
	maxTimeout = time.Minute // of an examination that sets no Timeout
	maxValue   = 300         // characters of an observed or expected value and of a detail
)

// Examination is the work that Run performs.
type Examination struct {
	Subject string  // what is examined: "tenant-a/app → aws"
	Cluster string  // "cluster prod (https://10.0.0.1:6443)"; empty: none was asked
	Checks  []Check // in their order; one that others need, or that overrides others, is among them or counts as passed
	// the ID of the check that proves that everything works, whose message is
	// the headline of a healthy report
	Decisive string
	// Chain makes the report a chain: a line for each part, with what the part
	// says of itself. No check of a chain needs another.
	Chain      bool
	Timeout    time.Duration // bounds all checks together; zero means a minute
	ShowPolicy bool          // keeps the commands that make a cloud trust more
	// Secrets returns the secrets that the checks have learned. Run removes
	// them from every text.
	Secrets func() []string
	// Progress is called before each check, on the goroutine of Run.
	Progress func(Check)

	abandoned string // the ID of a check that ignores its context
}

// Run performs the checks one after the other and returns a finding for each.
// When ctx ends or the Timeout expires, the checks that are left are Unknown. A
// check that ignores its context, such as one that waits for a login program,
// is abandoned.
func Run(ctx context.Context, e Examination) *Report {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, maxTimeout))
	defer cancel()
	blocked := map[string]string{} // ID of a check → ID of the failed check behind it
	report := &Report{Subject: e.Subject, Cluster: e.Cluster, decisive: e.Decisive, chain: e.Chain}
	for _, check := range e.Checks {
		f := e.perform(ctx, check, blocked)
		f.Check, f.Title = check.ID, check.Title
		if f.Result == Fail {
			blocked[check.ID] = check.ID
		}
		report.Findings = append(report.Findings, f)
	}
	e.override(report)
	e.clean(report)
	report.verdict()
	return report
}

func (e *Examination) perform(ctx context.Context, check Check, blocked map[string]string) (f Finding) {
	for _, needed := range check.Needs {
		if by := blocked[needed]; by != "" {
			blocked[check.ID] = by
			return Skipped("needs %s", by)
		}
	}
	if why := e.stopped(ctx); why != "" {
		f = Unclear(Remedy{}, "Not examined: %s.", why)
		f.cutShort = true
		return f
	}
	if e.Progress != nil {
		e.Progress(check)
	}
	switch f = e.await(ctx, check); {
	case errors.Is(ctx.Err(), context.Canceled) && f.Result != Pass: // an interrupt gives no verdict
		f = Unclear(Remedy{}, "Interrupted during the check of %s.", check.Title)
	case ctx.Err() != nil && f.Result == Fail:
		f.Result = Unknown
	}
	return f
}

// await gives a check that ignores its context a moment to notice its end.
func (e *Examination) await(ctx context.Context, check Check) Finding {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(check.Timeout, DefaultTimeout))
	defer cancel()
	f, ok, _ := cli.WithGrace(ctx, cli.Grace, func(ctx context.Context) (Finding, error) { return run(ctx, check), nil })
	if !ok {
		e.abandoned = check.ID
		return Unclear(Do("Look at the programs and files of the kubeconfig: a login may wait for input."),
			"There was no answer in time.")
	}
	return f
}

func run(ctx context.Context, check Check) (f Finding) {
	defer func() {
		if p := recover(); p != nil { // the objects are hostile; the value may hold anything
			f = Unclear(Do("report this as a defect of workloadid"), "the check panicked with a %T", p)
		}
	}()
	return check.Run(ctx)
}

// stopped says why no further check runs. Checks share state, so none runs
// beside an abandoned one.
func (e *Examination) stopped(ctx context.Context) string {
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case err != nil:
		return "the timeout expired"
	case e.abandoned != "":
		return e.abandoned + " still waits"
	}
	return ""
}

func (e *Examination) override(report *Report) {
	for i, check := range e.Checks {
		f, by := &report.Findings[i], report.Of(check.OverriddenBy)
		if by == nil || f.Result != Fail {
			continue
		}
		switch by.Result {
		case Pass:
			f.Result = Warn
		case Fail:
			if by.Class != "" && check.Explains != nil && !slices.Contains(check.Explains, cause.Reason(by.Class)) {
				f.Result = Warn
				continue
			}
			by.Causes, by.Remedy = nil, Remedy{}
		case Warn, Skip, Unknown:
		}
	}
}

// clean removes secrets, control characters and unwanted policies.
func (e *Examination) clean(report *Report) {
	var secrets []string
	if e.Secrets != nil {
		secrets = e.Secrets()
	}
	// One printable line of up to 1 KiB, which commands with a policy need. The
	// leading blanks of a manifest stay.
	line := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\t' || !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, redact.Line(s, secrets...))
	}
	// Single blanks, so that no value looks like the next line of a report.
	text := func(s string) string { return strings.Join(strings.FieldsFunc(line(s), isBlank), " ") }
	report.Subject, report.Cluster = text(report.Subject), text(report.Cluster)
	for i := range report.Findings {
		f := &report.Findings[i]
		if !e.ShowPolicy {
			f.Remedy = f.Remedy.withoutPolicy()
			f.Events = each(f.Events, func(e Event) Event { e.Remedy = e.Remedy.withoutPolicy(); return e })
		}
		f.Rewrite(text, line)
	}
}

// isBlank includes letters and symbols that render blank.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("\u2800\u3164\uffa0\u115f\u1160", r)
}

// Rewrite changes the texts and the commands of the finding.
func (f *Finding) Rewrite(text, command func(string) string) {
	value := func(v Value) Value {
		if v = (Value{text(v.Name), text(v.Text)}); utf8.RuneCountInString(v.Text) > maxValue {
			v.Text = string([]rune(v.Text)[:maxValue]) + "…"
		}
		return v
	}
	remedy := func(r Remedy) Remedy {
		r.Text, r.Commands = text(r.Text), each(r.Commands, command)
		if or := r.Or; or != nil {
			r.Or = &Policy{When: text(or.When), Commands: each(or.Commands, command)}
		}
		return r
	}
	f.Class, f.Message, f.Code, f.RequestID = text(f.Class), text(f.Message), text(f.Code), text(f.RequestID)
	if f.Observed != nil && f.Expected != nil {
		observed, expected := value(*f.Observed), value(*f.Expected)
		f.Observed, f.Expected = &observed, &expected
	}
	f.Events = each(f.Events, func(e Event) Event {
		e.Object, e.Reason, e.Message, e.Remedy = text(e.Object), text(e.Reason), text(e.Message), remedy(e.Remedy)
		return e
	})
	f.Details, f.Causes, f.Remedy = each(f.Details, value), each(f.Causes, text), remedy(f.Remedy)
}

func each[T any](list []T, change func(T) T) []T {
	list = slices.Clone(list)
	for i := range list {
		list[i] = change(list[i])
	}
	return list
}
