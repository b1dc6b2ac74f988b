package cloudtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Cloud imitates the services of the clouds at their production host names. Its
// Client connects to the cloud for all of them, over TLS, so the code under
// test uses its production URLs.
//
// The services verify the issuer, audience, expiry and subject of a
// ServiceAccount's token, and its signature against the keys that its issuer
// publishes. They also verify the signatures of signed requests. Their errors
// have the codes and texts of the real services.
//
// A Cloud is safe for concurrent use. Close it when the test ends.
type Cloud struct {
	authority *authority
	listener  net.Listener // TLS
	plain     net.Listener // no TLS, for metadata services
	servers   [2]*http.Server
	transport *http.Transport
	served    sync.WaitGroup
	closing   chan struct{}
	closeOnce sync.Once
	proxy     proxy
	aws       *AWS
	azure     *Azure
	gcp       *GCP
	oauth     *OAuth

	mu       sync.Mutex
	now      func() time.Time
	faults   []*Fault
	calls    []Call
	services []service // replaced, never changed

	federations map[FederationService]*Federation
}

// Call is a request that a [Cloud] received.
type Call struct {
	// Service is the service, such as "sts".
	Service string
	// Action is the action of the service, such as "AssumeRoleWithWebIdentity".
	Action string
	// Host is the host name of the request.
	Host string
	// Parameters are the parameters of the request without secrets, such as
	// RoleArn and RoleSessionName.
	Parameters map[string]string
}

// NewCloud starts a cloud on a port of the loopback interface, with a CA of its
// own.
func NewCloud() (*Cloud, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return nil, err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		_ = listener.Close() // was never used
		return nil, err
	}
	c := &Cloud{authority: ca, listener: listener, plain: plain, closing: make(chan struct{}), now: time.Now}
	c.aws, c.azure, c.gcp, c.oauth = newAWS(c), newAzure(c), newGCP(c), newOAuth(c)
	c.services = slices.Concat([]service{c.metadataService()}, c.aws.services(), c.azure.services(), c.gcp.services(),
		c.oauth.services())
	for i := range c.servers {
		c.servers[i] = &http.Server{Handler: c.Handler(), ReadHeaderTimeout: 10 * time.Second,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: ca.certificateFor,
				CurvePreferences: classicCurves()}}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	c.transport = &http.Transport{
		DialContext:         c.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 256,
	}
	c.served.Go(func() { _ = c.servers[0].ServeTLS(listener, "", "") }) // ends with ErrServerClosed
	c.served.Go(func() { _ = c.servers[1].Serve(plain) })
	return c, nil
}

// classicCurves leaves out post-quantum key exchanges, because they are slow
// and a fake has no secrets.
func classicCurves() []tls.CurveID { return []tls.CurveID{tls.X25519, tls.CurveP256} }

// Close cancels all requests and waits for them.
func (c *Cloud) Close() {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.transport.CloseIdleConnections()
		for _, server := range c.servers {
			_ = server.Close() // nothing is lost
		}
	})
	c.served.Wait()
}

// Client returns a client that reaches the cloud at the host names of the real
// services, and nothing else.
func (c *Cloud) Client() *http.Client { return &http.Client{Transport: c.transport} }

// CA returns the CA in PEM.
func (c *Cloud) CA() []byte { return c.authority.pem }

// DialContext connects to the cloud if it serves the host of addr. Other
// clients and proxies can use it.
func (c *Cloud) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if c.serviceAt(addr) == nil {
		return nil, fmt.Errorf("cloudtest: the fake cloud has no service at host %q", addr)
	}
	listener := c.listener
	if port == "80" {
		listener = c.plain
	}
	return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
}

// AWS returns the Amazon side of the cloud.
func (c *Cloud) AWS() *AWS { return c.aws }

// Azure returns the Microsoft side of the cloud.
func (c *Cloud) Azure() *Azure { return c.azure }

// GCP returns the Google side of the cloud.
func (c *Cloud) GCP() *GCP { return c.gcp }

// OAuth returns an authorization server that belongs to no cloud.
func (c *Cloud) OAuth() *OAuth { return c.oauth }

// SetClock replaces the cloud's clock. Nil restores [time.Now].
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

// Calls returns the number of calls of an action of a service. An empty name
// counts all calls.
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

// service is one of the services of a cloud.
type service struct {
	// at reports whether the service serves a host name in lower case. The
	// cloud asks it without the port and with it.
	at func(host string) bool
	// serve answers the request. It calls Cloud.begin once it knows the action.
	serve func(w http.ResponseWriter, r *http.Request, host string)
}

// Handler returns the cloud's services as one handler, which picks the service
// by the request's Host.
func (c *Cloud) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.serviceAt(r.Host)
		if s == nil {
			http.Error(w, fmt.Sprintf("cloudtest: the fake cloud has no service at host %q", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		s.serve(w, r, withoutPort(r.Host))
	})
}

func withoutPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// serviceAt returns the service for a host name with or without a port.
func (c *Cloud) serviceAt(address string) *service {
	address = strings.ToLower(address)
	host := withoutPort(address)
	c.mu.Lock()
	services := c.services
	c.mu.Unlock()
	for i := range services {
		if services[i].at(host) || services[i].at(address) {
			return &services[i]
		}
	}
	return nil
}

// Handle serves a host name with a handler: a fake of a service that [Cloud]
// lacks, or a replacement for one of its own. AWS, Azure, GCP and OAuth return
// the identity behind a request's credential: see [AWS.VerifySignature] and the
// methods Identity.
//
// A host with a port, such as vault.example:8443, serves that port alone. A
// host without a port, or with port 443, serves every port. If several handlers
// match, the last one serves.
//
// Clients reach the host like the others, over TLS with the cloud's CA. In
// Calls and [Fault], the service is the host in lower case, with its port
// unless that is 443, and the action is the method and the path, such as "GET
// /bucket". The error of a Fault is plain text.
func (c *Cloud) Handle(host string, handler http.Handler) {
	host = strings.TrimSuffix(strings.ToLower(host), ":443") // clients omit it in the Host header
	s := service{at: func(asked string) bool {
		return asked == host
	}, serve: func(w http.ResponseWriter, r *http.Request, _ string) {
		call := Call{Service: host, Action: r.Method + " " + r.URL.Path, Host: host}
		fault, ok := c.begin(w, r, call, func(f Fault) { http.Error(w, f.Message, f.Status) })
		switch {
		case !ok:
		case fault == nil:
			handler.ServeHTTP(w, r)
		default:
			recorded := &answer{header: w.Header(), status: http.StatusOK}
			handler.ServeHTTP(recorded, r)
			recorded.header.Del("Content-Length") // Fault.Rewrite may change it
			fault.send(w, r, c.closing, recorded.status, recorded.body.Bytes())
		}
	}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = append([]service{s}, c.services...)
}

// begin records a call and applies its fault. It returns false if the fault has
// answered.
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
