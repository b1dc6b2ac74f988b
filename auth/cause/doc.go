// Package cause explains errors of this module to the person that has to
// correct something. Controllers make a condition of an error, and an Event
// with the same words, as the example of [ConditionOf] shows.
//
// It runs no checks. The command wid doctor does, and names causes with the
// same words.
package cause
