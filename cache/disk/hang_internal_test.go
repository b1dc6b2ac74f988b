//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// A process that hangs with a lock delays others with the same lock, but does
// not stop them.
func TestALockThatIsNotGivenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		context func(ctx context.Context) (context.Context, context.CancelFunc)
		waits   time.Duration
		want    error
	}{
		"no end":      {context.WithCancel, maxPatience, nil},
		"a deadline":  {deadlineIn(3 * time.Second), time.Second, nil},
		"a later one": {deadlineIn(time.Hour), maxPatience, nil},
		"interrupted": {interruptedAfter(time.Second), time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := open(t, filepath.Join(t.TempDir(), "kept")), &service{life: time.Hour}
				unlock, err := c.lock(t.Context(), cache.Key{1}, true)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
				for n, key := range []cache.Key{{1}, {1, 1}} {
					ctx, cancel := tc.context(t.Context())
					defer cancel()
					start := time.Now()
					e, err := c.GetOrMint(ctx, key, s.mint)
					if took := time.Since(start).Round(time.Second); took != tc.waits || !errors.Is(err, tc.want) ||
						(err == nil) != (string(e.Data) == fmt.Sprint("credential ", n+1)) {
						t.Errorf("after %s: %q, %v", took, e.Data, err)
					}
					start = time.Now()
					if again, err := c.GetOrMint(t.Context(), key, s.mint); tc.want == nil &&
						(err != nil || string(again.Data) != string(e.Data) || time.Since(start) > 0) {
						t.Errorf("it was not kept: %q, %v", again.Data, err)
					}
				}
			})
		})
	}
}

// While a service does not answer, the old entry is served, also at the
// caller's deadline, but not to an interrupted caller.
func TestServiceThatHangs(t *testing.T) {
	for name, tc := range map[string]struct {
		context func(ctx context.Context) (context.Context, context.CancelFunc)
		takes   time.Duration
		want    error
	}{
		"no end":      {context.WithCancel, renewalTime, nil},
		"a deadline":  {deadlineIn(3 * time.Second), 3 * time.Second, nil},
		"a later one": {deadlineIn(time.Minute), renewalTime, nil},
		"interrupted": {interruptedAfter(time.Second), time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open(t, filepath.Join(t.TempDir(), "kept"))
				get(t, c, cache.Key{1}, &service{life: time.Hour})
				time.Sleep(50 * time.Minute)
				ctx, cancel := tc.context(t.Context())
				defer cancel()
				start := time.Now()
				e, err := c.GetOrMint(ctx, cache.Key{1}, func(ctx context.Context) (Entry, error) {
					<-ctx.Done()
					return Entry{}, ctx.Err()
				})
				if took := time.Since(start); !errors.Is(err, tc.want) || (err == nil) != (string(e.Data) == "credential 1") ||
					took != tc.takes {
					t.Errorf("after %s: %s, %v", took, e.Data, err)
				}
			})
		})
	}
}

func deadlineIn(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func interruptedAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}
