package diagnose

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"

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
	// untrusted says why its certificate is not trusted. The document was read nevertheless, to be able to say more: it is
	// public, and only looked at.
	untrusted error
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
	d.keys = e.fetch(ctx, d.parsed.JWKSURI)
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
	from, issuerErr := url.Parse(issuer)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return "jwks_uri has to begin with https://"
	case u.User != nil:
		return "jwks_uri holds a user name"
	case isPrivate(u.Hostname()) && (issuerErr != nil || u.Host != from.Host):
		return "jwks_uri is at an address that clouds cannot reach"
	}
	return ""
}

func parseKeys(content []byte) *jose.JSONWebKeySet {
	set := &jose.JSONWebKeySet{}
	if json.Unmarshal(content, set) != nil {
		return nil
	}
	return set
}

func (e *examination) fetch(ctx context.Context, address string) document {
	client := e.IssuerClient
	if client == nil {
		var err error
		// The way out is that of the other requests: where a proxy was named, there may be no other.
		if client, err = e.pool.Client(e.resolved().ProxyURL, ""); err != nil {
			return document{address: address, err: err}
		}
	}
	d := get(ctx, transport.Guard(client), "the issuer at "+hostOf(address), address)
	var verification *tls.CertificateVerificationError
	if d.err != nil && errors.As(d.err, &verification) {
		if lenient := withoutVerification(client); lenient != nil {
			untrusted := d.err
			d = get(ctx, transport.Guard(lenient), "the issuer at "+hostOf(address), address)
			lenient.CloseIdleConnections()
			d.untrusted = untrusted
		}
	}
	return d
}

// withoutVerification is for looking at a public document and at the certificate that it came with. No secret is ever sent.
func withoutVerification(client *http.Client) *http.Client {
	t := &http.Transport{}
	transport.UseProxy(t, nil)
	if own, ok := client.Transport.(*http.Transport); ok {
		t = own.Clone()
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // see above
	return &http.Client{Transport: t}
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

const noWayOut = "see why this machine has no way out (HTTPS_PROXY, NO_PROXY, resolver, firewall), or run this where there " +
	"is one;\n" +
	"to leave these checks out: --skip discovery,keys,issuer-tls"

// ownSide tells a machine that reaches nobody from an issuer that nobody reaches.
func (e *examination) ownSide(ctx context.Context, d document) (Finding, bool) {
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
