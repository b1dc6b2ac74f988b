package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

type row struct {
	tenant, role, expires, source string
	took                          time.Duration
}

type refusal struct{ what, message string }

// printer writes for people. Errors of writing end the program by themselves (a
// closed pipe), so they are not passed on.
type printer struct {
	out    io.Writer
	colour bool
}

func newPrinter(out io.Writer) *printer {
	return &printer{out: out, colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const (
	bold = "1"
	red  = "31"
)

func (p *printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) note(text string) { _, _ = fmt.Fprintln(p.out, text) }

func (p *printer) heading(text string) {
	_, _ = fmt.Fprintf(p.out, "\n%s\n\n", p.paint(bold, text))
}

func (p *printer) rows(rows []row) {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TENANT\tASSUMED ROLE\tEXPIRES IN\tSOURCE\tTIME")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.tenant, r.role, r.expires, r.source, short(r.took))
	}
	_ = w.Flush()
}

// short keeps three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func (p *printer) refusal(r refusal) {
	_, _ = fmt.Fprintf(p.out, "%s %s\n%s\n\n", p.paint(red, "✗"), r.what, wrap(r.message, "  "))
}

const width = 80

// wrap breaks a text at blanks. Longer words stay whole, so that they can be
// copied.
func wrap(text, indent string) string {
	var b strings.Builder
	column := width
	for word := range strings.FieldsSeq(text) {
		switch length := utf8.RuneCountInString(word); {
		case column+1+length > width:
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(indent + word)
			column = len(indent) + length
		default:
			b.WriteString(" " + word)
			column += 1 + length
		}
	}
	return b.String()
}
