// Package filelock locks files against other processes. The system releases the
// lock of a process that dies.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/workloadid/workloadid/internal/pause"
)

// ErrLocked is the error while another open file holds the lock.
var ErrLocked = errors.New("locked")

// Lock waits for the lock until ctx ends. Closing the file releases it.
func Lock(ctx context.Context, file *os.File) error {
	const most = 100 * time.Millisecond
	for delay := 2 * time.Millisecond; ; delay = min(2*delay, most) {
		if err := TryLock(file); !errors.Is(err, ErrLocked) {
			return err
		}
		if err := pause.For(ctx, delay); err != nil {
			return err
		}
	}
}
