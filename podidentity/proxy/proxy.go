package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/redact"
)

const (
	// margin is the time before the expiry during which credentials are not
	// served any more.
	margin = time.Minute
	// maxLifetime is the longest session that the server asks AWS for. A later
	// expiry means that the pod's clock is slow.
	maxLifetime = time.Hour

	firstDelay    = time.Second
	maxDelay      = 30 * time.Second
	maxRetryAfter = time.Minute
	// unchangedDelay is the wait after an answer with credentials that the
	// proxy already holds.
	unchangedDelay = time.Minute
)

// Options configures a [Proxy]. Server, TokenFile, Secret and either CA or
// Client are required.
type Options struct {
	// Server is the server's address: https, host and port.
	Server string
	// CA holds the PEM certificates that verify the server's certificate, until
	// an answer of the server replaces them. The proxy trusts no other CA.
	CA []byte
	// TokenFile holds the projected token with the server's audience. Every
	// call to the server reads it again.
	TokenFile string
	// Secret proves that a request comes from an application of this pod.
	// Applications send it verbatim as Authorization.
	Secret string
	// Client replaces the client that CA configures. The proxy makes it follow
	// no redirect, and bounds its time and answers.
	Client *http.Client
	// Logger receives each renewal and each failure with its reason, because
	// some SDKs show none. The zero value drops them.
	Logger logr.Logger
}

// A Proxy answers applications with the credentials that Run fetches. It is
// safe for concurrent use.
type Proxy struct {
	server    string
	tokenFile string
	secret    []byte
	client    *http.Client
	roots     *roots // nil if the caller passes a client
	logger    logr.Logger
	state     atomic.Pointer[state]
}

// state is immutable. Without valid credentials, the proxy answers with the
// failure.
type state struct {
	credentials *credentials
	failure     *failure
}

// New returns a [Proxy] without credentials. It checks the options and makes no
// request.
func New(o Options) (*Proxy, error) {
	server, err := endpoint(o.Server)
	if err != nil {
		return nil, err
	}
	if o.TokenFile == "" {
		return nil, errors.New("proxy: no token file: name the file of the projected ServiceAccount token")
	}
	if !validHeader(o.Secret) {
		return nil, errors.New("proxy: the secret is empty or no header value: use random printable ASCII without spaces")
	}
	client, trusted, err := newClient(o)
	if err != nil {
		return nil, err
	}
	p := &Proxy{server: server, tokenFile: o.TokenFile, secret: []byte(o.Secret),
		client: client, roots: trusted, logger: o.Logger}
	p.state.Store(&state{failure: unavailable("the first credentials have not been fetched yet")})
	return p, nil
}

func endpoint(server string) (string, error) {
	if u, err := address.Parse("server", server, 0); err != nil || u.Path != "" {
		return "", fmt.Errorf("proxy: server %q: use https://host:port without a path", redact.URL(server))
	}
	return server + podidentity.Path, nil
}

func validHeader(value string) bool {
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return value != ""
}

// Run fetches credentials at once, keeps them fresh, and returns nil when the
// context ends.
func (p *Proxy) Run(ctx context.Context) error {
	failures := 0
	for wait := time.Duration(0); sleep(ctx, wait); {
		fresh, failed := p.fetch(ctx)
		switch {
		case ctx.Err() != nil: // the loop ends
		case failed != nil:
			failures++
			wait = backoff(failures, failed.retryAfter)
			p.fail(failed, wait)
		default:
			failures = 0
			wait = p.keep(fresh)
		}
	}
	return nil
}

// keep stores credentials that expire later than the stored ones, and returns
// the time until the next renewal.
func (p *Proxy) keep(fresh *credentials) time.Duration {
	held := p.state.Load().credentials
	if held != nil && !fresh.expires.After(held.expires) {
		p.logger.Info("the server returned no later credentials", "expires", held.expires, "retryIn", unchangedDelay)
		return unchangedDelay
	}
	p.state.Store(&state{credentials: fresh, failure: unavailable("the credentials have expired")})
	wait := renewal(time.Until(fresh.expires))
	p.logger.Info("credentials fetched", "accessKeyID", fresh.accessKeyID, "expires", fresh.expires, "renewIn", wait)
	return wait
}

// fail stores the reason. Only a decision of the server drops valid
// credentials, because during an outage no others are available.
func (p *Proxy) fail(reason *failure, wait time.Duration) {
	next := &state{failure: reason}
	if reason.status != http.StatusForbidden {
		next.credentials = p.state.Load().credentials
	}
	p.state.Store(next)
	p.logger.Error(reason, "no new credentials", "retryIn", wait)
}

// renewal leaves 7/12 of a lifetime. The jitter of 1/30 separates pods that
// started together. It is small enough for an hour's session to survive an
// outage of 30 minutes with margin, jitter and back-off.
func renewal(lifetime time.Duration) time.Duration {
	return lifetime*5/12 + rand.N(lifetime/30) //nolint:gosec // spreads load, keeps no secret
}

func backoff(failures int, retryAfter time.Duration) time.Duration {
	delay := min(firstDelay<<min(failures-1, 10), maxDelay)
	delay = max(delay, min(retryAfter, maxRetryAfter))
	return delay + rand.N(delay/4) //nolint:gosec // spreads load, keeps no secret
}

// sleep reports whether the time has passed before the context ended. The wall
// clock counts too, because the monotonic clock stops while a machine is
// suspended, and credentials still expire.
func sleep(ctx context.Context, wait time.Duration) bool {
	at := time.Now().Add(wait)
	for ctx.Err() == nil {
		left := min(time.Until(at), time.Until(at.Round(0)))
		if left <= 0 {
			return true
		}
		select {
		case <-time.After(min(left, time.Minute)):
		case <-ctx.Done():
		}
	}
	return false
}
