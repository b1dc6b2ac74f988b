package doctor

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// TextOptions say how Report.Text writes.
type TextOptions struct {
	Width      int    // of the terminal in columns; zero means 80
	Verbose    bool   // lists every check
	PolicyHint string // the command that shows the policies that the report leaves out: "wid doctor … --show-policy"
}

const (
	defaultWidth    = 80
	maxMessage      = 7
	maxBeforeRemedy = 8
)

// Text returns the report for people. A chain has a line for each part. Unless
// the report is verbose, it shortens evidence, and never a remedy. Values and
// words longer than the width stay whole.
func (r *Report) Text(o TextOptions) string {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	w := &writer{TextOptions: o}
	w.lines = []string{sign(r.Result) + " " + strings.TrimSuffix(r.Subject+", "+r.Cluster, ", ")}
	isList := r.chain || o.Verbose
	if decisive := r.Of(r.decisive); r.Headline != "" {
		w.headline(r)
	} else if decisive != nil && !isList {
		w.wrapped("  ", "  ", decisive.Message)
	}
	if isList {
		w.parts(r)
		return w.String()
	}
	if also := r.also(); also != "" {
		w.wrapped("  Also  ", "        ", also+" (--verbose)")
	}
	return w.String()
}

// String is Text with its defaults.
func (r *Report) String() string { return r.Text(TextOptions{}) }

type writer struct {
	TextOptions

	lines []string
}

func (w *writer) String() string { return strings.Join(w.lines, "\n") + "\n" }

func sign(r Result) string {
	return map[Result]string{Fail: "✗", Warn: "!", Unknown: "?", Skip: "-", Pass: "✓"}[r]
}

// headline writes the finding to act on first, with its remedy.
func (w *writer) headline(r *Report) {
	f, prefix := r.Summary(), "  "
	if r.ByEvent { // whose writer could write what looks like a remedy
		prefix = "  | "
	}
	w.message(&f, prefix)
	w.body(&f)
}

// message ends with the check and the class, on a line of their own only where
// they do not fit.
func (w *writer) message(f *Finding, prefix string) {
	tag, start := f.Check, len(w.lines)
	if f.Class != "" {
		tag += ", " + f.Class
	}
	w.wrapped(prefix, prefix, f.Message+"   ["+strings.ReplaceAll(tag, " ", "\u00a0")+"]")
	if lines := w.lines[start:]; len(lines) > maxMessage && !w.Verbose {
		lines[maxMessage-1] = "  … [" + tag + "] (--verbose shows the whole)"
		w.lines = w.lines[:start+maxMessage]
	}
}

// body writes everything but the message: values, causes and remedy.
func (w *writer) body(f *Finding) {
	w.values(f)
	label := "  Cause "
	for _, cause := range f.Causes {
		if w.Verbose || len(w.lines) < maxBeforeRemedy {
			w.wrapped(label+"- ", "          ", cause)
		}
		label = "        "
	}
	if f.Remedy.Text == "" {
		return
	}
	w.wrapped("  Fix   ", "        ", f.Remedy.Text)
	w.commands(f.Remedy.Commands)
	if or := f.Remedy.Or; or != nil {
		text := or.When + ", see: " + strings.ReplaceAll(w.PolicyHint, " ", "\u00a0")
		if len(or.Commands) > 0 {
			text = or.When + ":"
		}
		w.wrapped("  Or    ", "        ", text)
		w.commands(or.Commands)
	}
}

func (w *writer) values(f *Finding) {
	var values []Value
	if f.Observed != nil && f.Expected != nil {
		values = []Value{*f.Observed, *f.Expected}
	}
	if w.Verbose {
		values = append(values, f.Details...)
	}
	width := 0
	for _, v := range values {
		width = max(width, utf8.RuneCountInString(v.Name))
	}
	for _, v := range values {
		w.wrapped(fmt.Sprintf("    %-*s  ", width, v.Name), strings.Repeat(" ", width+6), v.Text)
	}
}

// parts writes a line for each finding, and the newest Event that counts.
// Verbose writes everything.
func (w *writer) parts(r *Report) {
	width := 0
	for i := range r.Findings {
		width = max(width, len(r.Findings[i].Check))
	}
	rest := strings.Repeat(" ", width+6)
	for i := range r.Findings {
		f := &r.Findings[i]
		write := w.shortened
		if w.Verbose || f.whole {
			write = w.wrapped
		}
		text, events := f.Message, f.Events
		if w.Verbose && f.Class != "" {
			text += " [" + f.Class + "]"
		} else if !w.Verbose && f.newest() == nil {
			events = nil
		} else if !w.Verbose {
			events = events[:1]
		}
		write(fmt.Sprintf("  %s %-*s  ", sign(f.Result), width, f.Check), rest, text)
		for _, e := range events {
			write(rest+"! ", rest+"  ", fmt.Sprintf("Warning %s (%s ago) %s: %s", e.Reason, Age(e.Time), e.Object, e.Message))
		}
		switch {
		case !w.Verbose || f.Check == r.Headline && !r.ByEvent:
		case f.Result == Pass || f.Result == Skip:
			w.values(f)
		default:
			w.body(f)
		}
	}
}

// Age writes the age of a time as kubectl does. A time in the future comes from
// a clock that is a little ahead.
func Age(since time.Time) string { return duration.ShortHumanDuration(max(time.Since(since), 0)) }

// shortened cuts a text to the width of the terminal. The prefix has as many
// columns as rest.
func (w *writer) shortened(prefix, rest, text string) {
	if room := max(w.Width-len(rest), 1); utf8.RuneCountInString(text) > room {
		text = string([]rune(text)[:room-1]) + "…"
	}
	w.lines = append(w.lines, strings.TrimRight(prefix+text, " "))
}

func (w *writer) wrapped(first, rest, text string) {
	for _, line := range cli.Wrap(first, rest, text, w.Width, "") {
		w.lines = append(w.lines, strings.ReplaceAll(line, "\u00a0", " "))
	}
}

// commands breaks shell commands before their flags and arguments, so that they
// can be pasted. Lines that begin with a blank belong to a manifest and stay
// whole.
func (w *writer) commands(all []string) {
	const indent = "          "
	for _, command := range all {
		if strings.HasPrefix(command, " ") || strings.ContainsAny(command, `'"`) {
			w.lines = append(w.lines, indent+command)
			continue
		}
		w.lines = append(w.lines, cli.Wrap(indent, indent+"  ", command, w.Width, ` \`)...)
	}
}
