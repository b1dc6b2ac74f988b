package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestMinimumLifetime(t *testing.T) {
	away, denied := errors.New("unavailable"), &classified{"denied", Failure{Permanent: true}}
	for name, tc := range map[string]struct {
		life, minimum, age time.Duration
		fresh              bool
		fails              error
		renewed, waits     bool
	}{
		"enough is left": {life: time.Hour, minimum: 30 * time.Minute, age: 29 * time.Minute},
		"too little is left": {life: time.Hour, minimum: 30 * time.Minute, age: 31 * time.Minute,
			renewed: true, waits: true},
		"too little is left, unavailable": {life: time.Hour, minimum: 30 * time.Minute, age: 31 * time.Minute,
			fails: away, waits: true},
		"too little is left, denied": {life: time.Hour, minimum: 30 * time.Minute, age: 31 * time.Minute,
			fails: denied, waits: true},
		"longer than any token, first quarter": {life: time.Hour, minimum: 24 * time.Hour, age: 14 * time.Minute},
		"longer than any token, later": {life: time.Hour, minimum: 24 * time.Hour, age: 16 * time.Minute,
			renewed: true, waits: true},
		"a short token, first quarter": {life: time.Minute, minimum: time.Hour, age: 14 * time.Second},
		"a short token, later": {life: time.Minute, minimum: time.Hour, age: 16 * time.Second,
			renewed: true, waits: true},
		"due for renewal, enough is left": {life: time.Hour, minimum: 5 * time.Minute, age: 50 * time.Minute,
			renewed: true},
		"due for renewal, fresh wanted": {life: time.Hour, minimum: 5 * time.Minute, age: 50 * time.Minute,
			fresh: true, renewed: true, waits: true},
		"longer than it is kept": {life: 12 * time.Hour, minimum: time.Hour, age: 44 * time.Minute},
		"longer than it is kept, due for renewal": {life: 12 * time.Hour, minimum: time.Hour, age: 55 * time.Minute,
			renewed: true},
		"no minimum":          {life: time.Hour, age: 40 * time.Minute},
		"negative":            {life: time.Hour, minimum: -time.Hour, age: 40 * time.Minute},
		"a lifetime of years": {life: 1000 * time.Hour * 24, minimum: time.Hour, age: 40 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCache(t)
				var fails error
				m := &minter{mint: func(context.Context) (Token, error) {
					time.Sleep(time.Second) // of a bubble
					return token("t", tc.life), fails
				}}
				req := m.request(1, "a")
				old := mustSet(t, c, req)
				time.Sleep(tc.age)
				fails = tc.fails
				req.MinimumLifetime, req.fresh = tc.minimum, tc.fresh
				hit, ok := c.Get(req.Key, req.Object, tc.minimum, time.Time{})
				if want := !tc.renewed && !tc.waits; ok != want || ok && hit != old {
					t.Errorf("Get: %v, %t", hit, ok)
				}
				start := time.Now()
				got, retrieved, err := c.GetOrSet(t.Context(), req)
				if waited := time.Since(start) > 0; waited != tc.waits {
					t.Errorf("waited: %t", waited)
				}
				switch {
				case errors.Is(tc.fails, denied):
					if !errors.Is(err, denied) {
						t.Errorf("got %v, %v", got, err)
					}
				case err != nil || (got == old) != (tc.fails != nil || !tc.waits) || retrieved != (got == old):
					t.Errorf("got the old one: %t, retrieved %t, %v", got == old, retrieved, err)
				}
				synctest.Wait()
				time.Sleep(2 * time.Second)
				if renewed := m.calls.Load() == 2; renewed != (tc.renewed || tc.waits) {
					t.Errorf("%d exchanges", m.calls.Load())
				}
			})
		})
	}
}

// While renewals fail, callers do not wait again and again.
func TestMinimumLifetimeDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t)
		var err error
		m := slow(&err)
		req := m.request(1, "a")
		req.MinimumLifetime = 30 * time.Minute
		old := mustSet(t, c, req)
		time.Sleep(31 * time.Minute)
		err = errors.New("unavailable")
		for range 10 * 60 * 10 {
			if got := mustSet(t, c, req); got != old {
				t.Fatal("another token")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := m.calls.Load(); n > 35 {
			t.Errorf("%d exchanges in ten minutes", n)
		}
	})
}

func TestMinimumLifetimeOnBothClocks(t *testing.T) {
	for name, tc := range map[string]struct {
		wall, mono time.Duration
		want       bool
	}{
		"both advance":                   {29 * time.Minute, 29 * time.Minute, true},
		"suspended: only the wall clock": {31 * time.Minute, time.Minute, false},
		"set back":                       {-time.Hour, 31 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := instantAt(time.Now(), time.Now().Add(-time.Second))
			e := newEntry(Minted{}, time.Hour, time.Hour, now)
			later := instant{wall: now.wall + int64(tc.wall), mono: now.mono + int64(tc.mono)}
			if got := e.lasts(30*time.Minute, later); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
