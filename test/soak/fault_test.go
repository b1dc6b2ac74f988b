package soak

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cloudtest"
)

// What can fail besides the exchanges of some kind.
const (
	kubernetes = "kubernetes"
	// ahead is a time in which the clouds find all access tokens expired.
	// Registries of Azure answer to those as they do to identities without
	// rights, which the library believes.
	ahead = "clock ahead"
	// skewed is a time in which the clouds' clock goes wrong. The SDK of AWS
	// sends what it has signed again.
	skewed = "clock skewed"
)

func surroundings(kind string) bool { return kind == kubernetes || kind == ahead || kind == skewed }

// phase is a part of the load, with a fault.
type phase struct {
	name    string
	percent int
	fault   func(w *environment, t *testing.T, length time.Duration) // nil: none
	// felt returns what shows that the fault was there. Nil: there is none.
	felt func(w *environment, p *phase) []evidence
	// unmoved is whose tenants must not notice the fault. Nil: all may.
	unmoved func(s *side) bool
	stats   map[*side]*stats

	length, took time.Duration
	begun        time.Time
	inProgress   int // under way when it began
}

func (p *phase) of(s *side) *stats { return p.stats[s] }

func (p *phase) play(t *testing.T, w *environment) {
	if p.fault == nil {
		time.Sleep(p.length)
		return
	}
	p.fault(w, t, p.length)
}

func (p *phase) end() { p.took = time.Since(p.begun) }

func (w *environment) phase() *phase { return w.current.Load() }

func (w *environment) enter(p *phase) {
	p.begun, p.inProgress = time.Now(), w.tokens.Stats().Exchanges
	w.current.Store(p)
}

// plan divides the time. Of five minutes, the token services are out for one.
// The warm-up takes what it takes.
func (w *environment) plan(t *testing.T, total time.Duration) {
	w.phases = []*phase{
		{name: "warm-up"},
		{name: "STS outage", percent: 20, fault: (*environment).playOutage, felt: feltOutage},
		{name: "recovery", percent: 10},
		{name: "429 storm", percent: 12, fault: (*environment).playStorm, felt: feltStorm},
		{name: "cut connections", percent: 12, fault: (*environment).playCuts, felt: feltCuts},
		{name: "one cloud hangs", percent: 8, fault: (*environment).playHang, felt: feltHang,
			unmoved: notHanging},
		{name: "API server restart", percent: 12, fault: (*environment).playRestart, felt: feltRestart},
		{name: "clock jumps", percent: 16, fault: (*environment).playClock, felt: feltClock},
		{name: "calm", percent: 10},
	}
	if *soakOnly != "" {
		if !slices.ContainsFunc(w.phases, func(p *phase) bool { return p.fault != nil && p.name == *soakOnly }) {
			t.Fatalf("no phase with a fault has the name %q", *soakOnly)
		}
		w.phases = slices.DeleteFunc(w.phases, func(p *phase) bool { return p.fault != nil && p.name != *soakOnly })
	}
	for _, p := range w.phases {
		p.length, p.stats = total*time.Duration(p.percent)/100, map[*side]*stats{}
		for _, s := range w.allSides {
			p.stats[s] = &stats{}
		}
	}
}

// faults sets one at the services of all clouds.
func (w *environment) faults(of func(s *side) []string, fault func(s *side) cloudtest.Fault) (end func()) {
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

func sometimes(percent int) func(cloudtest.Call) bool {
	return func(cloudtest.Call) bool { return rand.IntN(100) < percent } //nolint:gosec // no secret
}

// playOutage has the token services of all clouds answer with errors.
func (w *environment) playOutage(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	end := w.faults(tokenServices, func(*side) cloudtest.Fault {
		return cloudtest.Fault{Status: 503, Code: "ServiceUnavailable",
			Message: "The service is unavailable. Try again later."}
	})
	time.Sleep(length)
	end()
	closed()
}

// playStorm throttles most requests to all services, some of them with a time
// to wait for.
func (w *environment) playStorm(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	set := func(percent int, after string) func(*side) cloudtest.Fault {
		return func(*side) cloudtest.Fault {
			return cloudtest.Fault{Status: 429, Code: "TooManyRequests", Message: "Rate exceeded", RetryAfter: after,
				Match: sometimes(percent)}
		}
	}
	plain, polite := w.faults(allServices, set(60, "")), w.faults(allServices, set(50, "3"))
	time.Sleep(length)
	plain()
	polite()
	closed()
}

// playCuts closes all connections twice a second, and has every fifth request
// end in the middle.
func (w *environment) playCuts(_ *testing.T, length time.Duration) {
	closed := w.fault(clouds)
	end := w.faults(allServices, func(*side) cloudtest.Fault { return cloudtest.Fault{Cut: true, Match: sometimes(20)} })
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for over := time.Now().Add(length); time.Now().Before(over); <-tick.C {
		w.cutOff.Add(int64(w.connections.cut("")))
	}
	end()
	closed()
}

// playHang has one cloud never answer. That is nothing to the tenants of the
// others.
func (w *environment) playHang(_ *testing.T, length time.Duration) {
	hanging := w.hanging()
	closed := w.fault(func(s *side, kind string) bool { return !surroundings(kind) && s == hanging })
	var ends []func()
	for _, service := range allServices(hanging) {
		ends = append(ends, w.cloud.AddFault(cloudtest.Fault{Service: service, Hang: true}))
	}
	time.Sleep(length)
	for _, end := range ends {
		end()
	}
	w.connections.cut("googleapis.com") // what hangs would go on hanging
	closed()
}

// playRestart takes the API server away for a third of the time.
func (w *environment) playRestart(t *testing.T, length time.Duration) {
	over := time.Now().Add(length)
	closed := w.fault(func(_ *side, kind string) bool { return kind == kubernetes })
	w.cluster.Restart(t, func() { time.Sleep(length / 3) })
	closed()
	time.Sleep(time.Until(over))
}

// playClock moves the clouds' clock: far ahead, where all tokens of the API
// server have expired; a little ahead; and so far back that the credentials of
// AWS, which end at a time and not after one, last for seconds.
func (w *environment) playClock(_ *testing.T, length time.Duration) {
	set := func(d time.Duration) {
		w.cloud.SetClock(func() time.Time { return time.Now().Add(d) })
	}
	straight := w.fault(func(_ *side, kind string) bool { return kind == skewed })
	closed, near := w.fault(clouds), w.fault(func(_ *side, kind string) bool { return kind == ahead })
	set(2 * time.Hour)
	time.Sleep(length / clockPart)
	set(20 * time.Minute)
	closed()
	near()
	time.Sleep(length / clockPart)
	closed = w.fault(func(s *side, kind string) bool { return !surroundings(kind) && (kind == "" || s.name != "aws") })
	registries := w.fault(func(s *side, kind string) bool { return kind == registryKind && s.name == "aws" })
	set(-time.Hour + shortLife())
	time.Sleep(length - 2*length/clockPart)
	w.cloud.SetClock(nil)
	straight()
	closed()
	registries()
}

// clockPart is the part of its phase in which the clouds' clock is far ahead,
// and that in which it is a little ahead.
const clockPart = 8

// shortLife is how long credentials of AWS last while the clouds' clock is far
// back: they end while it is, and are renewed.
func shortLife() time.Duration { return min(20*time.Second, max(3*time.Second, *soakTime*6/100)) }
