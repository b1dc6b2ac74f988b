// Package quota bounds what clients use of a server, in all and by key: of a
// tenant, a namespace, a connection.
package quota

import (
	"context"
	"errors"
	"io"
	"sync"
)

// ErrExceeded means that what a client sends does not fit into its [Budget].
var ErrExceeded = errors.New("the budget is used up")

// Budget counts what is in use, such as bytes in memory. It is safe for
// concurrent use.
type Budget struct {
	// Max bounds all keys together, Share one of them.
	Max, Share int

	mu    sync.Mutex
	all   int
	byKey map[string]int
}

// Reserve reports whether n more fit, and counts them if they do. It never
// waits: a client that waits holds its connection and a goroutine.
func (b *Budget) Reserve(key string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+n > b.Max || b.byKey[key]+n > b.Share {
		return false
	}
	b.add(key, n)
	return true
}

// Release gives back n of what the key has reserved.
func (b *Budget) Release(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(key, -n)
}

func (b *Budget) add(key string, n int) {
	if b.byKey == nil {
		b.byKey = map[string]int{}
	}
	b.all += n
	if b.byKey[key] += n; b.byKey[key] == 0 {
		delete(b.byKey, key)
	}
}

// Reader reserves the bytes of a body as they arrive. A length that a client
// only announces takes nothing.
type Reader struct {
	io.Reader
	Budget *Budget
	Key    string

	held int
}

// Read implements io.Reader. It fails with [ErrExceeded] if the bytes do not
// fit.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.Budget.Reserve(r.Key, n) {
		return 0, ErrExceeded
	}
	r.held += n
	return n, err
}

// Release gives back all bytes that were read.
func (r *Reader) Release() {
	r.Budget.Release(r.Key, r.held)
	r.held = 0
}

// Slots are as many as the capacity of the channel. The first to wait is the
// first to get one.
type Slots chan struct{}

// Take waits for a slot until ctx ends, and returns its error then. The caller
// calls leave once.
func (s Slots) Take(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Map holds a value for each key in use, such as its [Slots]. It is safe for
// concurrent use.
type Map[K comparable, V any] struct {
	// New makes the value of a key that is not in use.
	New func() V

	mu      sync.Mutex
	entries map[K]*entry[V]
}

type entry[V any] struct {
	value V
	users int
}

// Use returns the value of the key, which all its users share. The caller calls
// leave once. The value is dropped when its last user leaves.
func (m *Map[K, V]) Use(key K) (value V, leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		if m.entries == nil {
			m.entries = map[K]*entry[V]{}
		}
		e = &entry[V]{value: m.New()}
		m.entries[key] = e
	}
	e.users++
	return e.value, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(m.entries, key)
		}
	}
}

// Len returns the number of keys in use.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}
