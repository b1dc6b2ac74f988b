package cause

import (
	"cmp"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// ConditionOf returns an error of this module as a condition. The status is
// False if a person has to edit something, Unknown if the service could not be
// asked, and True without an error. The reason comes from [ClassOf], or else
// from the error. The message names the ServiceAccount, the requested identity
// and the remedy. It has at most 1 KiB, holds no token, and does not change
// from one try to the next. Use reason and message for an Event too.
func ConditionOf(err error, conditionType string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: "CredentialsObtained", Message: "credentials were obtained"}
	if err == nil {
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Failed", redact.Line(err.Error())
	var e *auth.Error
	if !errors.As(err, &e) {
		return c
	}
	if provider.Permanent(e) {
		c.Status = metav1.ConditionFalse
	}
	class, explained := classify(e), *e
	explained.Remedy = cmp.Or(class.Remedy, e.Remedy)
	reason := string(cmp.Or(e.Reason, auth.ErrUnavailable))
	c.Reason = cmp.Or(string(class.Reason), strings.ToUpper(reason[:1])+reason[1:])
	c.Message = redact.Line(explained.Error())
	return c
}
