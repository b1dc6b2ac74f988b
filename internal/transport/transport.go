// Package transport makes the HTTP clients of the providers: one set of
// connections for each proxy and certificate authority, with time-outs, bounded
// answers, and no redirects.
package transport

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// maxTransports bounds the sets of connections of a pool: tenants can set
	// proxies.
	maxTransports = 64
	// MaxBody bounds the body of an answer that describes an object, in bytes.
	MaxBody = 1 << 20
	// MaxToken bounds the body of a refusal, and of an answer that holds only a
	// token, in bytes. Parsing takes far more memory than the body has.
	MaxToken = 64 << 10
	// RequestTimeout bounds one request with its answer, in addition to its
	// context.
	RequestTimeout = 20 * time.Second

	dialTimeout      = 5 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	idlePerHost      = 64
)

// Pool keeps one client for each proxy and certificate authority. The zero
// value is ready for use, and a Pool is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	clients *simplelru.LRU[key, *http.Client]
}

type key struct {
	proxy string
	ca    [sha256.Size]byte
}

// Client returns the client for a proxy (nil: the environment's) and
// certificate authorities in PEM (empty: the system's).
func (p *Pool) Client(proxy *url.URL, ca string) (*http.Client, error) {
	k := key{ca: sha256.Sum256([]byte(ca))}
	if proxy != nil {
		k.proxy = proxy.String()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		// fails for sizes below 1 only
		p.clients, _ = simplelru.NewLRU(maxTransports, func(_ key, c *http.Client) { c.CloseIdleConnections() })
	}
	if c, ok := p.clients.Get(k); ok {
		return c, nil
	}
	c, err := newClient(proxy, ca)
	if err != nil {
		return nil, err
	}
	p.clients.Add(k, c)
	return c, nil
}

// CloseIdleConnections closes the connections that no request uses.
func (p *Pool) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		return
	}
	for _, c := range p.clients.Values() {
		c.CloseIdleConnections()
	}
}

func newClient(proxy *url.URL, ca string) (*http.Client, error) {
	t := &http.Transport{
		DialContext:            newDialer().DialContext,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  RequestTimeout,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           4 * idlePerHost,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: 64 << 10,
	}
	UseProxy(t, proxy)
	if ca != "" {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("there is no PEM certificate in the certificate authority data")
		}
	}
	return &http.Client{Transport: Bounded(t), Timeout: RequestTimeout, CheckRedirect: NoRedirect}, nil
}

// For returns the client that a caller has given, guarded as the pool's own
// are, or the pool's client for proxy if given is nil.
func (p *Pool) For(given *http.Client, proxy *url.URL) *http.Client {
	if given != nil {
		return Guard(given)
	}
	client, _ := p.Client(proxy, "") // fails for malformed certificate authorities only
	return client
}

// Guard returns a copy of a client that follows no redirect, reads bounded
// answers, and has a time-out.
func Guard(given *http.Client) *http.Client {
	guarded := *given
	if guarded.Transport == nil {
		guarded.Transport = http.DefaultTransport
	}
	guarded.Transport = Bounded(guarded.Transport)
	guarded.CheckRedirect = NoRedirect
	if guarded.Timeout == 0 {
		guarded.Timeout = RequestTimeout
	}
	return &guarded
}

// checkProxy replaces the text of a proxy's refusal, because it could repeat
// the password of the proxy.
func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return &ProxyError{resp.StatusCode}
	}
	return nil
}

// ProxyError is a proxy's refusal to connect to a server.
type ProxyError struct{ StatusCode int }

func (e *ProxyError) Error() string {
	return fmt.Sprintf("the proxy refuses the connection with HTTP %d", e.StatusCode)
}

// NoRedirect is an http.Client.CheckRedirect: another host must not receive the
// request. Its error names the host that redirects, never the target, which the
// answer chose.
func NoRedirect(_ *http.Request, via []*http.Request) error {
	return &redirectError{via[len(via)-1].URL.Host}
}

type redirectError struct{ host string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("no answer from %q: refused to follow a redirect", e.host)
}

// UseProxy makes a transport use a proxy for the requests that needsProxy
// reports. Nil means the proxies of the environment.
func UseProxy(t *http.Transport, proxy *url.URL) {
	t.OnProxyConnectResponse = checkProxy
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		switch {
		case proxy != nil && needsProxy(r.URL):
			return proxy, nil
		case proxy != nil, isLocal(r.URL.Hostname()):
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
}

// needsProxy reports whether a request goes through the proxy of the call.
// Plain http does not: a tenant may have chosen the proxy, and it would read
// the controller's own identity. Requests to local services do not either: the
// proxy would reach services of its own machine.
func needsProxy(u *url.URL) bool { return u.Scheme == "https" && !isLocal(u.Hostname()) }

// isLocal recognizes loopback, link-local and metadata addresses.
func isLocal(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || host == "metadata.google.internal" || host == "metadata" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || awsMetadata.Contains(ip)
}

// awsMetadata holds the IPv6 addresses of the instance metadata service and of
// EKS Pod Identity: fd00:ec2::254 and ::23.
var awsMetadata = netip.MustParsePrefix("fd00:ec2::/32")

// ForTokens returns a copy of a client for answers that hold only a token. It
// reads at most MaxToken bytes of each, and shares the client's connections.
func ForTokens(client *http.Client) *http.Client {
	limited := *client
	limited.Transport = BoundedTo(cmp.Or(limited.Transport, http.DefaultTransport), MaxToken)
	return &limited
}

// Bounded returns a RoundTripper that reads at most MaxBody bytes of each
// answer, and MaxToken bytes of a refusal. It fails beyond that.
func Bounded(next http.RoundTripper) http.RoundTripper { return BoundedTo(next, MaxBody) }

// BoundedTo is Bounded for another number of bytes.
func BoundedTo(next http.RoundTripper, bytes int64) http.RoundTripper { return bounded{next, bytes} }

type bounded struct {
	next  http.RoundTripper
	bytes int64
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := b.bytes
	if resp.StatusCode >= http.StatusBadRequest {
		limit = min(limit, MaxToken)
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, limit)
	return resp, nil
}

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
