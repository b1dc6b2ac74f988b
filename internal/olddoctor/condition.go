package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
)

// maxConditionMessage is that of metav1.Condition, in bytes.
const maxConditionMessage = 32768

// Condition makes the report a condition: False for a failure, or else Unknown if a check could not look, or else True, also
// with a warning. If the exchange works, it does not take what only shows beforehand whether it will: the checks api-server,
// cluster-issuer, token-review, trust-anchor and trust-rule may be unknown then. Its text is for people who have no
// command line of ours, and holds nothing that changes from run to run while the finding stays the same. lastTransitionTime is
// left to meta.SetStatusCondition.
func (r *Report) Condition(conditionType string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: "ChecksPassed", Message: "all checks have passed"}
	worst := r.decisive()
	if worst == nil {
		if r.ExitCode() != ExitPass {
			c.Message = "the exchange works; some checks that it takes no part of could not look"
		}
		return c
	}
	switch worst.Result {
	case Fail:
		c.Status = metav1.ConditionFalse
	case Unknown:
		c.Status = metav1.ConditionUnknown
	case Warn, Pass, Skip:
	}
	c.Reason = reason(worst.ID, worst.Class)
	printable := worst.printable()
	message := printable.Message
	if class, ok := classByID(worst.Class); ok && worst.StatusCode != 0 {
		message = class.Service + ": " + class.Summary // some services put the time into their texts
	}
	remedy := withoutCommandLine(firstOf(printable.shared, printable.Remedy))
	c.Message = bounded(sentence(fmt.Sprintf("check %d: %s", worst.Number, message), remedy))
	return c
}

// decisive is the finding that a condition is about. Worst has its say among those that are as bad.
func (r *Report) decisive() *Finding {
	exchange := r.Of("exchange")
	works := exchange != nil && exchange.Result == Pass
	for _, result := range []Result{Fail, Unknown, Warn} {
		counts := func(f *Finding) bool {
			return f.Result == result && (result != Unknown || !works || !isForesight(f.ID))
		}
		if worst := r.Worst(); worst != nil && counts(worst) {
			return worst
		}
		for i := range r.Findings {
			if counts(&r.Findings[i]) {
				return &r.Findings[i]
			}
		}
	}
	return nil
}

// isForesight says that a check only foretells what an exchange that works has shown.
func isForesight(id string) bool {
	return slices.Contains([]string{"api-server", "cluster-issuer", "token-review", "trust-anchor", "trust-rule"}, id)
}

// forOperators are parts of a remedy's lines that are no use to who reads a condition: they are about how a check is run. Flags
// that the programs of others have too are not among them.
var forOperators = regexp.MustCompile(`(^|[\s(])wid [a-z]|\bConfig\.[A-Z]|^pass (a|the) |of the kubeconfig$|` +
	`that the kubeconfig and|^see checks? \d|> trust\.json$|` +
	`\s--(skip|service-account|token-file|annotation|pod|in-pod|trust-file|trust-live|tls-server-name)([^-a-z]|$)`)

// withoutCommandLine leaves such lines out.
func withoutCommandLine(remedy string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(remedy, "\n"), forOperators.MatchString), "\n")
}

// ConditionOf makes an error of the library a condition, without running any check: False if somebody has to edit something,
// Unknown if the service could not be asked. A nil error is True.
func ConditionOf(err error, conditionType string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: "CredentialsObtained", Message: "credentials were obtained"}
	if err == nil {
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Failed", bounded(oneLine(err.Error()))
	e, ok := asError(err)
	if !ok {
		return c
	}
	if e.Permanent() {
		c.Status = metav1.ConditionFalse
	}
	c.Reason, c.Message = reason(e.Result(), classify(e).ID), bounded(oneLine(Explain(err, nil)))
	return c
}

// Explain words an error of the library as a decision: who refused and why, what the token says, what is wrong most likely
// and what to do. The claims are those of the token that was sent, if they are known. The text names the request, so it
// differs at every try.
func Explain(err error, claims *Claims) string {
	e, ok := asError(err)
	if !ok {
		return oneLine(err.Error())
	}
	class := classify(e)
	if class.ID == "" {
		return e.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s refused: %s (%s).", class.Service, class.Summary, class.ID)
	if claims != nil {
		fmt.Fprintf(&b, " Token says %s.", claims)
	}
	if len(class.Causes) > 0 {
		fmt.Fprintf(&b, " Most likely: %s.", class.Causes[0])
	}
	if changesTrust(class.ID) {
		class.Remedy = correctNames
	}
	if class.Remedy != "" {
		fmt.Fprintf(&b, " Do: %s.", class.Remedy)
	}
	if e.StatusCode != 0 {
		fmt.Fprintf(&b, " (HTTP %d, %s", e.StatusCode, e.Code)
		if claims != nil && e.RequestID != "" {
			fmt.Fprintf(&b, ", request %s", e.RequestID)
		}
		b.WriteByte(')')
	}
	return b.String()
}

func asError(err error) (*auth.Error, bool) {
	var e *auth.Error
	ok := errors.As(err, &e)
	return e, ok
}

// reason makes a name in CamelCase, as conditions want it: "AudienceA4".
func reason(id, class string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(id, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String() + class
}

func sentence(what, remedy string) string {
	if remedy == "" {
		return what
	}
	return what + "; " + strings.ReplaceAll(remedy, "\n", " ")
}

func bounded(s string) string {
	if len(s) > maxConditionMessage {
		return s[:maxConditionMessage]
	}
	return s
}
