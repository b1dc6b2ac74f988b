package cloudtest

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is a failure of a service. Its fields apply in the order in which they
// are listed.
type Fault struct {
	// Service and Action select the calls that fail. An empty field matches
	// every call.
	Service, Action string
	// Match narrows the selection. Nil matches every call.
	Match func(Call) bool
	// Times is the number of calls that fail. 0: all until the fault is
	// cleared.
	Times int

	// Latency delays the answer.
	Latency time.Duration
	// Hang never answers.
	Hang bool
	// Cut closes the connection.
	Cut bool
	// Status answers with an error of that HTTP status, in the format of the
	// service.
	Status int
	// Code and Message are the code and the text of the error.
	Code, Message string
	// RetryAfter adds that header to the error.
	RetryAfter string
	// Body answers with status 200 and this body instead of the real one.
	Body string
	// Redirect answers with a redirect to that URL.
	Redirect string
	// Slow sends the answer's body one byte a second.
	Slow bool
	// Rewrite changes the body of the real answer.
	Rewrite func(body []byte) []byte
}

// AddFault adds a fault. If several match, the oldest one applies. end clears
// it.
func (c *Cloud) AddFault(f Fault) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, &f)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = slices.DeleteFunc(c.faults, func(set *Fault) bool { return set == &f })
	}
}

func (f *Fault) matches(call Call) bool {
	return (f.Service == "" || f.Service == call.Service) && (f.Action == "" || f.Action == call.Action) &&
		(f.Match == nil || f.Match(call))
}

// play applies the fault. It returns false if it has answered.
func (f *Fault) play(w http.ResponseWriter, r *http.Request, closing <-chan struct{}, fail func(Fault)) bool {
	wait := f.Latency
	if f.Hang {
		wait = 1 << 62
	}
	if wait > 0 && !sleep(r, closing, wait) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		fail(*f)
	case f.Redirect != "":
		http.Redirect(w, r, f.Redirect, http.StatusTemporaryRedirect)
	case f.Body != "":
		w.Header().Set("Content-Type", contentTypeOf(f.Body))
		_, _ = io.WriteString(w, f.Body)
	default:
		return true
	}
	return false
}

// contentTypeOf recognizes JSON, HTML and XML.
func contentTypeOf(body string) string {
	switch {
	case strings.HasPrefix(body, "{"), strings.HasPrefix(body, "["):
		return "application/json"
	case strings.HasPrefix(body, "<!"), strings.HasPrefix(body, "<html"):
		return "text/html"
	}
	return "text/xml"
}

func sleep(r *http.Request, closing <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-closing:
	}
	return false
}

// send writes a body and applies the fault to it.
func (f *Fault) send(w http.ResponseWriter, r *http.Request, closing <-chan struct{}, status int, body []byte) {
	if f != nil && f.Rewrite != nil {
		body = f.Rewrite(body)
	}
	w.WriteHeader(status)
	if f == nil || !f.Slow {
		_, _ = w.Write(body) //nolint:gosec // a test's own words
		return
	}
	for b := range strings.SplitSeq(string(body), "") {
		if _, err := io.WriteString(w, b); err != nil || //nolint:gosec // a test's own words
			!sleep(r, closing, time.Second) {
			panic(http.ErrAbortHandler)
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
	}
}
