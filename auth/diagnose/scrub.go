package diagnose

import "strings"

// minPart is how much of a secret counts as one, in bytes: servers cut what they echo.
const minPart = 16

// scrub takes secrets and parts of them, which strangers have echoed, out of a whole report. The checks see to that
// themselves; this is for what they forget.
func (r *Report) scrub(secrets ...string) {
	clean := func(s string) string { return withoutSecrets(s, secrets) }
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Remedy, f.Code, f.RequestID = clean(f.Message), clean(f.Remedy), clean(f.Code), clean(f.RequestID)
		f.shared = clean(f.shared)
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
