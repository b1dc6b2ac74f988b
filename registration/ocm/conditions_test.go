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
	no := func(reason, message string) metav1.Condition { return accepted(metav1.ConditionFalse, reason, message) }
	refused, denied := no("InvalidClaim", "no"), no(ocm.ReasonHubDenied, "no")
	const most = 32768
	for name, row := range map[string]struct {
		had, set      metav1.Condition
		changed, kept bool // whether anything, and the time
		message       string
	}{
		"the same again":             {refused, refused, false, true, "no"},
		"another refusal":            {refused, no(ocm.ReasonGrantFailed, "not"), true, true, "not"},
		"a refusal becomes a denial": {refused, denied, true, false, "no"},
		"a denial stays one":         {denied, no(ocm.ReasonHubDenied, "not"), true, true, "not"},
		"the status changes":         {denied, accepted(metav1.ConditionTrue, ocm.ReasonHubAccepted, ""), true, false, ""},
		"a message that is too long": {refused, no("InvalidClaim", strings.Repeat("x", 1<<20)), true, true,
			strings.Repeat("x", most)},
		"cut between two characters": {refused, no("InvalidClaim", "x"+strings.Repeat("é", most)), true, true,
			"x" + strings.Repeat("é", most/2-1)},
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
			if kept := got.LastTransitionTime.Equal(&then); kept != row.kept || got.Message != row.message ||
				got.Status != row.set.Status || got.Reason != row.set.Reason {
				t.Errorf("%.200v", got)
			}
		})
	}
}
