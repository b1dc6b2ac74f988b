package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// errLocked means that somebody else holds the lock.
var errLocked = errors.New("locked")

// lock makes sure that one process at a time mints what has the key. There are 256 locks, so that they need not be removed:
// several keys share each. If wait is set it waits for its turn, for a third of the time that is left, and goes on without
// the lock then: whoever holds it hangs, and may do so for the sake of another key.
func (c *Cache) lock(ctx context.Context, key cache.Key, wait bool) (unlock func(), err error) {
	name := fmt.Sprintf("lock-%02x", key[0])
	if info, err := c.root.Lstat(name); err == nil {
		if err := check(filepath.Join(c.dir, name), info, false); err != nil {
			return nil, err
		}
	}
	file, err := c.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, c.unwritable(err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	const most = 100 * time.Millisecond
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, most) {
		if err = tryLock(file); err == nil {
			return func() { _ = file.Close() }, nil // which unlocks
		}
		if !wait || !errors.Is(err, errLocked) {
			break
		}
		if sleep(waiting, pause) != nil {
			err = ctx.Err() // nil: go on
			break
		}
	}
	_ = file.Close() // the first error counts
	return func() {}, err
}

// maxPatience is how long a lock is waited for at most.
const maxPatience = 20 * time.Second

func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline)/3, maxPatience)
	}
	return maxPatience
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
