// Package doctor explains errors of this module to the people who have to correct something. A controller makes a condition of one:
//
//	meta.SetStatusCondition(&obj.Status.Conditions, doctor.ConditionOf(err, "IdentityReady", obj.Generation))
//
// It runs no checks. The command wid doctor does, and names causes with the same words.
package doctor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/doctor"
)

// Class is one of the known failures of a service.
type Class = doctor.Class

// ClassOf returns the class of an error. Its Reason is empty if the error is not a known failure.
func ClassOf(err error) Class { return doctor.ClassOf(err) }

// ConditionOf returns an error of this module as a condition: False if someone has to edit something, Unknown if the service could not
// be asked, True without an error. Its message is bounded, and holds no token.
func ConditionOf(err error, conditionType string, generation int64) metav1.Condition {
	return doctor.ConditionOf(err, conditionType, generation)
}
