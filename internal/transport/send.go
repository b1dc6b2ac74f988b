package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/pause"
	"github.com/workloadid/workloadid/internal/redact"
)

const (
	maxAttempts = 3
	firstDelay  = 200 * time.Millisecond
	maxDelay    = 5 * time.Second
)

// Answer is a whole HTTP response. Its body may hold a credential, so no
// message repeats it.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Send sends the request of newRequest and reads the whole answer. It tries up
// to three times, with backoff and jitter, while the service is unreachable,
// throttles, or answers with a server error or with an answer that again
// reports (nil: none). It returns an answer whose Retry-After exceeds five
// seconds. The error is the context's if that has ended.
func Send(ctx context.Context, client *http.Client, newRequest func() (*http.Request, error),
	again func(Answer) bool) (Answer, error) {
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
			if !isTransientStatus(answer.Status) && (again == nil || !again(answer)) {
				return answer, nil
			}
			wait = max(wait, RetryAfter(answer.Header, time.Now()))
		}
		if attempt == maxAttempts || wait > maxDelay || err != nil && !isTransient(err) {
			return answer, err
		}
		if err := pause.For(ctx, wait); err != nil {
			return Answer{}, err
		}
		delay *= 2
	}
}

// SendOnce is Send without a second try, for requests that the service accepts
// once.
func SendOnce(ctx context.Context, client *http.Client, newRequest func() (*http.Request, error)) (Answer, error) {
	req, err := newRequest()
	if err != nil {
		return Answer{}, err
	}
	answer, err := send(client, req.WithContext(ctx))
	if ctx.Err() != nil {
		return Answer{}, ctx.Err()
	}
	return answer, err
}

func send(client *http.Client, req *http.Request) (Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, &readError{req.URL.Host, err}
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// readError is the error of an answer whose body cannot be read.
type readError struct {
	host string
	err  error
}

func (e *readError) Error() string {
	return fmt.Sprintf("read the answer of host %q: %s", e.host, e.err)
}
func (e *readError) Unwrap() error { return e.err }

// isTransientStatus recognizes statuses after which another try may succeed.
func isTransientStatus(status int) bool {
	return status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError && status != http.StatusNotImplemented
}

// isTransient reports whether another try may succeed.
func isTransient(err error) bool {
	var tooLarge *http.MaxBytesError
	var redirect *redirectError
	return !errors.As(err, &tooLarge) && !errors.As(err, &redirect)
}

// RetryAfter returns the value of the header of that name (RFC 9110, section
// 10.2.3), zero if it is missing or malformed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	const most = time.Hour
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, int(most/time.Second)))*time.Second, most)
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return min(at.Sub(now), most)
	}
	return 0
}

// Unanswered reports whether a request through the proxy got no answer. An
// error without the request's URL counts too.
func Unanswered(err error) bool {
	var request *url.Error
	if errors.As(err, &request) {
		u, err := url.Parse(request.URL)
		return err != nil || needsProxy(u)
	}
	var network net.Error // a deadline is one
	return errors.As(err, &network)
}

// Message describes the error of a request without an answer. It repeats no
// secret and no part of a body.
func Message(err error, secrets ...string) string {
	var tooLarge *http.MaxBytesError
	var request *url.Error
	var read *readError
	var redirect *redirectError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &tooLarge):
		return fmt.Sprintf("the answer is larger than %d bytes", tooLarge.Limit)
	case errors.As(err, &read):
		return redact.Text(fmt.Sprintf("read the answer of host %q: %s", read.host, withoutAnswer(read.err)), secrets...)
	case errors.As(err, &redirect): // the URL of request is the target
		return redact.Text(redirect.Error(), secrets...)
	case errors.As(err, &request):
		return redact.Text(fmt.Sprintf("no answer from %q: %s", hostOf(request.URL), withoutAnswer(request.Err)), secrets...)
	}
	return redact.Text(stable(err), secrets...)
}

// withoutAnswer is stable, but repeats nothing of an answer. net/http quotes
// malformed answers, and in a quoted text no secret with a quote or a backslash
// is found.
func withoutAnswer(err error) string {
	var nested *url.Error // is a net.Error, whatever it holds
	if errors.As(err, &nested) {
		return withoutAnswer(nested.Err)
	}
	var network net.Error
	var certificate *tls.CertificateVerificationError
	if strings.Contains(err.Error(), `"`) && !errors.As(err, &network) && !errors.As(err, &certificate) {
		return "the connection broke, or the answer is not HTTP"
	}
	return stable(err)
}

// stable returns the text of an error without the addresses of the connection,
// which differ at every try: conditions hold it.
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
