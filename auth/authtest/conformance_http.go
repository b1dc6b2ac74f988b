package authtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// elsewhere is the host that the suite redirects to.
const elsewhere = "elsewhere.example"

// spaces is the block that an endless body repeats.
var spaces = strings.Repeat(" ", 4<<10)

// maxRead is far above the answers of token services.
const maxRead = 16 << 20

// testRedirects uses status 307, for which http.Client repeats the body of a
// request.
func (h *Harness) testRedirects(t *testing.T) {
	h.tamper(t, func(answer *http.Response) {
		answer.StatusCode = http.StatusTemporaryRedirect
		answer.Header.Set("Location", "https://"+elsewhere+"/")
		answer.Body = http.NoBody
	})
}

// testEndlessBodies also changes answers into errors, because clients read
// those in another way.
func (h *Harness) testEndlessBodies(t *testing.T) {
	const unchanged = 0
	for _, status := range []int{unchanged, http.StatusBadRequest, http.StatusInternalServerError} {
		h.tamper(t, func(answer *http.Response) {
			if status != unchanged {
				answer.StatusCode = status
			}
			answer.ContentLength = -1
			answer.Header.Del("Content-Length")
			answer.Body = &endless{t: t}
		})
	}
}

// tamper makes every kind of call once for each request that the call sends,
// and changes the answer to that request.
func (h *Harness) tamper(t *testing.T, change func(*http.Response)) {
	t.Helper()
	for _, kind := range append([]derived{accessToken()}, h.derivedKinds()...) {
		for n := int32(1); ; n++ {
			via := &tamperer{t: t, what: kind.name, base: h.options().HTTPClient.Transport, change: change, nth: n}
			// The call may fail, or succeed after a retry.
			_, _ = kind.get(t.Context(), h.New(t), h.ask(h.Good, auth.WithHTTPClient(&http.Client{Transport: via})))
			if sent := via.sent.Load(); sent < n {
				if sent == 0 {
					t.Errorf("%s: no request went through the client of auth.WithHTTPClient", kind.name)
				}
				break
			}
		}
	}
}

// tamperer changes the nth answer.
type tamperer struct {
	t      *testing.T
	what   string
	base   http.RoundTripper
	change func(*http.Response)
	nth    int32
	sent   atomic.Int32
}

func (c *tamperer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == elsewhere {
		// Any header, Referer included, the body and the URL may hold a
		// credential, in an encoding that the suite does not know.
		c.t.Errorf(
			"%s: the provider follows a redirect to another host; use provider.HTTPClients, or set http.Client.CheckRedirect",
			c.what)
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	base := c.base
	if base == nil {
		base = http.DefaultTransport
	}
	answer, err := base.RoundTrip(r)
	if c.sent.Add(1) == c.nth && err == nil {
		_ = answer.Body.Close() // its content is replaced
		c.change(answer)
	}
	return answer, err
}

// endless is white space, which the decoders of JSON and XML skip.
type endless struct {
	t    *testing.T
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > maxRead {
		e.t.Errorf("the provider reads more than %d bytes of an answer; use io.LimitReader", maxRead)
		return 0, io.ErrUnexpectedEOF
	}
	for n := 0; n < len(p); {
		n += copy(p[n:], spaces) // one byte at a time takes seconds with the race detector
	}
	return len(p), nil
}

func (*endless) Close() error { return nil }

// longestCall is far above the time that a call needs to reach the service, and
// to return after its context has ended.
const longestCall = 30 * time.Second

func (h *Harness) testCancel(t *testing.T, kinds ...derived) {
	h.Break(t, Hang)
	for _, kind := range kinds {
		ctx, cancel := context.WithCancel(t.Context())
		p, before, ended := h.New(t), h.calls(), make(chan error, 1)
		go func() {
			_, err := kind.get(ctx, p, h.ask(h.Good))
			ended <- err
		}()
		// The call is in flight once the service has received it.
		for start := time.Now(); h.calls() == before && len(ended) == 0 && time.Since(start) < longestCall; {
			time.Sleep(time.Millisecond)
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) || !errors.Is(err, auth.ErrUnavailable) {
				t.Errorf("%s: got %v, want the context's error in an ErrUnavailable", kind.name, err)
			}
		case <-time.After(longestCall):
			t.Fatalf("%s: the call runs on %s after its context has ended; pass the context to every request", kind.name,
				longestCall)
		}
	}
}
