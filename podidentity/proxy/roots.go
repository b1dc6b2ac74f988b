package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// roots is the transport to the server. It opens a connection for each call,
// and the current CAs verify it. Calls are 25 minutes apart, so a new
// connection also finds the current replicas and certificate.
type roots struct{ held atomic.Pointer[bundle] }

// bundle is immutable.
type bundle struct {
	text string
	pool *x509.CertPool
}

func newRoots(ca []byte) (*roots, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("proxy: the CA of the server holds no PEM certificate")
	}
	r := &roots{}
	r.held.Store(&bundle{string(ca), pool})
	return r, nil
}

// RoundTrip implements http.RoundTripper.
func (r *roots) RoundTrip(req *http.Request) (*http.Response, error) {
	once := &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: r.held.Load().pool, MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswer,
	}
	return once.RoundTrip(req)
}

// adopt replaces the CAs for the next connections. It refuses a bundle that
// does not verify this connection, because the proxy could not reach the server
// again. It returns the number of CAs, or 0 if the bundle has not changed.
func (r *roots) adopt(text string, from *tls.ConnectionState) (int, error) {
	if text == "" || text == r.held.Load().text {
		return 0, nil
	}
	cas, err := podidentity.ParseBundle([]byte(text))
	if err != nil {
		return 0, err
	}
	next := &bundle{text, x509.NewCertPool()}
	for _, ca := range cas {
		next.pool.AddCert(ca)
	}
	if err := next.verify(from); err != nil {
		return 0, fmt.Errorf("they do not verify the certificate of the server: %w", err)
	}
	r.held.Store(next)
	return len(cas), nil
}

// verify does not check the name, because the handshake has checked it.
func (b *bundle) verify(from *tls.ConnectionState) error {
	if from == nil || len(from.PeerCertificates) == 0 {
		return errors.New("the connection has none")
	}
	intermediates := x509.NewCertPool()
	for _, c := range from.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := from.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: b.pool, Intermediates: intermediates})
	return err
}

// follow adopts the CAs of an answer. It logs a bad bundle, and the credentials
// of the answer stay usable.
func (p *Proxy) follow(body []byte, from *tls.ConnectionState) {
	if p.roots == nil {
		return // the caller's client has its own CAs
	}
	var answer struct{ CABundle string }
	err := json.Unmarshal(body, &answer)
	if err != nil {
		err = errors.New("CABundle is no string") // the error could quote a secret
	}
	n := 0
	if err == nil {
		n, err = p.roots.adopt(answer.CABundle, from)
	}
	switch {
	case err != nil:
		p.logger.Error(errors.New(cut(err.Error())), "the CAs in the answer of the server are ignored")
	case n > 0:
		p.logger.Info("the CAs of the server have changed", "cas", n)
	}
}
