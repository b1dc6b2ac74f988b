package soak

import (
	"testing"
	"time"
)

// tries is how often a provider sends a request at most.
const tries = 3

func (w *environment) exchanges(s *side) (n int64) {
	for _, p := range w.phases {
		n += p.of(s).exchanges.Load()
	}
	return n
}

func (w *environment) requests(s *side) (n int64) {
	for _, service := range allServices(s) {
		n += int64(w.cloud.Calls(service, ""))
	}
	return n
}

// budget is how many exchanges a cloud's tenants may make: each purpose one at
// the start and then one whenever three quarters of its life have passed; while
// a fault lasts, as many more as the back-off lets through from when a purpose
// is due for renewal, which is at any time of its life; and some for each
// change of a tenant. It is up to twice what happens, because what has been
// renewed together in the phase before is due together.
func (w *environment) budget(s *side) int64 {
	purposes := float64(w.purposesOf(s))
	n := purposes
	renewal := w.maxDuration * 3 / 4
	for _, p := range w.phases[1:] {
		took := p.took
		switch {
		case p.name == "API server restart":
			took -= w.downtime
		case p.name == "clock jumps" && s.name == "aws":
			n += purposes * renewals(took*(clockPart-2)/clockPart, renewal, min(renewal, w.lifeInCache(shortLife())*3/4))
			took = took * 2 / clockPart
		}
		if p.failing != nil {
			failing := time.Duration(p.failing(s) * float64(p.took))
			n += purposes * failures(failing, renewal)
			took = max(0, took-failing)
		}
		n += purposes * took.Seconds() / renewal.Seconds()
	}
	return int64(n) + int64(s.purposes)*w.changes.of(s.name)
}

// renewals is how many exchanges of a purpose there are on average when lives
// become shorter: the first one when it is due by its old life, then one for
// each short life.
func renewals(d, before, since time.Duration) float64 {
	due := min(d, before).Seconds() // at any time until then
	return due / before.Seconds() * (1 + (d.Seconds()-due/2)/since.Seconds())
}

func (w *environment) purposesOf(s *side) (n int64) {
	for _, t := range w.tenants {
		switch {
		case t.side != s:
		case t.usesRegistry():
			n += int64(s.purposes)
		default:
			n++
		}
	}
	return n
}

// failures is how many exchanges of a purpose that has to be renewed every so
// often fail on average while all do.
func failures(d, renewal time.Duration) float64 {
	const steps = 100
	var sum float64
	for i := range steps {
		if due := renewal * time.Duration(i) / steps; due < d {
			sum += float64(attempts(d - due))
		}
	}
	return sum / steps
}

// attempts is how many exchanges of one key can fail in a time.
func attempts(d time.Duration) (n int64) {
	for wait := time.Second * 9 / 10; d >= 0; wait = min(2*wait, 27*time.Second) {
		d -= wait
		n++
	}
	return n
}

func (w *environment) checkBudget(t *testing.T) {
	for _, s := range w.allSides {
		if n, most := w.exchanges(s), w.budget(s); n > most {
			t.Errorf("%s: %d exchanges of a budget of %d", s.name, n, most)
		}
		if n, most := w.requests(s), w.exchanges(s)*tries*int64(s.requests)+w.presented.Load(); n > most {
			t.Errorf("%s: %d requests of a budget of %d", s.name, n, most)
		}
		if w.exchanges(s) == 0 {
			t.Errorf("%s: no exchange was made", s.name)
		}
	}
	if n := w.observer.evicted.Load(); n > 0 {
		t.Errorf("%d credentials had to make room for others", n)
	}
}
