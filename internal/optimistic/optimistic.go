// Package optimistic retries writes that fail if their object has changed
// since it was read.
package optimistic

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/workloadid/workloadid/internal/pause"
)

// Tries is how often Write tries at most, within about five seconds.
const Tries = 8

// Write calls readAndWrite until it returns nil or an error that isConflict
// does not report, at most Tries times. It returns the last error, whatever
// that is. If ctx ends during a pause, it returns the cause and quotes the
// conflict. client-go's retry package returns nil for a timeout.
func Write(ctx context.Context, isConflict func(error) bool, readAndWrite func() error) error {
	pauses := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 1, Steps: Tries}
	for {
		err := readAndWrite()
		if err == nil || !isConflict(err) || pauses.Steps == 1 {
			return err
		}
		if pause.For(ctx, pauses.Step()) != nil {
			return fmt.Errorf("%w while other writers were faster: %s", context.Cause(ctx), err.Error())
		}
	}
}
