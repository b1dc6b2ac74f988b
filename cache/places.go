package cache

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// slowAfter is when an exchange stops counting among the fast ones.
	slowAfter = time.Second
	// slowFactor times as many slow exchanges as fast ones may be under way.
	slowFactor = 8
)

// places decides whose exchange runs next. Every tenant has a queue, and the tenants take turns.
type places struct {
	perTenant int

	mu       sync.Mutex
	free     int // places for fast exchanges
	freeSlow int
	tenants  map[string]*tenant // those with an exchange that runs or waits
	ready    list.List          // of *tenant: those with one that waits and a place of their own for it
	running  int
	queued   int
}

type tenant struct {
	name    string
	running int
	queue   list.List     // of chan struct{}, closed when it is one's turn
	inReady *list.Element // in places.ready, or nil
}

func newPlaces(all, perTenant int) *places {
	p := &places{perTenant: perTenant, tenants: map[string]*tenant{}}
	p.setFree(all)
	return p
}

func (p *places) setFree(n int) { p.free, p.freeSlow = n, n*slowFactor }

// count returns how many exchanges have a place and how many wait for one.
func (p *places) count() (running, queued int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.queued
}

// place is held by one exchange.
type place struct {
	places *places
	tenant *tenant
	timer  *time.Timer
	slow   bool
}

// take waits for a place until ctx ends.
func (p *places) take(ctx context.Context, name string) (*place, error) {
	p.mu.Lock()
	t := p.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		p.tenants[name] = t
	}
	turn := make(chan struct{})
	waiting := t.queue.PushBack(turn)
	p.queued++
	p.update(t)
	p.dispatch()
	p.mu.Unlock()

	select {
	case <-turn:
	case <-ctx.Done():
		if p.withdraw(t, waiting, turn) {
			return nil, ctx.Err()
		}
	}
	held := &place{places: p, tenant: t}
	p.mu.Lock() // slowDown uses the timer too
	held.timer = time.AfterFunc(slowAfter, held.slowDown)
	p.mu.Unlock()
	return held, nil
}

// withdraw takes a waiting exchange out of the queue, unless it has got its place meanwhile.
func (p *places) withdraw(t *tenant, waiting *list.Element, turn chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-turn:
		return false
	default:
	}
	t.queue.Remove(waiting)
	p.queued--
	p.update(t)
	return true
}

// update keeps the lists true after a change to t. The lock is held.
func (p *places) update(t *tenant) {
	ready := t.queue.Len() > 0 && t.running < p.perTenant
	switch {
	case ready && t.inReady == nil:
		t.inReady = p.ready.PushBack(t)
	case !ready && t.inReady != nil:
		p.ready.Remove(t.inReady)
		t.inReady = nil
	}
	if t.running == 0 && t.queue.Len() == 0 {
		delete(p.tenants, t.name)
	}
}

// dispatch hands out the free places, one tenant after the other. The lock is held.
func (p *places) dispatch() {
	for p.free > 0 && p.ready.Len() > 0 {
		front := p.ready.Front()
		t, _ := front.Value.(*tenant)
		turn, _ := t.queue.Remove(t.queue.Front()).(chan struct{})
		close(turn)
		p.free--
		p.queued--
		p.running++
		t.running++
		p.ready.MoveToBack(front)
		p.update(t)
	}
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
	}
	p.running--
	h.tenant.running--
	p.update(h.tenant)
	h.tenant = nil // for a timer that fires now
	p.dispatch()
}
