package identity_test

import (
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// No false alarms: where all fits, nothing fails, nothing warns, and nothing is unknown.
func TestHealthyChains(t *testing.T) {
	for _, provider := range []string{"aws", "azure", "gcp", "generic"} {
		t.Run(provider, func(t *testing.T) {
			w := newEnvironment(t, provider)
			report := w.run()
			if report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
		t.Run(provider+" with a token in a file, without a cluster", func(t *testing.T) {
			w := newEnvironment(t, provider)
			w.write(w.sign(nil))
			w.withoutCluster, w.config.Annotations = true, w.account.Annotations
			if report := w.run(); report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
	}
}
