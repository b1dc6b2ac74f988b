package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/pause"
)

func TestFor(t *testing.T) {
	for name, row := range map[string]struct {
		limit, d, want time.Duration
		err            error
	}{
		"the context lasts":       {time.Hour, time.Minute, time.Minute, nil},
		"the context ends before": {time.Minute, time.Hour, time.Minute, context.DeadlineExceeded},
		"no time at all":          {time.Minute, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), row.limit)
				defer cancel()
				start := time.Now()
				if err := pause.For(ctx, row.d); !errors.Is(err, row.err) || time.Since(start) != row.want {
					t.Errorf("%v after %s", err, time.Since(start))
				}
			})
		})
	}
}
