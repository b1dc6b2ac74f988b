package doctor

import "github.com/workloadid/workloadid/internal/redact"

// scrub takes the secrets of a run out of its whole report. Each check does so itself; this covers a check that forgets it.
func (r *Report) scrub(secrets []string) {
	clean := func(text string) string { return redact.Clean(text, secrets...) }
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
			own := &f.Fields[n]
			own.Name, own.Observed, own.Expected = clean(own.Name), clean(own.Observed), clean(own.Expected)
		}
	}
	r.Target = clean(r.Target)
}
