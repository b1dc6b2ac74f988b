package redact

import (
	"strings"
	"testing"
)

// What clouds say in their errors is not looked at thoroughly, which would take thirty times as long.
func TestMessagesWithoutSecretsRaiseNoSuspicion(t *testing.T) {
	secrets := []string{"wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", strings.Repeat("s", 2000)}
	for _, message := range []string{
		"Not authorized to perform sts:AssumeRoleWithWebIdentity",
		"no such role: arn:aws:iam::123456789012:role/tenant-a",
		"Trace ID: 6b1f3c6e-0000-4000-8000-7d1f5a6b0c00 Correlation ID: 6b1f3c6e-0000-4000-8000-7d1f5a6b0c01",
	} {
		if mayRepeat(message, secrets) {
			t.Errorf("%q is taken for one that may repeat a secret", message)
		}
		if with := message + " " + secrets[0]; !mayRepeat(with, secrets) {
			t.Errorf("%q is not looked at", with)
		}
	}
}
