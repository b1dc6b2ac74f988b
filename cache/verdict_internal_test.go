package cache

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// broken is a provider's error or token with a method that panics from its n-th
// call on.
type broken struct{ left int }

func (b *broken) called() {
	if b.left--; b.left < 0 {
		panic("secret")
	}
}

func (b *broken) Error() string              { return "broken" }
func (b *broken) GetDuration() time.Duration { b.called(); return time.Hour }

type brokenChain struct{ broken }

func (b *brokenChain) Unwrap() error           { b.called(); return nil }
func failing(err error) func() (Token, error)  { return func() (Token, error) { return nil, err } }
func giving(token Token) func() (Token, error) { return func() (Token, error) { return token, nil } }
func (b *broken) after(calls int) *broken      { b.left = calls; return b }
func isPanic(err error) bool                   { return errors.As(err, new(*PanicError)) }
func (m *minter) with(mint func() (Token, error)) {
	m.mint = func(context.Context) (Token, error) { return mint() }
}

func classifyWith(f func()) func(error) Failure {
	return func(error) Failure { f(); return Failure{} }
}

// A panic in a caller's or a provider's method is an error of its own request
// only.
func TestMethodsThatPanic(t *testing.T) {
	for name, tc := range map[string]struct {
		mint     func() (Token, error)
		classify func(error) Failure
	}{
		"Classify":    {failing(errors.New("failed")), classifyWith(func() { panic("secret") })},
		"Unwrap":      {failing(&brokenChain{}), nil},
		"GetDuration": {giving(&broken{}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, capacity := range []int{0, 100} {
					c := newCacheOf(t, capacity)
					m, others := &minter{}, &minter{mint: hourly}
					m.with(tc.mint)
					req := m.request(1, "a")
					req.Classify = tc.classify
					if got, _, err := c.GetOrSet(t.Context(), req); !isPanic(err) || got != nil {
						t.Errorf("capacity %d: got %v, %v", capacity, got, err)
					}
					mustSet(t, c, others.request(2, "b"))
					if s := c.Stats(); s.Exchanges != 0 || s.Running != 0 {
						t.Errorf("capacity %d: %+v", capacity, s)
					}
				}
			})
		})
	}
	c, m := newTestCache(t), &minter{}
	m.with(giving((&broken{}).after(1))) // it is asked once
	mustSet(t, c, m.request(1, "a"))
}

// A Classify that ends the goroutine leaves no caller waiting.
func TestErrorThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &minter{}
		m.with(failing(errors.New("failed")))
		req := m.request(1, "a")
		req.Classify = classifyWith(runtime.Goexit)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := c.GetOrSet(ctx, req); !errors.Is(err, errExited) {
			t.Errorf("got %v", err)
		}
		if s := c.Stats(); s.Exchanges != 0 || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("got %+v, want no exchange and no caller", s)
		}
	})
}
