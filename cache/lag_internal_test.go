package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// machine is a simulated one. It serves 200 exchanges a second, each in ten
// steps between which others have the CPU.
type machine struct{ runnable atomic.Int64 }

const machineStep = time.Second / 200 / 10

// yield waits until all others have run once.
func (m *machine) yield() { time.Sleep(time.Duration(m.runnable.Load()) * machineStep) }

// mint asks a service that takes 50 ms.
func (m *machine) mint(context.Context) (Token, error) {
	time.Sleep(50 * time.Millisecond)
	m.runnable.Add(1)
	defer m.runnable.Add(-1)
	for range 10 {
		m.yield()
	}
	return token("t", time.Hour), nil
}

// Three thousand tenants want credentials at once, on a machine that serves
// fewer exchanges than the rate lets start. All succeed without an error, in
// the time that the machine needs.
func TestStormLargerThanTheMachine(t *testing.T) {
	const tenants = 3000
	synctest.Test(t, func(t *testing.T) {
		c, m := newTestCache(t), &machine{}
		c.limits.yield = m.yield
		counted := &minter{mint: m.mint}
		start := time.Now()
		var all sync.WaitGroup
		var failures atomic.Int64
		for n := range tenants {
			all.Go(func() {
				if _, _, err := c.GetOrSet(t.Context(), counted.request(n, fmt.Sprint(n))); err != nil {
					failures.Add(1)
				}
			})
		}
		all.Wait()
		took := time.Since(start)
		t.Logf("%d tenants: %s", tenants, took)
		if failures.Load() != 0 || counted.calls.Load() != tenants || took > 20*time.Second {
			t.Errorf("it took %s, %d exchanges, %d failures", took, counted.calls.Load(), failures.Load())
		}
		c.Close()
		expectNoneRecent(t, c.limits)
	})
}

func expectNoneRecent(t *testing.T, l *limits) {
	t.Helper()
	synctest.Wait()
	expectUnused(t, l)
	if n := l.recent.Load(); n != 0 || len(l.turn) != 0 {
		t.Errorf("kept: %d recent exchanges, %d turns", n, len(l.turn))
	}
}

// An attacker with 500 tenants makes 4,000 exchanges slow at an address of its
// own. The machine does not lag, so exchanges start as fast as before.
func TestSlowServicesAreNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, good := newTestCache(t), &minter{mint: hourly}
		for n := range 4000 {
			mint := slowly(20 * time.Second)
			req := Request{Key: key(n), Tenant: fmt.Sprint("slow-", n%500), Provider: "test", Mint: plain(mint)}
			go c.GetOrSet(t.Context(), req) //nolint:errcheck // leaves after the patience
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s := c.Stats(); s.Running != 4000 || s.QueuedForRate != 0 {
			t.Errorf("stats %+v", s)
		}
		start := time.Now()
		for n := range 20 {
			mustSet(t, c, good.request(10_000+n, fmt.Sprint("honest-", n)))
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the honest tenants waited %s", took)
		}
		c.Close()
		expectNoneRecent(t, c.limits)
	})
}

// lagging returns limits of a machine that lags, with as many exchanges as it
// starts before it waits.
func lagging(t *testing.T) (l *limits, leave []func()) {
	t.Helper()
	l = newLimits()
	l.yield = func() { time.Sleep(maxLag + 1) }
	for n := range maxRecent {
		end, err := l.enter(t.Context(), tenantAt{fmt.Sprint("first-", n), "test"}, mintTimeout, func() {})
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, end)
	}
	return l, leave
}

// While the machine lags, an exchange starts when another ends or is no longer
// recent. One that gives up before its turn, at the head of the queue or behind
// it, keeps no turn.
func TestLaggingMachineStartsAsOthersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, leave := lagging(t)
		began := time.Now()
		enter := func(name string, give, longest time.Duration) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), give)
			defer cancel()
			return l.enter(ctx, tenantAt{name, "test"}, longest, func() {})
		}
		var all sync.WaitGroup
		for _, name := range []string{"head", "behind"} {
			all.Go(func() {
				_, err := enter(name, 500*time.Millisecond, mintTimeout)
				if !errors.Is(err, context.DeadlineExceeded) || isLimited(err) {
					t.Errorf("%s: got %v", name, err)
				}
			})
		}
		all.Go(func() {
			_, err := enter("impatient", time.Minute, 700*time.Millisecond)
			if !isLimited(err) || !strings.Contains(err.Error(), "the CPU of this process") {
				t.Errorf("got %v", err)
			}
		})
		all.Wait()
		if took := time.Since(began); took != 700*time.Millisecond {
			t.Errorf("they waited %s", took)
		}
		go leave[0]()
		end, err := enter("as one ends", time.Minute, mintTimeout)
		if took := time.Since(began); err != nil || took > 700*time.Millisecond+maxLag {
			t.Errorf("%v after %s", err, took)
		}
		late, err := enter("as others hang", time.Minute, mintTimeout)
		if took := time.Since(began); err != nil || took < recently || took > recently+maxLag {
			t.Errorf("%v after %s", err, took)
		}
		for _, end := range append(leave[1:], end, late) {
			end()
		}
		expectNoneRecent(t, l)
	})
}

// What waited while the machine lagged does not start faster than the rate
// afterwards.
func TestRateAfterALag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, leave := lagging(t)
		l.starts, l.paced = rate.NewLimiter(100, 1), rate.NewLimiter(100, 1)
		var started atomic.Int64
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				end, err := l.enter(t.Context(), tenantAt{fmt.Sprint(n), "test"}, mintTimeout, func() {})
				if err != nil {
					t.Error(err)
					return
				}
				started.Add(1)
				end()
			})
		}
		time.Sleep(recently - 5*time.Millisecond) // the first exchanges are still recent
		if n := started.Load(); n != 0 {
			t.Errorf("%d started during the lag", n)
		}
		time.Sleep(255 * time.Millisecond)
		if n := started.Load(); n == 0 || n > 26 {
			t.Errorf("%d started within a quarter of a second at 100 a second", n)
		}
		all.Wait()
		for _, end := range leave {
			end()
		}
		expectNoneRecent(t, l)
	})
}
