package relay

import (
	"net/http"
	"time"

	"github.com/workloadid/workloadid/internal/quota"
)

// Bounds of the requests whose credential is not verified yet. The answer of
// such a request takes 14 KiB while its client does not read.
const (
	maxUnproven      = 4096
	maxUnprovenShare = 256 // of one address
)

// DefaultMaxRequests fits into the 512 MiB of the relay's manifest: a watch
// takes about 40 KiB, and a connection 70 KiB.
const DefaultMaxRequests = 5000

// certificateRequests returns the budget of requests with certificates. One
// cluster has a tenth of it.
func certificateRequests(most int) *quota.Budget {
	return &quota.Budget{Max: most, Share: max(1, most/10)} //nolint:mnd // above
}

// tokenRequests returns the budget of requests with accepted tokens, half as
// large as the other one. One address has four fifths of it, for a fleet behind
// one address.
func tokenRequests(most int) *quota.Budget {
	return &quota.Budget{Max: max(1, most/2), Share: max(1, most*2/5)} //nolint:mnd // above
}

// writeTimeout bounds each write to a client. The timeout of a server would
// bound whole answers and end watches.
const writeTimeout = 30 * time.Second

// slot is the slot of a request in a budget. Only the goroutine of the request
// uses it.
type slot struct {
	budget *quota.Budget
	payer  string
}

type slotKey struct{}

// move charges the request to another budget. If it does not fit there, nothing
// changes.
func (s *slot) move(to *quota.Budget, payer string) bool {
	if s.budget == to {
		return true
	}
	if !to.Reserve(payer, 1) {
		return false
	}
	s.release()
	s.budget, s.payer = to, payer
	return true
}

func (s *slot) release() {
	if s.budget != nil {
		s.budget.Release(s.payer, 1)
	}
}

// busy refuses a request while all slots are taken. The answer has no body,
// because HTTP/2 lets a client delay a body.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
}

// timedWriter ends the connection or the stream of a client that does not read.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newTimedWriter(w http.ResponseWriter) *timedWriter {
	t := &timedWriter{w, http.NewResponseController(w)}
	t.stop() // a connection of HTTP/1 keeps the deadline of its last request
	return t
}

// Unwrap lets http.ResponseController find the deadlines.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write implements http.ResponseWriter.
func (t *timedWriter) Write(b []byte) (int, error) {
	t.start()
	defer t.stop()
	return t.ResponseWriter.Write(b)
}

// FlushError serves http.ResponseController.
func (t *timedWriter) FlushError() error {
	t.start()
	defer t.stop()
	return t.control.Flush()
}

// start sets the deadline. The deadline also bounds what net/http writes after
// the handler has returned. Only a recorder has none.
func (t *timedWriter) start() { _ = t.control.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (t *timedWriter) stop() { _ = t.control.SetWriteDeadline(time.Time{}) }
