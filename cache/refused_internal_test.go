package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A service that is eventually consistent refuses now and then. One refusal
// costs a good token nothing, the second drops it.
func TestTokenStaysUntilTheSecondRefusal(t *testing.T) {
	refused, away := &classified{"denied", Failure{Refused: true}}, errors.New("unavailable")
	gone := &classified{"misconfigured", Failure{Permanent: true}}
	for name, tc := range map[string]struct {
		second error
		after  time.Duration // between the failures, at least
		tries  int           // after the first failure
		kept   bool
	}{
		"none":                   {nil, 31 * time.Second, 1, true},
		"too early":              {refused, 29 * time.Second, 0, true},
		"after 30 seconds":       {refused, 31 * time.Second, 1, false},
		"after it is forgotten":  {refused, 7 * time.Minute, 1, true},
		"unavailable":            {away, 31 * time.Second, 1, true},
		"misconfigured, at once": {gone, 31 * time.Second, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				var fails error
				tries := 0
				m := &minter{mint: func(context.Context) (Token, error) {
					tries++
					return token("t", time.Hour), fails
				}}
				req := m.request(1, "a")
				old := mustSet(t, c, req)
				use := func() (Token, error) {
					got, _, err := c.GetOrSet(t.Context(), req)
					synctest.Wait() // for the renewal in the background
					return got, err
				}
				time.Sleep(50 * time.Minute)
				fails = refused
				if got, err := use(); err != nil || got != old {
					t.Fatalf("at the first refusal: %v, %v", got, err)
				}
				fails, tries = tc.second, 0
				time.Sleep(tc.after)
				if got, err := use(); err != nil || got != old {
					t.Errorf("before the second answer: %v, %v", got, err)
				}
				if tries != tc.tries {
					t.Errorf("%d tries, want %d", tries, tc.tries)
				}
				if got, err := use(); (err == nil) != tc.kept {
					t.Errorf("after the second answer: %v, %v", got, err)
				}
			})
		})
	}
}
