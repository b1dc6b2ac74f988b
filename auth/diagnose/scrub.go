package diagnose

import (
	"net/url"
	"strconv"
	"strings"
)

const (
	// minPart is how much of a secret counts as one, in bytes: servers cut what they echo. Of a secret that is not twice as
	// long it is minSecret.
	minPart = 16

	redactedMark = "[redacted]"
)

// scrubber takes secrets out of text, also in parts and as URLs and quoted text have them.
type scrubber struct {
	whole []string
	// parts are all parts of minPart and minSecret bytes: looking one up takes as long whatever the number of secrets.
	parts map[string]struct{}
}

func newScrubber(secrets, pairs []string) *scrubber {
	s := &scrubber{parts: map[string]struct{}{}}
	for _, secret := range secrets {
		for _, form := range forms(secret) {
			s.add(form)
		}
	}
	for _, pair := range pairs {
		s.whole = append(s.whole, forms(pair)...)
	}
	return s
}

func (s *scrubber) add(secret string) {
	size := minPart
	if len(secret) < 2*minPart {
		size = minSecret
	}
	for i := 0; i+size <= len(secret); i++ {
		s.parts[secret[i:i+size]] = struct{}{}
	}
}

// forms are how others write it.
func forms(secret string) []string {
	list := []string{secret}
	quoted := strconv.Quote(secret)
	for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret), quoted[1 : len(quoted)-1]} {
		if form != secret {
			list = append(list, form)
		}
	}
	return list
}

func (s *scrubber) clean(text string) string {
	for _, whole := range s.whole {
		text = strings.ReplaceAll(text, whole, redactedMark)
	}
	var b strings.Builder
	covered, copied := 0, 0 // up to where text is secret, and written
	for i := range len(text) {
		end := s.partAt(text, i)
		if end == 0 {
			continue
		}
		if i > covered || covered == 0 {
			b.WriteString(text[copied:i])
			b.WriteString(redactedMark)
		}
		covered, copied = max(covered, end), max(copied, end)
	}
	b.WriteString(text[copied:])
	return b.String()
}

// partAt returns where a part of a secret that begins at i ends, 0 if none does.
func (s *scrubber) partAt(text string, i int) int {
	for _, size := range []int{minPart, minSecret} {
		if i+size > len(text) {
			continue
		}
		if _, found := s.parts[text[i:i+size]]; found {
			return i + size
		}
	}
	return 0
}

// scrub takes secrets and parts of them, which strangers have echoed, out of a whole report. The checks see to that
// themselves; this is for what they forget.
func (r *Report) scrub(s *scrubber) {
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Remedy, f.Code, f.RequestID = s.clean(f.Message), s.clean(f.Remedy), s.clean(f.Code), s.clean(f.RequestID)
		f.shared = s.clean(f.shared)
		causes := make([]string, 0, len(f.Causes))
		for _, cause := range f.Causes {
			causes = append(causes, s.clean(cause)) // they may be those of all findings of a class
		}
		f.Causes = causes
		for n := range f.Fields {
			own := &f.Fields[n]
			own.Name, own.Observed, own.Expected = s.clean(own.Name), s.clean(own.Observed), s.clean(own.Expected)
		}
	}
	r.Target = s.clean(r.Target)
}
