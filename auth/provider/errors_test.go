package provider_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
)

// A caller that comes back after RetryAfter comes back after each throttled
// error.
func TestRetryAfterOfThrottledErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err  provider.Error
		want time.Duration
	}{
		"no hint": {provider.Error{Reason: provider.ErrThrottled}, time.Second},
		"a hint":  {provider.Error{Reason: provider.ErrThrottled, Wait: 30 * time.Second}, 30 * time.Second},
		"68 years": {provider.Error{Reason: provider.ErrThrottled, Wait: math.MaxInt32 * time.Second},
			time.Hour},
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

// The code of an API server may be any text.
func TestCodesInErrors(t *testing.T) {
	e := &provider.Error{Reason: provider.ErrDenied, StatusCode: 403, Code: "\x1b[31mRed\n" + strings.Repeat("x", 3<<20)}
	if text := e.Error(); len(text) > 400 || !strings.HasPrefix(text, "denied (HTTP 403, [31mRed x") {
		t.Errorf("got %.500q", text)
	}
}
