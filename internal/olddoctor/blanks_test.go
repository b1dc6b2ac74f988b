package doctor_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A blank that makes all the difference is seen.
func TestBlanksAreShown(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil           func(w *world)
		check, observed string
	}{
		"audience": {func(w *world) {
			w.write(w.sign(func(c map[string]any) { c["aud"] = "sts.amazonaws.com " }))
		}, "audience", `"sts.amazonaws.com "`},
		"audiences": {func(w *world) {
			w.write(w.sign(func(c map[string]any) { c["aud"] = []string{"a\t", "b"} }))
		}, "audience", `["a\t" b]`},
		"subject": {func(w *world) {
			w.write(w.sign(func(c map[string]any) { c["sub"] = subject + "\n" }))
		}, "subject", `"` + subject + `\n"`},
		"issuer": {func(w *world) {
			w.config.Issuer = w.issuer.URL()
			w.write(w.sign(func(c map[string]any) { c["iss"] = w.issuer.URL() + " " }))
		}, "issuer", `"https://issuer.example "`},
	} {
		w := newWorld(t, "aws")
		tc.spoil(w)
		f := w.run().Of(tc.check)
		if f.Result != doctor.Fail || len(f.Fields) != 1 || f.Fields[0].Observed != tc.observed {
			t.Errorf("%s: %+v", name, f)
		}
		if name == "issuer" && !strings.Contains(f.Message, "only by blanks") {
			t.Errorf("%+v", f)
		}
	}
}
