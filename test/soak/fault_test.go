package soak

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/authtest"
)

// What can fail besides the exchanges of some kind.
const (
	kubernetes = "kubernetes"
	// ahead is a time in which the clouds find all access tokens expired. Registries of Azure answer to those as they do to
	// identities without rights, which the library believes.
	ahead = "clock ahead"
)

func surroundings(kind string) bool { return kind == kubernetes || kind == ahead }

// phase is a part of the load, with a fault.
type phase struct {
	name    string
	percent int
	fault   func(w *world, t *testing.T, length time.Duration) // nil: none
	stats   map[*side]*stats

	length, took time.Duration
	begun        time.Time
}

func (p *phase) of(s *side) *stats { return p.stats[s] }

func (p *phase) play(t *testing.T, w *world) {
	if p.fault == nil {
		time.Sleep(p.length)
		return
	}
	p.fault(w, t, p.length)
}

func (p *phase) end() { p.took = time.Since(p.begun) }

func (w *world) phase() *phase { return w.current.Load() }

func (w *world) enter(p *phase) {
	p.begun = time.Now()
	w.current.Store(p)
}

// plan divides the time. Of five minutes, the token services are out for one. The warm-up takes what it takes.
func (w *world) plan(total time.Duration) {
	w.phases = []*phase{
		{name: "warm-up"},
		{name: "STS outage", percent: 20, fault: (*world).playOutage},
		{name: "recovery", percent: 10},
		{name: "429 storm", percent: 12, fault: (*world).playStorm},
		{name: "cut connections", percent: 12, fault: (*world).playCuts},
		{name: "one cloud hangs", percent: 10, fault: (*world).playHang},
		{name: "API server restart", percent: 12, fault: (*world).playRestart},
		{name: "clock jumps", percent: 14, fault: (*world).playClock},
		{name: "calm", percent: 10},
	}
	if *soakOnly != "" {
		w.phases = slices.DeleteFunc(w.phases, func(p *phase) bool { return p.fault != nil && p.name != *soakOnly })
	}
	for _, p := range w.phases {
		p.length, p.stats = total*time.Duration(p.percent)/100, map[*side]*stats{}
		for _, s := range w.allSides {
			p.stats[s] = &stats{}
		}
	}
}

// window is a time in which something is wrong.
type window struct {
	from, to time.Time // to is zero until it has ended
	of       func(s *side, kind string) bool
}

// fault opens a window.
func (w *world) fault(of func(s *side, kind string) bool) (end func()) {
	added := &window{from: time.Now(), of: of}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.windows = append(w.windows, added)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		added.to = time.Now()
	}
}

// faulty reports whether something was wrong with a cloud at any time between the two. No kind means all.
func (w *world) faulty(s *side, kind string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, window := range w.windows {
		if window.from.Before(to) && (window.to.IsZero() || window.to.After(from)) && window.of(s, kind) {
			return true
		}
	}
	return false
}

func clouds(_ *side, kind string) bool { return !surroundings(kind) }

// faults sets one at the services of all clouds.
func (w *world) faults(of func(s *side) []string, fault func(s *side) authtest.Fault) (end func()) {
	var ends []func()
	for _, s := range w.allSides {
		for _, service := range of(s) {
			f := fault(s)
			f.Service = service
			ends = append(ends, w.cloud.AddFault(f))
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func tokenServices(s *side) []string { return s.tokenServices }
func allServices(s *side) []string {
	return append(append([]string{}, s.tokenServices...), s.others...)
}

func sometimes(percent int) func(authtest.Call) bool {
	return func(authtest.Call) bool { return rand.IntN(100) < percent } //nolint:gosec // no secret
}

// playOutage has the token services of all clouds answer with errors.
func (w *world) playOutage(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	end := w.faults(tokenServices, func(*side) authtest.Fault {
		return authtest.Fault{Status: 503, Code: "ServiceUnavailable", Message: "The service is unavailable. Try again later."}
	})
	time.Sleep(length)
	end()
	closed()
}

// playStorm throttles most requests to all services, some of them with a time to wait for.
func (w *world) playStorm(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	set := func(percent int, after string) func(*side) authtest.Fault {
		return func(*side) authtest.Fault {
			return authtest.Fault{Status: 429, Code: "TooManyRequests", Message: "Rate exceeded", RetryAfter: after,
				Match: sometimes(percent)}
		}
	}
	plain, polite := w.faults(allServices, set(60, "")), w.faults(allServices, set(50, "3"))
	time.Sleep(length)
	plain()
	polite()
	closed()
}

// playCuts closes all connections twice a second, and has every fifth request end in the middle.
func (w *world) playCuts(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	end := w.faults(allServices, func(*side) authtest.Fault { return authtest.Fault{Cut: true, Match: sometimes(20)} })
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for over := time.Now().Add(length); time.Now().Before(over); <-tick.C {
		w.connections.cut()
	}
	end()
	closed()
}

// playHang has one cloud never answer. That is nothing to the tenants of the others.
func (w *world) playHang(_ *testing.T, length time.Duration) {
	hanging := w.allSides[len(w.allSides)-1]
	closed := w.fault(func(s *side, kind string) bool { return !surroundings(kind) && s == hanging })
	var ends []func()
	for _, service := range allServices(hanging) {
		ends = append(ends, w.cloud.AddFault(authtest.Fault{Service: service, Hang: true}))
	}
	time.Sleep(length)
	for _, end := range ends {
		end()
	}
	w.connections.cut() // what hangs would go on hanging
	closed()
}

// playRestart takes the API server away for a third of the time.
func (w *world) playRestart(t *testing.T, length time.Duration) {
	over := time.Now().Add(length)
	closed := w.fault(func(_ *side, kind string) bool { return kind == kubernetes })
	w.cluster.Restart(t, func() { time.Sleep(length / 3) })
	closed()
	time.Sleep(time.Until(over))
}

// playClock moves the clouds' clock: far ahead, where all tokens of the API server have expired; a little ahead; and so far
// back that the credentials of AWS, which end at a time and not after one, last for twenty seconds.
func (w *world) playClock(_ *testing.T, length time.Duration) {
	set := func(d time.Duration) {
		w.cloud.SetClock(func() time.Time { return time.Now().Add(d) })
	}
	closed, near := w.fault(clouds), w.fault(func(_ *side, kind string) bool { return kind == ahead })
	set(2 * time.Hour)
	time.Sleep(length / 4)
	set(20 * time.Minute)
	closed()
	near()
	time.Sleep(length / 4)
	closed = w.fault(func(s *side, kind string) bool {
		return !surroundings(kind) && (kind == "" || s.name != "aws" || kind == registryKind)
	})
	set(-time.Hour + shortLife)
	time.Sleep(length / 2)
	w.cloud.SetClock(nil)
	closed()
}

// shortLife is how long credentials of AWS last while the clouds' clock goes wrong.
const shortLife = 20 * time.Second
