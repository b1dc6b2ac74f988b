package doctor

import "github.com/workloadid/workloadid/internal/redact"

func newScrubber(secrets, pairs []string) *redact.Scrubber {
	s := &redact.Scrubber{}
	for _, secret := range secrets {
		s.Add(secret)
	}
	for _, pair := range pairs {
		s.AddWhole(pair)
	}
	return s
}

// scrub takes secrets and parts of them, which strangers have echoed, out of a whole report. The checks see to that
// themselves; this is for what they forget.
func (r *Report) scrub(s *redact.Scrubber) {
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Remedy, f.Code, f.RequestID = s.Clean(f.Message), s.Clean(f.Remedy), s.Clean(f.Code), s.Clean(f.RequestID)
		f.shared = s.Clean(f.shared)
		causes := make([]string, 0, len(f.Causes))
		for _, cause := range f.Causes {
			causes = append(causes, s.Clean(cause)) // they may be those of all findings of a class
		}
		f.Causes = causes
		for n := range f.Fields {
			own := &f.Fields[n]
			own.Name, own.Observed, own.Expected = s.Clean(own.Name), s.Clean(own.Observed), s.Clean(own.Expected)
		}
	}
	r.Target = s.Clean(r.Target)
}
