package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/connlimit"
	"github.com/workloadid/workloadid/internal/quota"
)

// forwarded lists the headers of a client that reach the hub, besides a bearer
// token. An API server reads identities from configurable headers, so a list of
// headers to drop would never be complete.
var forwarded = [...]string{"Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "User-Agent"}

// upstream forwards to the hub. Requests with certificates and requests with
// bearer tokens have one each. A client without any credential can send a
// made-up token, but cannot take the memory that agents with certificates need.
type upstream struct {
	handler  http.Handler
	bodies   *quota.Budget
	requests *quota.Budget // with a verified credential
}

// serve forwards an admitted request, or refuses it if its body does not fit.
func (u *upstream) serve(w http.ResponseWriter, req *http.Request) *refusal {
	body := &quota.Reader{Reader: http.MaxBytesReader(w, req.Body, maxBody), Budget: u.bodies, Key: payer(req)}
	defer body.Release()
	if refused := readBody(w, req, body); refused != nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(req.Context(), maxStream)
	defer cancel()
	u.handler.ServeHTTP(w, req.WithContext(ctx))
	return nil
}

// readBody reads the whole body before the hub sees the request, because a
// streamed body can deadlock. If the hub answers without reading it, the client
// stops sending. The transport to the hub then waits for the rest before it
// ends the answer.
func readBody(w http.ResponseWriter, req *http.Request, arriving io.Reader) *refusal {
	if req.ContentLength == 0 {
		return nil
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // only a recorder has none
	body, err := io.ReadAll(arriving)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge()
	case errors.Is(err, quota.ErrExceeded):
		return tooMany(w)
	case err != nil:
		return badRequest(fmt.Sprintf("the body did not arrive within %s: send it again", bodyTimeout))
	}
	// A refused body keeps its deadline, because the server skips the rest of
	// it.
	_ = conn.SetReadDeadline(time.Time{})
	// The transport may retry on a new connection.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	req.ContentLength, req.TransferEncoding = int64(len(body)), nil
	return nil
}

// rewrite builds the request to the hub from an admitted one.
func (r *relay) rewrite(p *httputil.ProxyRequest) {
	target := *p.In.URL
	target.Scheme, target.Host = r.hub.Scheme, r.hub.Host
	p.Out.URL, p.Out.Host = &target, ""
	p.Out.Header, p.Out.Trailer = http.Header{}, nil
	for _, name := range forwarded {
		if values := p.In.Header.Values(name); len(values) > 0 {
			p.Out.Header[name] = values
		}
	}
	if presented := p.In.TLS.PeerCertificates; len(presented) > 0 {
		p.Out.Header.Set(authenticationv1.ImpersonateUserHeader, presented[0].Subject.CommonName)
		p.Out.Header[authenticationv1.ImpersonateGroupHeader] = presented[0].Subject.Organization
	} else {
		p.Out.Header["Authorization"] = p.In.Header.Values("Authorization")
	}
}

// checkAnswer keeps redirects from clients, because they name addresses behind
// the relay.
func checkAnswer(answer *http.Response) error {
	if answer.StatusCode/100 == 3 && answer.StatusCode != http.StatusNotModified {
		return fmt.Errorf("the hub answers %d, a redirect, which the relay does not follow", answer.StatusCode)
	}
	return nil
}

// checkBearerAnswer also records that the hub has accepted a token. The hub
// answers 2xx only to an accepted one.
func (r *relay) checkBearerAnswer(answer *http.Response) error {
	if ctx := answer.Request.Context(); answer.StatusCode/100 == 2 {
		connlimit.Prove(ctx)
		own, _ := ctx.Value(slotKey{}).(*slot) // ServeHTTP sets it
		if !own.move(r.bearer.requests, own.payer) {
			return quota.ErrExceeded
		}
	}
	return checkAnswer(answer)
}

// checkOwnAnswer also refuses a 401. It concerns the relay's credential, and an
// agent would drop its own.
func checkOwnAnswer(answer *http.Response) error {
	if answer.StatusCode == http.StatusUnauthorized {
		return errors.New("the hub refuses the relay's own credential: renew it")
	}
	return checkAnswer(answer)
}

// stream is the body of an answer. When its time is over, it ends without an
// error, like a watch that the hub ends.
type stream struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // of the one request
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// fail answers a request if the hub has not answered.
func (r *relay) fail(w http.ResponseWriter, req *http.Request, err error) {
	if errors.Is(err, quota.ErrExceeded) {
		busy(w)
		return
	}
	if !errors.Is(req.Context().Err(), context.Canceled) { // the client has not left
		r.opts.ErrorLog.Printf("relay: %v", err)
	}
	newRefusal(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable,
		"the relay has no answer of the hub: its log says why").write(w)
}

// refusal is an answer of the relay itself, in the form of the API server's.
type refusal metav1.Status

func newRefusal(code int32, reason metav1.StatusReason, format string, args ...any) *refusal {
	return &refusal{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func badRequest(message string) *refusal {
	return newRefusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, "%s", message)
}

func unauthorized(format string, args ...any) *refusal {
	return newRefusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, format, args...)
}

func tooLarge() *refusal {
	return newRefusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		"the body is larger than %d bytes, the limit of the API server", maxBody)
}

func tooMany(w http.ResponseWriter) *refusal {
	w.Header().Set("Retry-After", "5")
	return newRefusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"the bodies of other requests fill the memory that the relay has for them: try again later")
}

// write flushes the answer. Otherwise net/http would wait for a slow client
// after the handler has returned, when no budget counts the request.
func (s *refusal) write(w http.ResponseWriter) {
	body, _ := json.Marshal(s) // of strings and numbers
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body) // the client may have left
	_ = http.NewResponseController(w).Flush()
}
