package redact_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/redact"
)

func BenchmarkText(b *testing.B) {
	token := strings.Repeat("wJalrXUtnFEMI-K7MDENG_bPxRfiCYEXAMPLEKEY", 40)
	for name, message := range map[string]string{
		"plain":     "User: arn:aws:sts::123456789012:assumed-role/tenant-a/s is not authorized to perform: sts:AssumeRole",
		"uuids":     "Trace ID: 6b1f3c6e-0000-4000-8000-7d1f5a6b0c00 Correlation ID: 6b1f3c6e-0000-4000-8000-7d1f5a6b0c01 (100%)",
		"echoed":    "you sent Bearer " + token + ", which is not known",
		"hostile64": strings.Repeat("%2541&#x41;"+token[:50]+" Bearer ", 1<<10),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				redact.Text(message, token)
			}
		})
	}
}
