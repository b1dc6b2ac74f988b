package cache

import (
	"container/list"
	"context"
	"fmt"
	"slices"
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
	tenants  map[string]*tenant  // those with an exchange that runs or waits
	services map[string]*service // by provider; all that there ever were, which are few
	turns    list.List           // of *service: those with ready lines
	running  int
	queued   int
}

// service is what the exchanges of one provider have in common.
type service struct {
	fast    int           // how many are in places for fast ones
	ready   list.List     // of *line: those with an exchange that waits, and a place of their tenant's for it
	inTurns *list.Element // in places.turns, or nil
}

type tenant struct {
	name    string
	running int
	lines   []*line // those in which somebody waits, one for each service
}

// line is the exchanges of a tenant that wait for their turn at one service.
type line struct {
	tenant  *tenant
	service *service
	queue   list.List     // of chan struct{}, closed when it is one's turn
	inReady *list.Element // in service.ready, or nil
}

func newPlaces(all, perTenant int) *places {
	p := &places{perTenant: perTenant, tenants: map[string]*tenant{}, services: map[string]*service{}}
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
	places  *places
	tenant  *tenant
	service *service
	timer   *time.Timer
	slow    bool
}

// take waits for a place until ctx ends. The error says for whom.
func (p *places) take(ctx context.Context, name, provider string) (*place, error) {
	turn := make(chan struct{})
	p.mu.Lock()
	l := p.line(name, provider)
	waiting := l.queue.PushBack(turn)
	p.queued++
	p.update(l.tenant)
	p.dispatch()
	p.mu.Unlock()

	select {
	case <-turn:
	case <-ctx.Done():
		if whose, ok := p.withdraw(l, waiting, turn); ok {
			return nil, fmt.Errorf("%s to end: %w", whose, ctx.Err())
		}
	}
	held := &place{places: p, tenant: l.tenant, service: l.service}
	p.mu.Lock() // slowDown uses the timer too
	held.timer = time.AfterFunc(slowAfter, held.slowDown)
	p.mu.Unlock()
	return held, nil
}

// line returns that of a tenant at a provider's service. The lock is held.
func (p *places) line(name, provider string) *line {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		p.tenants[name] = t
	}
	s := p.services[provider]
	if s == nil {
		s = &service{}
		p.services[provider] = s
	}
	for _, l := range t.lines {
		if l.service == s {
			return l
		}
	}
	l := &line{tenant: t, service: s}
	t.lines = append(t.lines, l)
	return l
}

// withdraw takes a waiting exchange out of the queue, unless it has got its place meanwhile. It tells whose exchanges have
// the places.
func (p *places) withdraw(l *line, waiting *list.Element, turn chan struct{}) (whose string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-turn:
		return "", false
	default:
	}
	whose = "exchanges of other tenants"
	if l.tenant.running >= p.perTenant {
		whose = fmt.Sprintf("other exchanges of tenant %q", l.tenant.name)
	}
	l.queue.Remove(waiting)
	p.queued--
	p.update(l.tenant)
	return whose, true
}

// update keeps the lists true after a change to t. The lock is held.
func (p *places) update(t *tenant) {
	t.lines = slices.DeleteFunc(t.lines, func(l *line) bool {
		s, ready := l.service, l.queue.Len() > 0 && t.running < p.perTenant
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
		return l.queue.Len() == 0
	})
	if t.running == 0 && len(t.lines) == 0 {
		delete(p.tenants, t.name)
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
		l.tenant.running++
		s.ready.MoveToBack(l.inReady)
		p.turns.MoveToBack(s.inTurns)
		p.update(l.tenant)
	}
}

// next is the service whose turn it is. Once slow exchanges run out of places, half of the fast ones are left to the others:
// those of a service that hangs for very many would soon hold all. The lock is held.
func (p *places) next() *service {
	for turn := p.turns.Front(); turn != nil; turn = turn.Next() {
		if s, _ := turn.Value.(*service); p.freeSlow >= p.all || s.fast < max(1, p.all/2) {
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
	if h.tenant == nil {
		return
	}
	if p.freeSlow == 0 {
		h.timer.Reset(slowAfter) // perhaps then
		return
	}
	h.slow = true
	p.freeSlow--
	p.free++
	h.service.fast--
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
		h.service.fast--
	}
	p.running--
	h.tenant.running--
	p.update(h.tenant)
	h.tenant = nil // for a timer that fires now
	p.dispatch()
}
