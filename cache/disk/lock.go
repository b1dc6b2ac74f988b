package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/filelock"
)

// lock lets one process at a time mint the key. Several keys share each of 256 locks, so that the files need not be removed. If
// wait is set, it waits for a third of the time that is left. Then the caller continues without the lock, because its holder
// hangs, perhaps with another key.
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
		if err = filelock.TryLock(file); err == nil {
			return func() { _ = file.Close() }, nil // which unlocks
		}
		if !wait || !errors.Is(err, filelock.ErrLocked) {
			break
		}
		select {
		case <-time.After(pause):
			continue
		case <-waiting.Done():
		}
		err = ctx.Err() // nil: continue without the lock
		break
	}
	_ = file.Close() // the first error counts
	return func() {}, err
}

// maxPatience is the longest wait for a lock.
const maxPatience = 20 * time.Second

func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline)/3, maxPatience)
	}
	return maxPatience
}
