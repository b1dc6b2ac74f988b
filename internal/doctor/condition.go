package doctor

import (
	"cmp"
	"errors"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/providers"
)

// maxConditionMessage bounds the message of a condition, in bytes. Kubernetes allows 32 KiB, far more than a person reads.
const maxConditionMessage = 1024

// Condition returns the report as a condition: False after a failure, Unknown if the decisive check could not look, else True. Its
// message stays the same from run to run while the finding does, and shows no policy. meta.SetStatusCondition adds
// lastTransitionTime.
func (r *Report) Condition(conditionType string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: "ChecksPassed", Message: "all checks passed"}
	f := r.Worst()
	if f == nil {
		return c
	}
	decisive := r.Of(r.decisive)
	switch {
	case r.Result == Fail:
		c.Status = metav1.ConditionFalse
	case decisive == nil || decisive.Result != Pass:
		c.Status = metav1.ConditionUnknown
	}
	c.Reason, c.Message = firstOf(f.Class, camelCase(f.Check)), conditionMessage(f.Message, f.Remedy)
	return c
}

// ConditionOf returns an error of this module as a condition, without running a check: False if someone has to edit something,
// Unknown if the service could not be asked, True without an error.
func ConditionOf(err error, conditionType string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: "CredentialsObtained", Message: "credentials were obtained"}
	if err == nil {
		return c
	}
	c.Status, c.Reason = metav1.ConditionUnknown, "Failed"
	var e *auth.Error
	if !errors.As(err, &e) {
		c.Message = bounded((&cleaner{}).text(err.Error()))
		return c
	}
	if providers.Permanent(e) {
		c.Status = metav1.ConditionFalse
	}
	f := Refusal("the service", e)
	(&cleaner{}).finding(&f)
	c.Reason, c.Message = firstOf(f.Class, camelCase(cmp.Or(string(e.Reason), string(auth.ErrUnavailable)))), bounded((&cleaner{}).text(e.Error()))
	if f.Class != "" && f.Result == Fail {
		c.Message = conditionMessage(f.Message, f.Remedy)
	}
	return c
}

func conditionMessage(message string, remedy Remedy) string {
	message = strings.TrimSuffix(message, ".")
	for _, part := range append([]string{remedy.Text}, remedy.Commands...) {
		if part != "" {
			message += "; " + strings.TrimRight(part, ".:")
		}
	}
	return bounded(message)
}

// camelCase makes a reason of an ID: "trust-rule" becomes "TrustRule".
func camelCase(id string) string {
	var b strings.Builder
	upper := true
	for _, r := range id {
		if r == '-' || r == ' ' {
			upper = true
			continue
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteRune(r)
	}
	return b.String()
}

func bounded(s string) string {
	if len(s) <= maxConditionMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxConditionMessage], "")
}
