package provider_test

import (
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
)

// A caller that comes back after RetryAfter comes back after each throttled error.
func TestRetryAfterOfThrottledErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err  provider.Error
		want time.Duration
	}{
		"no hint":                  {provider.Error{Reason: provider.ErrThrottled}, time.Second},
		"a hint":                   {provider.Error{Reason: provider.ErrThrottled, Wait: 30 * time.Second}, 30 * time.Second},
		"unavailable, no hint":     {provider.Error{Reason: provider.ErrUnavailable}, 0},
		"unavailable, with a hint": {provider.Error{Wait: time.Minute}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.err.RetryAfter(); got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
}
