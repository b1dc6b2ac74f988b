// Package cause explains errors of this module to the people who have to correct something. A controller makes a condition of one, and
// an Event with the same words:
//
//	condition := cause.ConditionOf(err, "IdentityReady", obj.Generation)
//	meta.SetStatusCondition(&obj.Status.Conditions, condition)
//	recorder.Event(obj, corev1.EventTypeWarning, condition.Reason, condition.Message)
//
// It runs no checks. The command wid doctor does, and names causes with the same words.
package cause
