package serviceaccounts

import (
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// state is the condition of a Reader. Callers can wait for its changes.
type state struct {
	usable atomic.Bool // the memory may be served
	maxAge time.Duration

	mu      sync.Mutex
	now     situation
	changed chan struct{} // closed and replaced when the situation changes
	aging   *time.Timer
}

type situation struct {
	started, synced, ended bool
	// stale means that there was no contact with the API server for maxAge.
	stale bool
	// failure is the error of the last request, nil after a contact.
	failure error
	// refused means that failure persists until a person changes rights or options.
	refused bool
	// contact is the time of the last contact with the API server.
	contact time.Time
}

func newState(maxAge time.Duration) *state {
	return &state{maxAge: maxAge, changed: make(chan struct{})}
}

// look returns the situation, and a channel that is closed when it changes.
func (s *state) look() (situation, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// tell publishes a change. The caller holds mu.
func (s *state) tell() {
	s.usable.Store(s.now.synced && !s.now.ended && !s.now.stale)
	close(s.changed)
	s.changed = make(chan struct{})
}

// start reports whether this is the first call.
func (s *state) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.started {
		return false
	}
	s.now.started = true
	s.tell()
	return true
}

func (s *state) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.ended = true
	if s.aging != nil {
		s.aging.Stop()
	}
	s.tell()
}

// sync records that all ServiceAccounts have been read.
func (s *state) sync() {
	s.contact()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.synced || s.now.ended {
		return
	}
	s.now.synced = true
	if s.maxAge > 0 {
		s.aging = time.AfterFunc(s.maxAge, s.age)
	}
	s.tell()
}

// contact records a contact with the API server.
func (s *state) contact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.contact = time.Now()
	if s.now.failure == nil && !s.now.stale {
		return
	}
	if s.now.stale && !s.now.ended {
		s.aging.Reset(s.maxAge)
	}
	s.now.failure, s.now.refused, s.now.stale = nil, false, false
	s.tell()
}

// fail records a failed request. If final is set, no other request can replace it.
func (s *state) fail(err error, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.failure = err
	s.now.refused = final && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err))
	s.tell()
}

// age runs when the last contact may be too old. Reads therefore need no clock.
func (s *state) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.ended {
		return
	}
	if rest := s.maxAge - time.Since(s.now.contact); rest > 0 {
		s.aging.Reset(rest)
		return
	}
	s.now.stale = true
	s.tell()
}
