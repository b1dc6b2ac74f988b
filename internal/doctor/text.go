package doctor

import (
	"fmt"
	"slices"
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
	w.comparison(f)
	w.causes(f)
	w.remedy(&f.Remedy, maxLines-1)
	w.also(r)
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
	_, fine := r.counts(r.Headline)
	w.lines = append(w.lines, "  "+fine+" (--verbose)")
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

func (w *writer) comparison(f *Finding) {
	if f.Observed == nil || f.Expected == nil {
		return
	}
	width := max(utf8.RuneCountInString(f.Observed.Name), utf8.RuneCountInString(f.Expected.Name))
	for _, v := range []*Value{f.Observed, f.Expected} {
		w.lines = append(w.lines, fmt.Sprintf("    %-*s  %s", width, v.Name, v.Text))
	}
}

func (w *writer) causes(f *Finding) {
	for i, cause := range f.Causes {
		if len(w.lines) >= maxBeforeFix {
			return
		}
		label := "        "
		if i == 0 {
			label = "  Cause "
		}
		w.wrapped(label+"- ", "          ", cause)
	}
}

// remedy writes up to the given number of lines in all.
func (w *writer) remedy(r *Remedy, limit int) {
	text := r.Text
	commands := r.Commands
	if text == "" && len(commands) == 0 {
		return
	}
	if text == "" {
		text, commands = commands[0], commands[1:]
	}
	or := w.alternative(r.Or)
	w.wrapped("  Fix   ", "        ", text)
	if r.Or == nil || len(r.Or.Commands) == 0 { // commands of a policy were asked for, and are not counted
		limit -= len(or)
	}
	w.commands(commands, limit)
	w.lines = append(w.lines, or...)
}

// commands leaves out the commands that exceed the limit, never a part of one. A reader who needs them all has --verbose.
func (w *writer) commands(commands []string, limit int) {
	for i, command := range commands {
		lines, room := w.command("          ", command), limit-len(w.lines)
		if i < len(commands)-1 {
			room-- // for the last line
		}
		if len(lines) > room {
			w.lines = append(w.lines, "          … (--verbose shows the whole)")
			return
		}
		w.lines = append(w.lines, lines...)
	}
}

// alternative writes the commands of a policy only if the report kept them.
func (w *writer) alternative(p *Policy) []string {
	if p == nil {
		return nil
	}
	sub := &writer{TextOptions: w.TextOptions}
	switch {
	case len(p.Commands) > 0:
		sub.wrapped("  Or    ", "        ", p.When+":")
		for _, command := range p.Commands {
			sub.lines = append(sub.lines, sub.command("          ", command)...)
		}
	case w.PolicyHint != "":
		sub.wrapped("  Or    ", "        ", p.When+", see: "+strings.ReplaceAll(w.PolicyHint, " ", "\u00a0"))
	default:
		sub.wrapped("  Or    ", "        ", p.When+", change what the cloud trusts.")
	}
	return sub.lines
}

func (w *writer) also(r *Report) {
	doubtful, fine := r.counts(r.Headline)
	parts := slices.DeleteFunc([]string{doubtful, fine}, func(s string) bool { return s == "" })
	if len(parts) > 0 {
		w.lines = append(w.lines, "  Also  "+strings.Join(parts, "; ")+" (--verbose)")
	}
}

func (w *writer) verbose(r *Report) {
	width := 0
	for i := range r.Findings {
		width = max(width, len(r.Findings[i].Check))
	}
	indent := strings.Repeat(" ", width+6)
	for i := range r.Findings {
		f := &r.Findings[i]
		text := f.Message
		if f.Class != "" {
			text += " [" + f.Class + "]"
		}
		w.wrapped(fmt.Sprintf("  %s %-*s  ", w.sign(f.Result), width, f.Check), indent, text)
		if f.Result == Pass || f.Result == Skip {
			continue
		}
		w.details(f, indent)
	}
	doubtful, fine := r.counts("")
	w.lines = append(w.lines, "  "+strings.Join(slices.DeleteFunc([]string{doubtful, fine}, func(s string) bool { return s == "" }), "; "))
}

func (w *writer) details(f *Finding, indent string) {
	values := f.Details
	if f.Observed != nil && f.Expected != nil {
		values = append([]Value{*f.Observed, *f.Expected}, values...)
	}
	for _, v := range values {
		w.lines = append(w.lines, indent+v.Name+": "+v.Text)
	}
	for _, cause := range f.Causes {
		w.wrapped(indent+"cause: ", indent+"  ", cause)
	}
	if f.Remedy.Text != "" {
		w.wrapped(indent+"fix: ", indent+"  ", f.Remedy.Text)
	}
	for _, command := range f.Remedy.Commands {
		w.lines = append(w.lines, w.command(indent+"  ", command)...)
	}
	for _, line := range w.alternative(f.Remedy.Or) {
		w.lines = append(w.lines, indent+strings.TrimPrefix(line, "  "))
	}
}

// wrapped breaks a text at blanks. The columns count runes.
func (w *writer) wrapped(first, rest, text string) {
	for _, line := range breakLines(first, rest, text, w.Width, "") {
		w.lines = append(w.lines, strings.ReplaceAll(line, "\u00a0", " "))
	}
}

// command breaks a shell command before its flags and arguments, so that it can be pasted. Lines that begin with a blank are those
// of a manifest and stay whole.
func (w *writer) command(indent, command string) []string {
	if strings.HasPrefix(command, " ") || strings.ContainsAny(command, `'"`) {
		return []string{indent + command}
	}
	return breakLines(indent, indent+"  ", command, w.Width, ` \`)
}

func breakLines(first, rest, text string, width int, joint string) []string {
	var lines []string
	line, empty := first, true
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' }) {
		needed := utf8.RuneCountInString(line) + utf8.RuneCountInString(word) + len(joint)
		if !empty && needed+1 > width {
			lines = append(lines, line+joint)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	return append(lines, line)
}
