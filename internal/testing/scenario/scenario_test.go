package scenario_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/testing/scenario"
)

func TestScenarioGoesOnPrintingWhileAStepIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &scenario.Scenario{Printer: scenario.Printer{Out: &out}}
		if err := s.Play(t.Context(), func(context.Context) error {
			time.Sleep(5 * time.Second)
			s.Say("Starting two control planes…")
			time.Sleep(25 * time.Second)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "still working") != 2 || !strings.Contains(got, "15s so far") ||
			!strings.Contains(got, "25s so far") {
			t.Errorf("it prints %s", got)
		}
	})
}
