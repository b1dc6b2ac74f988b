package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/connlimit"
	"github.com/workloadid/workloadid/internal/quota"
)

// Options configures a relay.
type Options struct {
	// Hub holds the https address of the hub's API server and the relay's own
	// credential, which may impersonate. Required.
	Hub *rest.Config
	// ClientCAs holds the hub's CAs for client certificates, from
	// --client-ca-file. The API server publishes them in the ConfigMap
	// kube-system/extension-apiserver-authentication. Required.
	ClientCAs *x509.CertPool
	// MaxRequests bounds the requests in flight with verified certificates,
	// watches included. Half as many may have accepted tokens. Default:
	// DefaultMaxRequests.
	MaxRequests int
	// Registerer takes the metrics. Several relays in one process share them.
	// Nil drops them.
	Registerer prometheus.Registerer
	// ErrorLog receives errors of connections to the hub. Clients do not see
	// them. Default: the standard logger.
	ErrorLog *log.Logger
}

// TLSConfig returns the configuration of the server in front of the handler.
// The caller adds its Certificates.
//
// As at an API server, the handshake requests a certificate, and the handler
// verifies it. A client with an expired certificate therefore reads a 401 and
// requests another one. A failed handshake would not tell it the cause.
func TLSConfig(clientCAs *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, ClientCAs: clientCAs}
}

// LimitListener returns a listener that bounds the open connections in total,
// and for each remote address, a /64 for IPv6. Beyond a bound it closes another
// connection. It first picks one without a verified certificate or a token that
// the hub has accepted, then the oldest of the address with the most.
func LimitListener(listener net.Listener, most, perAddress int) net.Listener {
	return &connlimit.Listener{Listener: listener, Max: most, PerAddress: perAddress}
}

// relay is the handler.
type relay struct {
	opts   Options
	hub    *url.URL
	agents *upstream // with the relay's own credential
	bearer *upstream // with the client's credential only
	// unproven counts requests whose credential is not verified yet, by
	// address.
	unproven *quota.Budget
}

// New returns the handler. The handler itself verifies the certificates of
// clients, whatever the TLS configuration of the server. It is safe for
// concurrent use.
func New(opts Options) (http.Handler, error) {
	if opts.ClientCAs == nil {
		return nil, errors.New("the relay has no client CAs: set ClientCAs to those of the hub")
	}
	hub, err := hubURL(opts.Hub)
	if err != nil {
		return nil, err
	}
	if opts.MaxRequests < 0 {
		return nil, fmt.Errorf("MaxRequests is %d: set a positive number, or 0 for %d", opts.MaxRequests, DefaultMaxRequests)
	}
	opts.MaxRequests = cmp.Or(opts.MaxRequests, DefaultMaxRequests)
	opts.ErrorLog = cmp.Or(opts.ErrorLog, log.Default())
	r := &relay{opts: opts, hub: hub, unproven: &quota.Budget{Max: maxUnproven, Share: maxUnprovenShare}}
	own, err := r.proxy(rest.CopyConfig(opts.Hub), checkOwnAnswer)
	if err != nil {
		return nil, err
	}
	anonymous, err := r.proxy(rest.AnonymousClientConfig(opts.Hub), r.checkBearerAnswer)
	if err != nil {
		return nil, err
	}
	r.agents = &upstream{own, newBodies(), certificateRequests(opts.MaxRequests)}
	r.bearer = &upstream{anonymous, newBodies(), tokenRequests(opts.MaxRequests)}
	return measure(opts.Registerer, r)
}

func hubURL(config *rest.Config) (*url.URL, error) {
	if config == nil {
		return nil, errors.New("the relay has no hub: set Hub to the address of its API server and the relay's credential")
	}
	if config.Insecure {
		return nil,
			errors.New("the hub's certificate has to be verified: unset Insecure and set the certificate authority of Hub")
	}
	return address.Parse("hub's address", config.Host, 0)
}

func (r *relay) proxy(config *rest.Config, check func(*http.Response) error) (*httputil.ReverseProxy, error) {
	config.DisableCompression = true // answers pass unchanged
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a transport to the hub: %w", err)
	}
	// A negative FlushInterval flushes at once, for watches.
	return &httputil.ReverseProxy{Rewrite: r.rewrite, Transport: transport, FlushInterval: -1,
		ModifyResponse: func(answer *http.Response) error {
			answer.Body = &stream{answer.Body, answer.Request.Context()}
			return check(answer)
		},
		ErrorHandler: r.fail, ErrorLog: r.opts.ErrorLog}, nil
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	timed := newTimedWriter(w)
	defer timed.start()
	refused := r.admit(req) // admit never waits, so it needs no slot
	own := &slot{}
	if !own.move(r.firstBudget(req, refused == nil)) {
		busy(timed)
		return
	}
	defer own.release()
	if refused == nil {
		req = req.WithContext(context.WithValue(req.Context(), slotKey{}, own))
		refused = r.upstream(req).serve(timed, req)
	}
	if refused != nil {
		refused.write(timed)
	}
}

// firstBudget returns the budget in which a request starts, and its payer
// there.
func (r *relay) firstBudget(req *http.Request, admitted bool) (*quota.Budget, string) {
	if admitted && len(req.TLS.PeerCertificates) > 0 { // admit has verified it
		connlimit.Prove(req.Context())
		return r.agents.requests, payer(req)
	}
	if admitted && connlimit.Proven(req.Context()) {
		return r.bearer.requests, payer(req)
	}
	return r.unproven, connlimit.Network(req.RemoteAddr)
}

func (r *relay) upstream(req *http.Request) *upstream {
	if len(req.TLS.PeerCertificates) > 0 {
		return r.agents
	}
	return r.bearer
}
