package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// Work that knows nothing of contexts, such as reading a named pipe, does not outlast the time-out by much.
func TestWorkThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		end := make(chan struct{})
		start := time.Now()
		answer, err := Within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		if answer != nil || !errors.Is(err, auth.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Minute+Grace {
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		start = time.Now()
		answer, err = Within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		if answer != nil || !errors.Is(err, ErrInterrupted) || time.Since(start) > time.Second+Grace/5 { // for the state of a wait
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		close(end)
		answer, err = Within(t.Context(), func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		if string(answer) != "answer" || err != nil {
			t.Errorf("got %q, %v", answer, err)
		}
	})
}

func TestFilesAreReadWithinBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, make([]byte, MaxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBounded(file); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
