package diagnose

import (
	"strings"
	"unicode"
)

// minPart is how much of a secret counts as one, in bytes: servers cut what they echo.
const minPart = 16

// scrub takes out of a whole report what strangers have echoed: secrets and parts of them, and what a terminal would obey. The
// checks see to that themselves; this is for what they forget.
func (r *Report) scrub(secrets ...string) {
	clean := func(s string) string { return printable(withoutSecrets(s, secrets), false) }
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Code, f.RequestID = clean(f.Message), clean(f.Code), clean(f.RequestID)
		f.Remedy = printable(withoutSecrets(f.Remedy, secrets), true)
		causes := make([]string, 0, len(f.Causes))
		for _, cause := range f.Causes {
			causes = append(causes, clean(cause)) // they may be those of all findings of a class
		}
		f.Causes = causes
		for n := range f.Fields {
			f.Fields[n].Observed, f.Fields[n].Expected = clean(f.Fields[n].Observed), clean(f.Fields[n].Expected)
		}
	}
	r.Target = clean(r.Target)
}

func printable(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || lines && r == '\n' {
			return r
		}
		return ' '
	}, s)
}

func withoutSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		text = withoutParts(text, strings.TrimSpace(secret))
	}
	return text
}

// withoutParts removes every part of the secret that is long enough to matter.
func withoutParts(text, secret string) string {
	if len(secret) < minPart {
		return text // no token is so short
	}
	var b strings.Builder
	last := 0
	for i := 0; i+minPart <= len(text); {
		end := i + minPart
		if !strings.Contains(secret, text[i:end]) {
			i++
			continue
		}
		for end < len(text) && strings.Contains(secret, text[i:end+1]) {
			end++
		}
		b.WriteString(text[last:i])
		b.WriteString("[redacted]")
		i, last = end, end
	}
	b.WriteString(text[last:])
	return b.String()
}

// secrets are what this run holds and a server could send back.
func (e *examination) secrets() []string {
	held := []string{e.token.raw}
	if c := e.RESTConfig; c != nil {
		held = append(held, c.BearerToken, c.Password)
		if c.BearerTokenFile != "" {
			if token, err := readToken(c.BearerTokenFile); err == nil {
				held = append(held, token)
			}
		}
	}
	if e.helperToken != "" {
		held = append(held, e.helperToken)
	}
	return held
}
