package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/transport"
)

// script answers requests one after the other, without a network.
type script struct {
	answers []answer
	asked   int
}

// answer is a status with headers, or an error.
type answer struct {
	code   int
	header []string
	err    error
}

func (s *script) RoundTrip(*http.Request) (*http.Response, error) {
	a := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	if a.err != nil {
		return nil, a.err
	}
	h := http.Header{}
	for i := 0; i < len(a.header); i += 2 {
		h.Set(a.header[i], a.header[i+1])
	}
	return &http.Response{StatusCode: a.code, Header: h, Body: io.NopCloser(strings.NewReader("body"))}, nil
}

func status(code int, header ...string) answer { return answer{code: code, header: header} }

func newRequest() (*http.Request, error) {
	return http.NewRequest(http.MethodPost, "https://service.example/", //nolint:noctx // Send sets it
		strings.NewReader("form"))
}

func TestSendTriesAgain(t *testing.T) {
	cut := answer{err: errors.New("connection reset")}
	redirect := status(http.StatusTemporaryRedirect, "Location", "https://evil.example/")
	for name, tc := range map[string]struct {
		answers     []answer
		again       func(transport.Answer) bool
		asked, code int
		took        time.Duration // at least
	}{
		"at once":         {answers: []answer{status(200)}, asked: 1, code: 200},
		"after an outage": {answers: []answer{status(503), status(500), status(200)}, asked: 3, code: 200},
		"after a cut":     {answers: []answer{cut, status(200)}, asked: 2, code: 200},
		"throttled": {answers: []answer{status(429, "Retry-After", "3"), status(200)}, asked: 2, code: 200,
			took: 3 * time.Second},
		"throttled long": {answers: []answer{status(429, "Retry-After", "60")}, asked: 1, code: 429},
		"never":          {answers: []answer{status(500)}, asked: 3, code: 500},
		"refused":        {answers: []answer{status(403)}, asked: 1, code: 403},
		"refused for now": {answers: []answer{status(400), status(200)}, asked: 2, code: 200,
			again: func(a transport.Answer) bool { return a.Status == 400 }},
		"not implemented": {answers: []answer{status(501)}, asked: 1, code: 501},
		"redirected":      {answers: []answer{redirect}, asked: 1},
		"always cut":      {answers: []answer{cut}, asked: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: tc.answers}
				client := &http.Client{Transport: s, CheckRedirect: transport.NoRedirect}
				start := time.Now()
				answer, err := transport.Send(t.Context(), client, newRequest, tc.again)
				if s.asked != tc.asked || answer.Status != tc.code || (err == nil) != (tc.code != 0) ||
					time.Since(start) < tc.took || time.Since(start) > 10*time.Second {
					t.Errorf("asked %d times in %s: %d, %v", s.asked, time.Since(start), answer.Status, err)
				}
			})
		})
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := transport.Send(ctx, &http.Client{Transport: &script{answers: []answer{status(503)}}}, newRequest, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 50*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "x": 0, "99999999999": 0, "9999999": time.Hour,
		"Thu, 01 Jan 2026 00:01:00 GMT": time.Minute, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
		"Fri, 01 Jan 2027 00:00:00 GMT": time.Hour,
	} {
		h := http.Header{}
		h.Set("Retry-After", value)
		if got := transport.RetryAfter(h, now); got != want && value != "99999999999" || got > 24*time.Hour {
			t.Errorf("%q: %s", value, got)
		}
	}
}

// The text of an error is the same at each try, so that a condition that holds
// it does not change.
func TestMessagesAreStable(t *testing.T) {
	closing := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer closing.Close()
	for name, address := range map[string]string{"cut": closing.URL, "refused": "http://127.0.0.1:1/",
		"unknown": "http://name.example/"} {
		var texts [2]string
		for i := range texts {
			c := client(t, &transport.Pool{}, nil, "")
			if name == "unknown" { // as two servers of names say it
				c = &http.Client{Transport: &script{answers: []answer{{err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
					Err: "no such host", Name: "name.example", Server: fmt.Sprintf("127.0.0.1:5%d->127.0.0.53:53", i),
					IsNotFound: true}}}}}}
			}
			_, err := get(t, c, address)
			if err == nil {
				t.Fatal("no error")
			}
			texts[i] = transport.Message(err)
			c.CloseIdleConnections()
		}
		if texts[0] != texts[1] || strings.Contains(texts[0], "->") {
			t.Errorf("%s: %q and %q", name, texts[0], texts[1])
		}
	}
}

// What a proxy says of a request may repeat the request.
func TestProxyRefusal(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 407 "+r.Header.Get("Proxy-Authorization")+"\r\n\r\n")
		_ = conn.Close()
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("user", "pass-word")
	_, err = get(t, client(t, &transport.Pool{}, u, ""), "https://service.example/")
	if err == nil || !strings.Contains(err.Error(), "HTTP 407") || strings.Contains(err.Error(), "Basic") ||
		strings.Contains(err.Error(), "pass-word") {
		t.Errorf("got %v", err)
	}
}
