package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// step is a check of an examination that has no provider: of a discovery by token, of an enrolment. All are number 25.
type step struct {
	id, title string
	// needs are the names of the steps that must not have failed, nor been skipped because others have.
	needs []string
	run   func(ctx context.Context) Finding
}

const stepNumber = 25

// performSteps has a finding for each step, like Run.
func performSteps(ctx context.Context, steps []step, unwanted []string) []Finding {
	blocked := map[string]string{} // by the step that has failed
	ctx, w := ensureWaits(ctx)
	findings := make([]Finding, 0, len(steps))
	for _, s := range steps {
		f := s.perform(ctx, w, blocked, unwanted).printable()
		f.Number, f.ID = stepNumber, s.id
		if f.Result == Fail {
			blocked[s.id] = s.id
		}
		findings = append(findings, f)
	}
	return findings
}

func (s step) perform(ctx context.Context, w *waits, blocked map[string]string, unwanted []string) (f Finding) {
	if slices.Contains(unwanted, s.id) {
		return skip("not wanted")
	}
	for _, needed := range s.needs {
		if by := blocked[needed]; by != "" {
			blocked[s.id] = by
			return Finding{Result: Skip, Needs: stepNumber, Message: "skipped: needs " + by}
		}
	}
	before := w.number()
	defer func() {
		if p := recover(); p != nil {
			f = unknown(fmt.Sprintf("the check failed with a %T", p), "report this")
		}
	}()
	return w.settle(ctx, s.run(ctx), before)
}

func checksOf(steps []step) []Check {
	checks := make([]Check, 0, len(steps))
	for _, s := range steps {
		checks = append(checks, Check{Number: stepNumber, ID: s.id, Title: s.title})
	}
	return checks
}

// limited is what Config.complete does to a time-out and a clock.
func limited(timeout time.Duration, now func() time.Time) (time.Duration, func() time.Time) {
	c := Config{Timeout: timeout, Now: now}
	c.complete()
	return c.Timeout, c.Now
}
