package soak

import (
	"testing"
	"time"
)

// evidence is something that a fault has to cause, and how often it has.
type evidence struct {
	what  string
	times int64
}

// checkFaults fails if a fault was not felt: a soak without faults proves
// nothing.
func (w *environment) checkFaults(t *testing.T) {
	least := max(3, int64(len(w.tenants)/len(w.allSides)/100)) // one in a hundred of a cloud's tenants
	for _, p := range w.phases {
		if p.felt == nil {
			continue
		}
		for _, e := range p.felt(w, p) {
			if e.times < least {
				t.Errorf("%s: the fault was not felt: %d times %s, not at least %d times", p.name, e.times, e.what, least)
			}
		}
	}
}

// failedWith is the exchanges of each cloud that failed with a result.
func failedWith(w *environment, p *phase, result string) (all []evidence) {
	for _, s := range w.allSides {
		all = append(all, evidence{"exchanges of " + s.name + " were " + result, p.of(s).failedExchanges.of(result)})
	}
	return all
}

func feltOutage(w *environment, p *phase) []evidence { return failedWith(w, p, "unavailable") }

func feltStorm(w *environment, p *phase) []evidence { return failedWith(w, p, "throttled") }

// feltCuts asks for requests, because an exchange sends another one and
// succeeds.
func feltCuts(w *environment, p *phase) []evidence {
	all := []evidence{{"connections were cut", w.cutOff.Load()}}
	for _, s := range w.allSides {
		all = append(all, evidence{"requests to " + s.name + " were cut", p.of(s).brokenRequests.Load()})
	}
	return all
}

// feltHang counts requests without an answer: they end with their connection,
// at the end.
func feltHang(w *environment, p *phase) []evidence {
	s := w.hanging()
	all := []evidence{{"requests to " + s.name + " had no answer", p.of(s).brokenRequests.Load()}}
	if p.length > sureToLeave {
		all = append(all, evidence{"calls for " + s.name + " left early", p.of(s).failures.of(leftEarly)})
	}
	return all
}

// sureToLeave is how long a cloud has to hang so that callers leave: the
// credentials that are due in that time expire, and exchanges take longer than
// the patience of the cache.
const sureToLeave = 8 * time.Second

func feltRestart(w *environment, p *phase) []evidence {
	var reads int64
	all := []evidence{}
	for _, s := range w.allSides {
		reads += p.of(s).failedReads.Load()
		all = append(all, evidence{"TokenRequests for " + s.name + " failed", p.of(s).failedTokenRequests.Load()},
			evidence{"the cache knew that exchanges of " + s.name + " failed because of the API server",
				w.observer.mints.of(s.name + " kubernetes_unavailable")})
	}
	return append(all, evidence{"ServiceAccounts could not be read", reads})
}

func feltClock(w *environment, p *phase) (all []evidence) {
	for _, s := range w.allSides {
		if s.name != "aws" {
			all = append(all, evidence{"exchanges of " + s.name + " were unavailable",
				p.of(s).failedExchanges.of("unavailable")})
			continue
		}
		var renewed int64
		for _, p := range w.phases { // the last ones after the clock is right again
			renewed += p.of(s).shortRenewals.Load()
		}
		all = append(all, evidence{"short-lived credentials of " + s.name + " were renewed", renewed})
	}
	return all
}

func (w *environment) hanging() *side { return w.allSides[len(w.allSides)-1] }

func notHanging(s *side) bool { return s != s.provider.environment.hanging() }

// checkLoad fails if there was less of it than the flags say, or if no
// credential came to its end.
func (w *environment) checkLoad(t *testing.T) {
	var made int64
	for _, p := range w.phases[1:] {
		for _, s := range w.allSides {
			made += p.of(s).calls.Load()
		}
	}
	if wanted := int64(w.loadTook.Seconds() * float64(*soakRate)); made*100 < wanted*95 {
		t.Errorf(
			"%d calls were made of %d, %d were left out: this machine is too slow or too busy for %d a second: make soak SOAKRATE=%d",
			made, wanted, w.heldBack.Load(), *soakRate, *soakRate/2)
	}
	w.checkTokenRequests(t)
	if *soakOnly != "" {
		return // that may take less than a life
	}
	for _, s := range w.allSides {
		if n := w.purposesOf(s); w.exchanges(s) < 2*n {
			t.Errorf("%s: %d exchanges for %d purposes: credentials are not renewed", s.name, w.exchanges(s), n)
		}
	}
	if n := w.observer.refreshes.of("success"); n < int64(len(w.tenants))/2 {
		t.Errorf("%d credentials of %d tenants were renewed ahead of time", n, len(w.tenants))
	}
}

// checkTokenRequests is for phases without a fault, in which each exchange
// takes one. Some of either may have begun in the phase before.
func (w *environment) checkTokenRequests(t *testing.T) {
	for i, p := range w.phases {
		across := 64 + p.inProgress
		if i+1 < len(w.phases) {
			across += w.phases[i+1].inProgress
		}
		for _, s := range w.allSides {
			sent, exchanges := p.of(s).tokenRequests.Load(), p.of(s).accessExchanges.Load()
			if off := sent - exchanges; p.fault == nil && max(off, -off) > int64(across)+exchanges/20 {
				t.Errorf("%s, %s: %d TokenRequests for %d exchanges", p.name, s.name, sent, exchanges)
			}
		}
	}
}
