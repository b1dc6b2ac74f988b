package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/workloadid/workloadid/internal/redact"
)

const (
	maxAttempts = 3
	firstDelay  = 200 * time.Millisecond
	maxDelay    = 5 * time.Second
)

// Answer is a whole HTTP response. Its body is for decoding, never for messages: it may hold a credential.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Send sends what newRequest makes and reads the answer whole. Up to three tries, with back-off and jitter, are made while
// the service cannot be reached, or throttles, or answers with a server error or anything else that again tells to go away
// (nil: nothing else). A Retry-After that is longer than five seconds is for the caller. The error is the context's if that
// has ended.
func Send(ctx context.Context, client *http.Client, newRequest func() (*http.Request, error), again func(Answer) bool) (Answer, error) {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		req, err := newRequest()
		if err != nil {
			return Answer{}, err
		}
		answer, err := send(client, req.WithContext(ctx))
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		wait := delay/2 + rand.N(delay/2) //nolint:gosec // spreads load, keeps no secret
		if err == nil {
			if !passing(answer.Status) && (again == nil || !again(answer)) {
				return answer, nil
			}
			wait = max(wait, RetryAfter(answer.Header, time.Now()))
		}
		if attempt == maxAttempts || wait > maxDelay || err != nil && !mayPass(err) {
			return answer, err
		}
		if err := sleep(ctx, wait); err != nil {
			return Answer{}, err
		}
		delay *= 2
	}
}

func send(client *http.Client, req *http.Request) (Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer of host %q: %w", req.URL.Host, err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// passing knows the statuses that go away by themselves.
func passing(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError && status != http.StatusNotImplemented
}

// mayPass knows errors that another try will not mend.
func mayPass(err error) bool {
	var tooLarge *http.MaxBytesError
	return !errors.As(err, &tooLarge) && !errors.Is(err, errRedirect)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RetryAfter returns what the header of that name asks for (RFC 9110, section 10.2.3), zero if it is missing or malformed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	const most = time.Hour // whoever says more is believed that much
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, int(most/time.Second)))*time.Second, most)
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return min(at.Sub(now), most)
	}
	return 0
}

// Unanswered reports whether an error is that of a request which NeedsProxy and got no answer, for whatever reason. An error
// that does not say which request it was counts too.
func Unanswered(err error) bool {
	var request *url.Error
	if errors.As(err, &request) {
		u, err := url.Parse(request.URL)
		return err != nil || NeedsProxy(u)
	}
	var network net.Error // a deadline is one
	return errors.As(err, &network)
}

// Message describes an error that is no answer of the service, without what an answer held and without the secrets.
func Message(err error, secrets ...string) string {
	var tooLarge *http.MaxBytesError
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &tooLarge):
		return fmt.Sprintf("the answer is larger than %d bytes", tooLarge.Limit)
	case errors.As(err, &request):
		return redact.Text(fmt.Sprintf("no answer from %q: %s", hostOf(request.URL), stable(request.Err)), secrets...)
	}
	return redact.Text(stable(err), secrets...)
}

// stable is the text of an error without the addresses of a connection, which differ at every try: conditions hold it.
func stable(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Sprintf("lookup %q: %s", dns.Name, dns.Err)
	}
	var op *net.OpError
	if !errors.As(err, &op) {
		return err.Error()
	}
	cause := op.Err
	var call *os.SyscallError
	if errors.As(cause, &call) {
		cause = call.Err
	}
	return op.Op + ": " + cause.Error()
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
