package diagnose

import (
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// These write values of tokens and objects into the commands of remedies.

func namespaceOf(sa *corev1.ServiceAccount) string { return shell.Word(sa.Namespace, "<namespace>") }

func nameOf(sa *corev1.ServiceAccount) string { return shell.Word(sa.Name, "<name>") }

func issuerOf(c *Claims) string { return shell.Word(c.Issuer, "<issuer>") }

func subjectWord(c *Claims) string { return shell.Word(c.Subject, "<subject>") }

// inert writes in JSON's other way what a shell obeys in text that is not meant for it, but pasted.
var inert = strings.NewReplacer("$", `\u0024`, "`", `\u0060`, "'", `\u0027`, "!", `\u0021`)

// secrets are what a server that echoes its requests could have this program print.
func (e *examination) secrets() []string {
	e.known.add(e.Token, e.token.raw, e.helperToken)
	e.known.addToken(e.gained)
	return e.known.all()
}

// text makes what somebody else says fit for a finding.
func (e *examination) text(s string) string { return shown(redact.Text(s, e.secrets()...)) }

// redacted is the list without the secrets.
func redacted(list []string, secrets ...string) []string {
	clean := make([]string, 0, len(list))
	for _, s := range list {
		clean = append(clean, redact.Text(s, secrets...))
	}
	return clean
}

// printable is the finding without anything that a terminal obeys. Only a remedy has lines.
func (f Finding) printable() Finding {
	f.Message, f.Code, f.RequestID, f.shared = clean(f.Message), clean(f.Code), clean(f.RequestID), clean(f.shared)
	lines := strings.Split(f.Remedy, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	f.Remedy = strings.Join(lines, "\n")
	f.Fields, f.Causes = slices.Clone(f.Fields), slices.Clone(f.Causes)
	for i := range f.Fields {
		own := &f.Fields[i]
		own.Name, own.Observed, own.Expected = clean(own.Name), clean(own.Observed), clean(own.Expected)
	}
	for i := range f.Causes {
		f.Causes[i] = clean(f.Causes[i])
	}
	return f
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
