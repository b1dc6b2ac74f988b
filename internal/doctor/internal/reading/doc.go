// Package reading holds what the checks of doctor/trust share: questions with the login of the person who runs the doctor, the
// comparison of texts, and the parts of their remedies.
package reading
