package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// taking returns a minter whose exchange takes a while, unless its context ends
// before.
func taking(d time.Duration) *minter {
	return &minter{mint: func(ctx context.Context) (Token, error) {
		select {
		case <-time.After(d):
			return token("t", time.Hour), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

// on returns the request of m, which is made of others.
func (m *minter) on(n int, needs ...Request) Request {
	req := m.request(n, "a")
	req.Needs = func() ([]Request, error) { return needs, nil }
	return req
}

// A credential has as much time as its needs together have: two exchanges of
// two seconds each fit into three seconds each, and three do not.
func TestNeedsAndExchangeHaveTheSameTimeEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t, withMintTimeout(3*time.Second)), taking(2*time.Second)
		if _, _, err := c.GetOrSet(t.Context(), m.on(2, m.request(1, "a"))); err != nil {
			t.Errorf("one need: got %v, want a token after 4s", err)
		}
		_, _, err := c.GetOrSet(t.Context(), m.on(5, m.on(4, m.request(3, "a"))))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a need that has a need: got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// A service that does not accept a need gets a new one at the next exchange.
func TestRefusedNeedsAreDropped(t *testing.T) {
	for name, row := range map[string]struct {
		failure Failure
		want    int64
	}{
		"refused":     {Failure{RefusesNeeds: true}, 2},
		"unavailable": {Failure{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, part := newTestCache(t), &minter{mint: hourly}
				whole := &minter{mint: func(context.Context) (Token, error) { return nil, &classified{name, row.failure} }}
				mustSet(t, c, part.request(1, "a"))
				time.Sleep(time.Minute) // a need that is new is not replaced
				for range 2 {
					if _, _, err := c.GetOrSet(t.Context(), whole.on(2, part.request(1, "a"))); err == nil {
						t.Error("got no error of the exchange")
					}
					time.Sleep(maxBackoff * 2)
				}
				if got := part.calls.Load(); got != row.want {
					t.Errorf("the need was obtained %d times, want %d", got, row.want)
				}
			})
		})
	}
}

// A need that is due for renewal is renewed first, so that what is made of it
// lasts.
func TestNeedsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, part, whole := newTestCache(t), &minter{mint: hourly}, &minter{mint: hourly}
		old := mustSet(t, c, part.request(1, "a"))
		time.Sleep(50 * time.Minute)
		var got []Token
		req := whole.on(2, part.request(1, "a"))
		req.Mint = func(_ context.Context, needs []Token) (Minted, error) {
			got = needs
			return Minted{Token: token("t", time.Hour)}, nil
		}
		mustSet(t, c, req)
		if len(got) != 1 || got[0] == old {
			t.Errorf("the exchange got %d needs, the old one among them: %t; want one new need", len(got),
				slices.Contains(got, old))
		}
	})
}

// A token leaves the cache at the earliest bound of its needs, and is renewed
// before.
func TestEarliestBoundOfNeedsWins(t *testing.T) {
	bound := func(n int, after time.Duration) Request {
		req := (&minter{mint: hourly}).request(n, "a")
		req.Mint = func(context.Context, []Token) (Minted, error) {
			return Minted{token("t", time.Hour), time.Now().Add(after)}, nil
		}
		return req
	}
	for name, order := range map[string]func(early, late Request) []Request{
		"the first": func(early, late Request) []Request { return []Request{early, late} },
		"the last":  func(early, late Request) []Request { return []Request{late, early} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, whole := newTestCache(t), &minter{mint: hourly}
				req := whole.on(3, order(bound(1, 10*time.Minute), bound(2, 30*time.Minute))...)
				mustSet(t, c, req)
				time.Sleep(6 * time.Minute)
				mustSet(t, c, req)
				if got := whole.calls.Load(); got != 1 {
					t.Errorf("%d exchanges after 6 of 10 minutes, want 1", got)
				}
				time.Sleep(3 * time.Minute)
				mustSet(t, c, req) // serves the old token, and renews it
				synctest.Wait()
				if got := whole.calls.Load(); got != 2 {
					t.Errorf("%d exchanges after 9 of 10 minutes, want 2", got)
				}
			})
		})
	}
}
