package serviceaccounts

import (
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// state is how a Reader fares. All of it can be waited for.
type state struct {
	usable atomic.Bool // what is in memory may be served
	maxAge time.Duration

	mu      sync.Mutex
	now     situation
	changed chan struct{} // closed and replaced when the situation changes
	aging   *time.Timer
}

type situation struct {
	started, synced, ended bool
	// stale means that the API server has not been heard of for maxAge.
	stale bool
	// failure is of the last request, nil after contact.
	failure error
	// refused means that failure is an answer that only somebody's deed can change.
	refused bool
	// contact is when the API server was heard of last.
	contact time.Time
}

func newState(maxAge time.Duration) *state {
	return &state{maxAge: maxAge, changed: make(chan struct{})}
}

// look returns the situation, and what is closed when it changes.
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

// start reports whether this is the first time.
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

// sync notes that all ServiceAccounts have been read.
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

// contact notes that the API server has been heard of.
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

// fail notes that a request has failed. Final says that there is no other way to get what it was for.
func (s *state) fail(err error, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.failure = err
	s.now.refused = final && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err))
	s.tell()
}

// age runs when the last contact may be too long ago. Nobody has to look at a clock on a read.
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
