package optimistic_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/optimistic"
)

var errConflict, errOther = errors.New("conflict"), errors.New("other")

// The last error wins, whatever it is.
func TestWrite(t *testing.T) {
	for name, row := range map[string]struct {
		answers []error // the last one repeats
		want    error
		tries   int
	}{
		"success":                        {[]error{nil}, nil, 1},
		"success after a conflict":       {[]error{errConflict, nil}, nil, 2},
		"a timeout":                      {[]error{context.DeadlineExceeded}, context.DeadlineExceeded, 1},
		"an interrupt":                   {[]error{context.Canceled}, context.Canceled, 1},
		"a conflict, then a timeout":     {[]error{errConflict, context.DeadlineExceeded}, context.DeadlineExceeded, 2},
		"a conflict, then another error": {[]error{errConflict, errOther}, errOther, 2},
		"conflicts without an end":       {[]error{errConflict}, errConflict, optimistic.Tries},
		"a timeout that counts as conflict": {[]error{errors.Join(errConflict, context.DeadlineExceeded)},
			context.DeadlineExceeded, optimistic.Tries},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, start := 0, time.Now()
				err := optimistic.Write(t.Context(), isConflict, func() error {
					tries++
					return row.answers[min(tries, len(row.answers))-1]
				})
				if !errors.Is(err, row.want) || tries != row.tries || time.Since(start) > 6*time.Second {
					t.Errorf("%d tries in %s: %v", tries, time.Since(start), err)
				}
			})
		})
	}
}

func isConflict(err error) bool { return errors.Is(err, errConflict) }

// The end of the context ends a pause. Its error is the last one.
func TestWriteEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		tries := 0
		err := optimistic.Write(ctx, isConflict, func() error { tries++; return errConflict })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errConflict) ||
			!strings.Contains(err.Error(), "conflict") || tries != 1 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
}
