package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// document is one of the issuer's documents, as a stranger gets it.
type document struct {
	address string
	status  int
	body    []byte
	tls     *tls.ConnectionState
	err     error
	// ofKeys says that it is the one with the keys.
	ofKeys bool
	// untrusted says why its certificate is not trusted. The document was read nevertheless, if that could be done, to be able to
	// say more: it is public, and only looked at.
	untrusted error
	// inside says that it came from an address of the own network.
	inside bool
}

type documents struct {
	discovery, keys document
	parsed          discovery
	set             *jose.JSONWebKeySet
}

type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// issuerDocuments are read once.
func (e *examination) issuerDocuments(ctx context.Context) *documents {
	if e.fetched != nil {
		return e.fetched
	}
	d := &documents{}
	e.fetched = d
	d.discovery = e.fetch(ctx, strings.TrimSuffix(e.token.claims.Issuer, "/")+"/.well-known/openid-configuration")
	if d.discovery.err != nil || d.discovery.status != http.StatusOK || json.Unmarshal(d.discovery.body, &d.parsed) != nil {
		return d
	}
	if refusedKeys(d.parsed.JWKSURI, e.token.claims.Issuer) != "" {
		return d
	}
	d.keys = e.fetchKeys(ctx, d)
	d.keys.ofKeys = true
	if d.keys.err == nil && d.keys.status == http.StatusOK {
		d.set = parseKeys(d.keys.body)
	}
	return d
}

// refusedKeys says why the keys are not asked for: the issuer, who may be anybody, does not choose what this machine asks of
// its own network.
func refusedKeys(address, issuer string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return "jwks_uri has to begin with https://"
	case u.User != nil:
		return "jwks_uri holds a user name"
	case isPrivate(u.Hostname()) && !sameServer(address, issuer):
		return "jwks_uri is at an address that clouds cannot reach"
	}
	return ""
}

func sameServer(a, b string) bool {
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	return errA == nil && errB == nil && ua.Scheme == ub.Scheme && firstOf(ua.Port(), "443") == firstOf(ub.Port(), "443") &&
		canonicalHost(ua) == canonicalHost(ub)
}

func canonicalHost(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

func parseKeys(content []byte) *jose.JSONWebKeySet {
	set := &jose.JSONWebKeySet{}
	if json.Unmarshal(content, set) != nil {
		return nil
	}
	return set
}

// fetch asks an issuer, whom the token names.
func (e *examination) fetch(ctx context.Context, address string) document {
	client, err := e.issuerClient()
	if err != nil {
		return document{address: address, err: err}
	}
	return fetchWith(ctx, client, address)
}

// fetchKeys asks whom the issuer names. The name may lead anywhere, and into the own network only where the issuer is there
// itself, or is what the caller knows as a private one. A client of the caller's chooses its way itself.
func (e *examination) fetchKeys(ctx context.Context, d *documents) document {
	address, issuer := d.parsed.JWKSURI, e.token.claims.Issuer
	own := d.discovery.inside && sameServer(address, issuer) || e.Issuer == issuer && isPrivateURL(issuer)
	client, err := e.issuerClient()
	if err != nil || own || e.IssuerClient != nil {
		return e.fetch(ctx, address)
	}
	outside := transport.Outside(client, address)
	defer outside.CloseIdleConnections()
	return fetchWith(ctx, outside, address)
}

func isPrivateURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && isPrivate(u.Hostname())
}

// issuerClient is who reads the issuer's documents. The way out is that of the other requests: where a proxy was named, there may
// be no other.
func (e *examination) issuerClient() (*http.Client, error) {
	if e.IssuerClient != nil {
		return transport.Guard(e.IssuerClient), nil
	}
	return e.pool.Client(e.resolved().ProxyURL, "")
}

func fetchWith(ctx context.Context, client *http.Client, address string) document {
	who := "the issuer at " + hostOf(address)
	d := get(ctx, client, who, address)
	var verification *tls.CertificateVerificationError
	if d.err == nil || !errors.As(d.err, &verification) {
		return d
	}
	d.untrusted = d.err
	d.tls = &tls.ConnectionState{PeerCertificates: verification.UnverifiedCertificates}
	lenient := withoutVerification(client)
	if lenient == nil {
		return d
	}
	defer lenient.CloseIdleConnections()
	if second := get(ctx, lenient, who, address); second.err == nil {
		second.untrusted = d.untrusted
		return second
	}
	return d
}

// withoutVerification is for looking at a public document and at the certificate that it came with, by the same way as before.
// No secret is ever sent. It is nil where the way is not known.
func withoutVerification(client *http.Client) *http.Client {
	return transport.Derive(client, func(t *http.Transport) {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // see above
	})
}

const maxDocument = 1 << 20

func get(ctx context.Context, client *http.Client, who, address string) document {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return ending(ctx, who, func() document { return read(ctx, client, address) },
		func(err error) document { return document{address: address, err: err} })
}

func read(ctx context.Context, client *http.Client, address string) document {
	d := document{address: address}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { d.inside = isInside(c.Conn) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		d.err = err
		return d
	}
	resp, err := client.Do(req)
	if err != nil {
		d.err = err
		return d
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	d.status, d.tls = resp.StatusCode, resp.TLS
	d.body, d.err = io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	return d
}

func isInside(c net.Conn) bool {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return err == nil && transport.AddressInside(at.Addr())
}

const noWayOut = "see why this machine has no way out (HTTPS_PROXY, NO_PROXY, resolver, firewall), or run this where there " +
	"is one;\n" +
	"to leave these checks out: --skip discovery,keys,issuer-tls"

// ownSide tells a machine that reaches nobody from an issuer that nobody reaches.
func (e *examination) ownSide(ctx context.Context, d document) (Finding, bool) {
	if f, unseen := notLookedAt(d); unseen {
		return f, true
	}
	var op *net.OpError
	var refused *transport.ProxyError
	why := ""
	switch {
	case errors.As(d.err, &op) && op.Op == "proxyconnect":
		why = "the proxy that this machine uses cannot be reached"
	case errors.As(d.err, &refused) && refused.StatusCode/100 == 4:
		why = "the proxy that this machine uses refuses to ask it"
	case !e.reachPublic(ctx).reached:
		why = "this machine reaches " + e.cloud.name + " as little"
	default:
		return Finding{}, false
	}
	return unknown(fmt.Sprintf("whether the issuer is public cannot be seen from here: %s (%s)", why, transport.Message(d.err)),
		noWayOut).with(same("asked for", d.address)), true
}

// notLookedAt is about what this machine could, but does not ask.
func notLookedAt(d document) (Finding, bool) {
	look := "ask for it from a machine outside of this network: curl -v " + shell.Word(d.address, "ADDRESS")
	switch {
	case errors.Is(d.err, transport.ErrInside):
		return unknown("the name leads into the network of this machine, where strangers have nothing asked; whether clouds can read it "+
			"cannot be seen from here", look).with(same("asked for", d.address)), true
	case d.untrusted != nil:
		return unknown("it cannot be read here, since the certificate is not trusted: see check 12", look).
			with(same("asked for", d.address)), true
	}
	return Finding{}, false
}
