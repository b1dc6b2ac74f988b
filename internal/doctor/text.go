package doctor

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// TextOptions say how Report.Text writes.
type TextOptions struct {
	// Width is that of the terminal in columns. Zero means 80.
	Width int
	// Color marks results with ANSI colours. Set it only for a terminal.
	Color bool
	// Verbose lists every check.
	Verbose bool
	// PolicyHint is the command that shows the policies that the report leaves out: "wid doctor … --show-policy".
	PolicyHint string
}

const (
	defaultWidth = 80
	maxLines     = 14
	maxMessage   = 4
	maxBeforeFix = 8 // leaves room for remedy and alternative
)

// Text returns the report for people: at most 14 lines unless it is verbose, and the commands of a policy that was asked for. Values
// and words longer than the width stay whole.
func (r *Report) Text(o TextOptions) string {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	w := &writer{TextOptions: o}
	w.head(r)
	if o.Verbose {
		w.verbose(r)
		return w.String()
	}
	f := r.Worst()
	if f == nil {
		w.healthy(r)
		return w.String()
	}
	w.message(f)
	w.body(f)
	if counts := r.counts(r.Headline); counts != "" {
		w.lines = append(w.lines, "  Also  "+counts+" (--verbose)")
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

// symbol returns the sign of a result, and its colour as an ANSI code.
func symbol(r Result) (sign, color string) {
	switch r {
	case Fail:
		return "✗", "31"
	case Warn:
		return "!", "33"
	case Unknown:
		return "?", "33"
	case Skip:
		return "-", "2"
	case Pass:
	}
	return "✓", "32"
}

func (w *writer) sign(r Result) string {
	sign, color := symbol(r)
	if !w.Color {
		return sign
	}
	return "\x1b[" + color + "m" + sign + "\x1b[0m"
}

func (w *writer) head(r *Report) {
	text := r.Subject
	if r.Cluster != "" {
		text += ", " + r.Cluster
	}
	w.lines = append(w.lines, w.sign(r.Result)+" "+text)
}

func (w *writer) healthy(r *Report) {
	if f := r.Of(r.decisive); f != nil {
		w.wrapped("  ", "  ", f.Message)
	}
	w.lines = append(w.lines, "  "+r.counts("")+" (--verbose)")
}

// message ends with the check and the class, on a line of their own only where they do not fit.
func (w *writer) message(f *Finding) {
	tag, start := f.Check, len(w.lines)
	if f.Class != "" {
		tag += ", " + f.Class
	}
	w.wrapped("  ", "  ", f.Message+"   ["+strings.ReplaceAll(tag, " ", "\u00a0")+"]")
	if lines := w.lines[start:]; len(lines) > maxMessage {
		lines[maxMessage-1] = "  … [" + tag + "] (--verbose shows the whole)"
		w.lines = w.lines[:start+maxMessage]
	}
}

// body writes everything but the message: values, causes and remedy.
func (w *writer) body(f *Finding) {
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
		w.lines = append(w.lines, fmt.Sprintf("    %-*s  %s", width, v.Name, v.Text))
	}
	label := "  Cause "
	for _, cause := range f.Causes {
		if w.Verbose || len(w.lines) < maxBeforeFix {
			w.wrapped(label+"- ", "          ", cause)
		}
		label = "        "
	}
	if f.Remedy.Text != "" {
		w.wrapped("  Fix   ", "        ", f.Remedy.Text)
		w.commands(&f.Remedy)
	}
}

// commands leaves out the commands that exceed the screen, never a part of one. A reader who needs them all has --verbose. The
// commands of a policy were asked for, and are not counted.
func (w *writer) commands(r *Remedy) {
	or, room := w.alternative(r.Or), maxLines-1-len(w.lines)
	if r.Or == nil || len(r.Or.Commands) == 0 {
		room -= len(or)
	}
	for i, command := range r.Commands {
		lines := w.command(command)
		if room -= len(lines); !w.Verbose && (room < 0 || room == 0 && i < len(r.Commands)-1) {
			w.lines = append(w.lines, "          … (--verbose shows the whole)")
			break
		}
		w.lines = append(w.lines, lines...)
	}
	w.lines = append(w.lines, or...)
}

// alternative writes the commands of a policy only if the report kept them.
func (w *writer) alternative(p *Policy) []string {
	if p == nil {
		return nil
	}
	sub, text := &writer{TextOptions: w.TextOptions}, p.When+", change what the cloud trusts."
	if w.PolicyHint != "" {
		text = p.When + ", see: " + strings.ReplaceAll(w.PolicyHint, " ", "\u00a0")
	}
	if len(p.Commands) > 0 {
		text = p.When + ":"
	}
	sub.wrapped("  Or    ", "        ", text)
	for _, command := range p.Commands {
		sub.lines = append(sub.lines, sub.command(command)...)
	}
	return sub.lines
}

func (w *writer) verbose(r *Report) {
	width := 0
	for i := range r.Findings {
		width = max(width, len(r.Findings[i].Check))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		text := f.Message
		if f.Class != "" {
			text += " [" + f.Class + "]"
		}
		w.wrapped(fmt.Sprintf("  %s %-*s  ", w.sign(f.Result), width, f.Check), strings.Repeat(" ", width+6), text)
		if f.Result != Pass && f.Result != Skip {
			w.body(f)
		}
	}
	w.lines = append(w.lines, "  "+r.counts(""))
}

// wrapped breaks a text at blanks.
func (w *writer) wrapped(first, rest, text string) {
	for _, line := range breakLines(first, rest, text, w.Width, "") {
		w.lines = append(w.lines, strings.ReplaceAll(line, "\u00a0", " "))
	}
}

// command breaks a shell command before its flags and arguments, so that it can be pasted. Lines that begin with a blank are those
// of a manifest and stay whole.
func (w *writer) command(command string) []string {
	const indent = "          "
	if strings.HasPrefix(command, " ") || strings.ContainsAny(command, `'"`) {
		return []string{indent + command}
	}
	return breakLines(indent, indent+"  ", command, w.Width, ` \`)
}

// breakLines counts runes as columns.
func breakLines(first, rest, text string, width int, joint string) (lines []string) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	line := first + strings.Join(words[:min(1, len(words))], "")
	for _, word := range words[min(1, len(words)):] {
		if utf8.RuneCountInString(line+" "+word+joint) > width {
			lines, line = append(lines, line+joint), rest+word
			continue
		}
		line += " " + word
	}
	return append(lines, line)
}
