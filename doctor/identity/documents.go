package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/transport"
)

// document is a public document as an anonymous client gets it.
type document struct {
	address      string
	status       int
	body         []byte
	certificates []*x509.Certificate
	err          error
}

type documents struct {
	discovery, keys document
	parsed          discovery
}

type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// issuerDocuments reads the issuer's documents once.
func (e *examination) issuerDocuments(ctx context.Context) *documents {
	if e.documents != nil {
		return e.documents
	}
	d := &documents{}
	e.documents = d
	issuer := e.token.claims.Issuer
	d.discovery.address = strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	httpClient, err := e.pool.For(e.IssuerClient, e.resolved().ProxyURL)
	if err != nil {
		d.discovery.err = err
		return d
	}
	d.discovery = get(ctx, httpClient, d.discovery.address)
	if d.discovery.err == nil && json.Unmarshal(d.discovery.body, &d.parsed) == nil && !refusesKeys(d.parsed.JWKSURI, issuer) {
		d.keys = e.readKeys(ctx, httpClient, d.parsed.JWKSURI)
	}
	return d
}

// readKeys follows an address that the issuer chooses. It leads into the own network only if the issuer's own name does.
func (e *examination) readKeys(ctx context.Context, httpClient *http.Client, address string) document {
	if e.IssuerClient == nil && !isPrivate(address) {
		httpClient = transport.Outside(httpClient, address)
		defer httpClient.CloseIdleConnections()
	}
	return get(ctx, httpClient, address)
}

func isPrivate(address string) bool {
	u, err := url.Parse(address)
	return err == nil && transport.LeadsInside(u.Hostname())
}

// refusesKeys reports whether no cloud would read the keys there.
func refusesKeys(address, issuer string) bool {
	u, err := url.Parse(address)
	own, parsing := url.Parse(issuer)
	return err != nil || parsing != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || isPrivate(address) && !strings.EqualFold(u.Host, own.Host)
}

func parseKeys(content []byte) *jose.JSONWebKeySet {
	set := &jose.JSONWebKeySet{}
	if json.Unmarshal(content, set) != nil {
		return nil
	}
	return set
}

// get reads a document with a client that follows no redirect and bounds answers.
func get(ctx context.Context, httpClient *http.Client, address string) (d document) {
	d.address = address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		d.err = err
		return d
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		d.err = err
		if v := untrusted(err); v != nil {
			d.certificates = v.UnverifiedCertificates
		}
		return d
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	d.status = resp.StatusCode
	if resp.TLS != nil {
		d.certificates = resp.TLS.PeerCertificates
	}
	d.body, d.err = io.ReadAll(io.LimitReader(resp.Body, transport.MaxBody))
	return d
}

// untrusted returns the error of a certificate that this machine does not trust, nil for all others.
func untrusted(err error) *tls.CertificateVerificationError {
	var v *tls.CertificateVerificationError
	if errors.As(err, &v) {
		return v
	}
	return nil
}
