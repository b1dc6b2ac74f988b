package authtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Cloud imitates the services of the clouds at their production host names. Its Client dials it for all of them, over TLS,
// so that the code under test uses the very URLs that it uses in production.
//
// The services verify what they are sent: the signature of a ServiceAccount's token against the keys that its issuer
// publishes, its issuer, audience, expiry and subject, and the signatures of signed requests. They refuse with the
// codes and texts of the real ones.
//
// A Cloud is safe for concurrent use. Close it when the test ends.
type Cloud struct {
	authority *authority
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	served    sync.WaitGroup
	closing   chan struct{}
	closeOnce sync.Once
	aws       *AWS

	mu     sync.Mutex
	now    func() time.Time
	faults []*Fault
	calls  []Call
}

// Call is a request that a Cloud has answered.
type Call struct {
	// Service is the service, such as "sts".
	Service string
	// Action is what was asked of it, such as "AssumeRoleWithWebIdentity".
	Action string
	// Host is the host name that was asked.
	Host string
	// Parameters are those of the request without secrets, such as RoleArn and RoleSessionName.
	Parameters map[string]string
}

// NewCloud starts a cloud on a port of the loopback interface, with a certificate authority of its own.
func NewCloud() (*Cloud, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return nil, err
	}
	c := &Cloud{authority: ca, listener: listener, closing: make(chan struct{}), now: time.Now}
	c.aws = newAWS(c)
	c.server = &http.Server{
		Handler:           c.Handler(),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: ca.certificateFor},
		ReadHeaderTimeout: 10 * time.Second,
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	c.transport = &http.Transport{
		DialContext:         c.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 256,
	}
	c.served.Go(func() { _ = c.server.ServeTLS(listener, "", "") }) // ends with ErrServerClosed
	return c, nil
}

// Close ends all requests and waits for them.
func (c *Cloud) Close() {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.transport.CloseIdleConnections()
		_ = c.server.Close() // there is nobody to tell
	})
	c.served.Wait()
}

// Client returns a client that reaches the cloud at the host names of the real services, and nothing else.
func (c *Cloud) Client() *http.Client { return &http.Client{Transport: c.transport} }

// CA returns the certificate authority in PEM.
func (c *Cloud) CA() []byte { return c.authority.pem }

// DialContext connects to the cloud if addr is that of a service it imitates, for clients and proxies of one's own.
func (c *Cloud) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if serviceOf(host) == "" {
		return nil, fmt.Errorf("authtest: the fake cloud has no service at host %q", host)
	}
	return (&net.Dialer{}).DialContext(ctx, network, c.listener.Addr().String())
}

// AWS returns the Amazon side of the cloud.
func (c *Cloud) AWS() *AWS { return c.aws }

// SetClock moves the cloud's clock. Nil sets it right.
func (c *Cloud) SetClock(now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	if now == nil {
		c.now = time.Now
	}
}

func (c *Cloud) time() time.Time {
	c.mu.Lock()
	now := c.now
	c.mu.Unlock()
	return now()
}

// Calls returns how often an action was asked of a service. An empty name counts all.
func (c *Cloud) Calls(service, action string) int {
	n := 0
	for _, call := range c.Log() {
		if (service == "" || service == call.Service) && (action == "" || action == call.Action) {
			n++
		}
	}
	return n
}

// Log returns all calls in the order in which they arrived.
func (c *Cloud) Log() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Call(nil), c.calls...)
}

// Handler returns the cloud's services as a handler that goes by the request's Host.
func (c *Cloud) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		switch serviceOf(host) {
		case "sts":
			c.aws.serveSTS(w, r, host)
		default:
			http.Error(w, fmt.Sprintf("authtest: the fake cloud has no service at host %q", host), http.StatusMisdirectedRequest)
		}
	})
}

// serviceOf knows the host names of the services.
func serviceOf(host string) string {
	if isSTSHost(strings.ToLower(host)) {
		return "sts"
	}
	return ""
}

// begin records a call and plays the faults that are set for it. It returns false if there is nothing left to answer.
func (c *Cloud) begin(w http.ResponseWriter, r *http.Request, call Call, fail func(Fault)) (*Fault, bool) {
	c.mu.Lock()
	c.calls = append(c.calls, call)
	var fault *Fault
	for n, f := range c.faults {
		if !f.matches(call) {
			continue
		}
		fault = f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				c.faults = append(c.faults[:n:n], c.faults[n+1:]...)
			}
		}
		break
	}
	c.mu.Unlock()
	if fault == nil {
		return nil, true
	}
	copied := *fault
	return &copied, copied.play(w, r, c.closing, fail)
}
