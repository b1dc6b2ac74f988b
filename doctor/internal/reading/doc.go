// Package reading holds what the packages below doctor/trust share: requests with the login of the person who runs the doctor, the
// comparison of texts, and the parts of their remedies.
package reading
