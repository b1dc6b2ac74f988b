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

// places decides whose exchange runs next. Every tenant has a queue, and the tenants take turns.
type places struct {
	all, perTenant int

	mu       sync.Mutex
	free     int // places for fast exchanges
	freeSlow int
	fast     map[string]int     // exchanges in places for fast ones, by provider
	tenants  map[string]*tenant // those with an exchange that runs or waits
	ready    list.List          // of *tenant: those with one that waits and a place of their own for it
	running  int
	queued   int
}

type tenant struct {
	name    string
	running int
	queue   list.List     // of *waiting
	inReady *list.Element // in places.ready, or nil
}

// waiting is an exchange that waits for its turn, which is when turn is closed.
type waiting struct {
	turn     chan struct{}
	provider string
}

func newPlaces(all, perTenant int) *places {
	p := &places{perTenant: perTenant, tenants: map[string]*tenant{}, fast: map[string]int{}}
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
	places   *places
	tenant   *tenant
	provider string
	timer    *time.Timer
	slow     bool
}

// take waits for a place until ctx ends. The error says for whom.
func (p *places) take(ctx context.Context, name, provider string) (*place, error) {
	p.mu.Lock()
	t := p.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		p.tenants[name] = t
	}
	w := &waiting{turn: make(chan struct{}), provider: provider}
	queued := t.queue.PushBack(w)
	p.queued++
	p.update(t)
	p.dispatch()
	p.mu.Unlock()

	select {
	case <-w.turn:
	case <-ctx.Done():
		if whose, ok := p.withdraw(t, queued, w); ok {
			return nil, fmt.Errorf("%s to end: %w", whose, ctx.Err())
		}
	}
	held := &place{places: p, tenant: t, provider: provider}
	p.mu.Lock() // slowDown uses the timer too
	held.timer = time.AfterFunc(slowAfter, held.slowDown)
	p.mu.Unlock()
	return held, nil
}

// withdraw takes a waiting exchange out of the queue, unless it has got its place meanwhile. It tells whose exchanges have
// the places.
func (p *places) withdraw(t *tenant, queued *list.Element, w *waiting) (whose string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.turn:
		return "", false
	default:
	}
	whose = "exchanges of other tenants"
	if t.running >= p.perTenant {
		whose = fmt.Sprintf("other exchanges of tenant %q", t.name)
	}
	t.queue.Remove(queued)
	p.queued--
	p.update(t)
	return whose, true
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
	for p.free > 0 {
		t, queued := p.next()
		if t == nil {
			return
		}
		w, _ := t.queue.Remove(queued).(*waiting)
		close(w.turn)
		p.free--
		p.queued--
		p.running++
		p.fast[w.provider]++
		t.running++
		p.ready.MoveToBack(t.inReady)
		p.update(t)
	}
}

// next is the first exchange that may have a place, nearly always that of the tenant in front. The lock is held.
func (p *places) next() (*tenant, *list.Element) {
	for front := p.ready.Front(); front != nil; front = front.Next() {
		t, _ := front.Value.(*tenant)
		for queued := t.queue.Front(); queued != nil; queued = queued.Next() {
			if w, _ := queued.Value.(*waiting); p.admits(w.provider) {
				return t, queued
			}
		}
	}
	return nil, nil
}

// admits leaves half of the fast places to other services once slow exchanges run out of places: those of a service that
// hangs for very many would soon hold all. The lock is held.
func (p *places) admits(provider string) bool {
	return p.freeSlow >= p.all || p.fast[provider] < max(1, p.all/2)
}

// leaveFast counts one less in a fast place. The lock is held.
func (p *places) leaveFast(provider string) {
	p.free++
	if p.fast[provider]--; p.fast[provider] == 0 {
		delete(p.fast, provider)
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
	p.leaveFast(h.provider)
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
		p.leaveFast(h.provider)
	}
	p.running--
	h.tenant.running--
	p.update(h.tenant)
	h.tenant = nil // for a timer that fires now
	p.dispatch()
}
