package authtest

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/workloadid/workloadid/auth"
)

// elsewhere is the host that the suite redirects to.
const elsewhere = "elsewhere.example"

// spaces are what an endless body repeats.
var spaces = strings.Repeat(" ", 4<<10)

// maxRead is far above the answers of token services.
const maxRead = 16 << 20

// testRedirects uses status 307, for which http.Client repeats the body of a request.
func (h *Harness) testRedirects(t *testing.T) {
	h.tamper(t, func(answer *http.Response) {
		answer.StatusCode = http.StatusTemporaryRedirect
		answer.Header.Set("Location", "https://"+elsewhere+"/")
		answer.Body = http.NoBody
	})
}

// testEndlessBodies also changes answers into errors, because clients read those in another way.
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

// tamper makes every kind of call once for each request that the call sends, and changes the answer to that request.
func (h *Harness) tamper(t *testing.T, change func(*http.Response)) {
	t.Helper()
	for _, kind := range append([]derived{accessToken()}, h.derivedKinds()...) {
		for n := int32(1); ; n++ {
			via := &tamperer{t: t, what: kind.name, base: h.options().HTTPClient.Transport, change: change, nth: n}
			_, _ = kind.get(t.Context(), h.New(t), h.ask(h.Good, auth.WithHTTPClient(&http.Client{Transport: via}))) // with or without a retry
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
		// Any header, the body, the URL and Referer may hold a credential, in an encoding that the suite does not know.
		c.t.Errorf("%s: the provider follows a redirect to another host; use provider.HTTPClients, or set http.Client.CheckRedirect", c.what)
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
