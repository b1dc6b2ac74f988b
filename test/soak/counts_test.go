package soak

import "testing"

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

// checkCounts fails if a phase counted no call or no hit of a cloud, if a
// request was sent more often than a provider retries, or if the cache was too
// small.
func (w *environment) checkCounts(t *testing.T) {
	for _, s := range w.allSides {
		for _, p := range w.phases[1:] {
			if calls, hits := p.of(s).calls.Load(), p.of(s).hits.Load(); calls == 0 || hits == 0 {
				t.Errorf("%s, %s: got %d calls and %d hits, want some of both", p.name, s.name, calls, hits)
			}
		}
		exchanges := w.exchanges(s)
		if exchanges == 0 {
			t.Errorf("%s: got no exchange, want some", s.name)
		}
		if n, most := w.requests(s), exchanges*tries*int64(s.requests)+w.presented.Load(); n > most {
			t.Errorf("%s: got %d requests for %d exchanges, want at most %d", s.name, n, exchanges, most)
		}
	}
	if n := w.observer.evicted.Load(); n > 0 {
		t.Errorf("%d credentials were evicted, want none: the cache has room for all", n)
	}
}
