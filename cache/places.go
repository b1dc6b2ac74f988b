package cache

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// slowAfter is when an exchange stops counting among the fast ones.
	slowAfter = time.Second
	// slowFactor times as many slow exchanges as fast ones may be under way.
	slowFactor = 8
)

// places decides whose exchange runs next. The providers take turns, and so do the tenants of each.
type places struct {
	all, perTenant int

	mu       sync.Mutex
	free     int // places for fast exchanges
	freeSlow int
	lines    map[whose]*line     // those with an exchange that runs or waits
	services map[string]*service // by provider: those with lines
	turns    list.List           // of *service: those with ready lines
	running  int
	queued   int
}

// service is what the exchanges of one provider have in common.
type service struct {
	lines   int           // how many there are
	fast    int           // how many are in places for fast ones
	ready   list.List     // of *line: those with an exchange that waits, and fewer that run than they may have
	inTurns *list.Element // in places.turns, or nil
}

// whose names a tenant at a provider: where one provider hangs, the tenant's exchanges with the others go on.
type whose struct{ tenant, provider string }

// line is the exchanges of a tenant at one provider.
type line struct {
	whose
	service *service
	running int
	queue   list.List     // of chan struct{}, closed when it is one's turn
	inReady *list.Element // in service.ready, or nil
}

func newPlaces(all, perTenant int) *places {
	p := &places{perTenant: perTenant, lines: map[whose]*line{}, services: map[string]*service{}}
	p.setFree(all)
	return p
}

func (p *places) setFree(n int) { p.all, p.free, p.freeSlow = n, n, n*slowFactor }

// count returns how many exchanges have a place and how many wait for one.
func (p *places) count() (running, queued int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.queued
}

// place is held by one exchange.
type place struct {
	places *places
	line   *line
	timer  *time.Timer
	slow   bool
}

// take waits for a place until ctx ends. The error says for whom.
func (p *places) take(ctx context.Context, w whose) (*place, error) {
	turn := make(chan struct{})
	p.mu.Lock()
	l := p.line(w)
	waiting := l.queue.PushBack(turn)
	p.queued++
	p.update(l)
	p.dispatch()
	p.mu.Unlock()

	select {
	case <-turn:
	case <-ctx.Done():
		if whom, ok := p.withdraw(l, waiting, turn); ok {
			return nil, fmt.Errorf("%s to end: %w", whom, ctx.Err())
		}
	}
	held := &place{places: p, line: l}
	p.mu.Lock() // slowDown uses the timer too
	held.timer = time.AfterFunc(slowAfter, held.slowDown)
	p.mu.Unlock()
	return held, nil
}

// line returns that of a tenant at a provider. The lock is held.
func (p *places) line(w whose) *line {
	if l := p.lines[w]; l != nil {
		return l
	}
	s := p.services[w.provider]
	if s == nil {
		s = &service{}
		p.services[w.provider] = s
	}
	l := &line{whose: w, service: s}
	p.lines[w] = l
	s.lines++
	return l
}

// withdraw takes a waiting exchange out of the queue, unless it has got its place meanwhile. It tells whose exchanges have
// the places.
func (p *places) withdraw(l *line, waiting *list.Element, turn chan struct{}) (whom string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-turn:
		return "", false
	default:
	}
	whom = "exchanges of other tenants"
	if l.running >= p.perTenant {
		whom = fmt.Sprintf("other exchanges of tenant %q", l.tenant)
	}
	l.queue.Remove(waiting)
	p.queued--
	p.update(l)
	return whom, true
}

// update keeps the lists true after a change to l. The lock is held.
func (p *places) update(l *line) {
	s, ready := l.service, l.queue.Len() > 0 && l.running < p.perTenant
	switch {
	case ready && l.inReady == nil:
		l.inReady = s.ready.PushBack(l)
	case !ready && l.inReady != nil:
		s.ready.Remove(l.inReady)
		l.inReady = nil
	}
	switch {
	case s.ready.Len() > 0 && s.inTurns == nil:
		s.inTurns = p.turns.PushBack(s)
	case s.ready.Len() == 0 && s.inTurns != nil:
		p.turns.Remove(s.inTurns)
		s.inTurns = nil
	}
	if l.running == 0 && l.queue.Len() == 0 {
		delete(p.lines, l.whose)
		if s.lines--; s.lines == 0 {
			delete(p.services, l.provider)
		}
	}
}

// dispatch hands out the free places, one tenant after the other. The lock is held.
func (p *places) dispatch() {
	for p.free > 0 {
		s := p.next()
		if s == nil {
			return
		}
		l, _ := s.ready.Front().Value.(*line)
		turn, _ := l.queue.Remove(l.queue.Front()).(chan struct{})
		close(turn)
		p.free--
		p.queued--
		p.running++
		s.fast++
		l.running++
		s.ready.MoveToBack(l.inReady)
		p.turns.MoveToBack(s.inTurns)
		p.update(l)
	}
}

// next is the service whose turn it is. Those that hang for very many would soon hold all fast places. So once slow exchanges
// run out of theirs, each service leaves as many fast ones free as it has: the first one that hangs gets half of them, the
// second one a quarter, and so on. The lock is held.
func (p *places) next() *service {
	for turn := p.turns.Front(); turn != nil; turn = turn.Next() {
		if s, _ := turn.Value.(*service); p.freeSlow >= p.all || s.fast < p.free {
			return s
		}
	}
	return nil
}

// slowDown gives the place among the fast exchanges to somebody else.
func (h *place) slowDown() {
	p := h.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.line == nil {
		return
	}
	if p.freeSlow == 0 {
		h.timer.Reset(slowAfter) // perhaps then
		return
	}
	h.slow = true
	p.freeSlow--
	p.free++
	h.line.service.fast--
	p.dispatch()
}

// leave gives the place back.
func (h *place) leave() {
	h.timer.Stop()
	p := h.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.slow {
		p.freeSlow++
	} else {
		p.free++
		h.line.service.fast--
	}
	p.running--
	h.line.running--
	p.update(h.line)
	h.line = nil // for a timer that fires now
	p.dispatch()
}
