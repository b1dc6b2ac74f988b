package ocm_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration/ocm"
)

func TestSetCondition(t *testing.T) {
	accepted := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: ocm.ConditionHubAccepted, Status: status, Reason: reason, Message: message}
	}
	refused, denied := accepted(metav1.ConditionFalse, "InvalidClaim", "no"), accepted(metav1.ConditionFalse, ocm.ReasonHubDenied, "no")
	for name, row := range map[string]struct {
		had, set      metav1.Condition
		changed, kept bool // whether anything, and the time
		message       string
	}{
		"the same again":                {refused, refused, false, true, "no"},
		"another refusal":               {refused, accepted(metav1.ConditionFalse, ocm.ReasonGrantFailed, "not"), true, true, "not"},
		"a refusal becomes a denial":    {refused, denied, true, false, "no"},
		"a denial stays one":            {denied, accepted(metav1.ConditionFalse, ocm.ReasonHubDenied, "not"), true, true, "not"},
		"the status changes":            {denied, accepted(metav1.ConditionTrue, ocm.ReasonHubAccepted, ""), true, false, ""},
		"a message that is too long":    {refused, accepted(metav1.ConditionFalse, "InvalidClaim", strings.Repeat("x", 1<<20)), true, true, strings.Repeat("x", 32768)},
		"cut between two characters":    {refused, accepted(metav1.ConditionFalse, "InvalidClaim", "x"+strings.Repeat("é", 1<<15)), true, true, "x" + strings.Repeat("é", 16383)},
		"a condition that is not there": {metav1.Condition{Type: "Other"}, refused, true, false, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			then := metav1.NewTime(time.Now().Add(-time.Hour))
			row.had.LastTransitionTime = then
			conditions := []metav1.Condition{row.had}
			if changed := ocm.SetCondition(&conditions, row.set); changed != row.changed {
				t.Errorf("changed: %t", changed)
			}
			got := conditions[len(conditions)-1]
			if got.LastTransitionTime.Equal(&then) != row.kept || got.Status != row.set.Status || got.Reason != row.set.Reason || got.Message != row.message {
				t.Errorf("%.200v", got)
			}
		})
	}
}
