package identity

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

func (e *examination) checkIssuer(_ context.Context, c *doctor.Claims) doctor.Finding {
	if e.Issuer != "" && e.Issuer != c.Issuer {
		return doctor.Failed(reason.IssuerNotTrusted, doctor.Do(e.isMeant()+" If it is, correct --issuer and the issuer in "+e.cloud.name+"."),
			"The token's issuer is not the one that %s trusts%s.", e.cloud.name, difference(c.Issuer, e.Issuer)).Compare("token", c.Issuer, "trusted", e.Issuer)
	}
	u, err := url.Parse(c.Issuer)
	fail := func(message string) doctor.Finding {
		return doctor.Failed(reason.IssuersDiffer, doctor.Do("Set --service-account-issuer of the API server to a public https URL."), "%s", message).
			Compare("iss", c.Issuer, "expected", "https://HOST/PATH")
	}
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https":
		return fail("The issuer is not an https:// URL.")
	case strings.ContainsAny(c.Issuer, "?#") || u.User != nil:
		return fail("The issuer holds a query, a fragment or a user name.")
	case e.cloud.readsIssuer && len(e.JWKS) == 0 && isAPIServer(u.Host):
		return fail("The issuer is the cluster's own address, which no cloud can reach.")
	case e.cloud.readsIssuer && len(e.JWKS) == 0 && transport.LeadsInside(u.Hostname()):
		f := fail("The issuer is at an address that no cloud can reach.").As(doctor.Warn)
		f.Class = reason.IssuerNotPublic
		return f
	}
	return doctor.Passed("The issuer is %s.", c.Issuer)
}

// difference names a difference that is easy to overlook.
func difference(a, b string) string {
	switch {
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "; they differ only by the / at the end"
	case strings.EqualFold(a, b):
		return "; they differ in upper and lower case"
	}
	return ""
}

const (
	printDiscovery = "kubectl get --raw /.well-known/openid-configuration"
	printKeys      = "kubectl get --raw /openid/v1/jwks"
)

func (e *examination) checkDiscovery(ctx context.Context, c *doctor.Claims) doctor.Finding {
	docs := e.issuerDocuments(ctx)
	if f, bad := unreadableDocument(&docs.discovery, printDiscovery); bad {
		return f
	}
	d, iss := docs.parsed, c.Issuer
	publish := doctor.Do("Publish what this prints:", printDiscovery)
	if d.Issuer == "" && d.JWKSURI == "" {
		return doctor.Failed(reason.IssuerNotPublic, publish, "This is not a discovery document: %s", docs.discovery.address)
	}
	if d.Issuer != iss {
		return doctor.Failed(reason.IssuersDiffer, doctor.Do("Set --service-account-issuer and the published document to the same text."),
			"The discovery document names another issuer than the token%s.", difference(d.Issuer, iss)).Compare("document", d.Issuer, "token", iss)
	}
	names := []string{"response_types_supported", "subject_types_supported", "id_token_signing_alg_values_supported"}
	for i, values := range [][]string{d.ResponseTypes, d.SubjectTypes, d.Algorithms} {
		if len(values) == 0 {
			return doctor.Failed(reason.IssuerNotPublic, publish, "The discovery document lacks the list %s.", names[i])
		}
	}
	if refusesKeys(d.JWKSURI, iss) {
		return doctor.Failed(reason.IssuerNotPublic, doctor.Do("Set --service-account-jwks-uri of the API server to a public https URL."),
			"The jwks_uri of the discovery document is not a public https URL.").Compare("jwks_uri", d.JWKSURI, "expected", "https://HOST/PATH")
	}
	return doctor.Passed("Anyone can read the discovery document.")
}

// unreadableDocument checks the transfer of a document.
func unreadableDocument(d *document, command string) (doctor.Finding, bool) {
	switch {
	case d.err != nil:
		return unreachable(d), true
	case d.status == http.StatusUnauthorized, d.status == http.StatusForbidden:
		remedy := doctor.Do("Let anyone read that address.")
		if isStatus(d.body) { // the API server itself
			remedy = doctor.Do("As an administrator: let anyone read the issuer's documents, or publish them elsewhere:",
				asAdministrator+"clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated")
		}
		f := doctor.Failed(reason.IssuerNotPublic, remedy, "The issuer answers %d to anonymous requests.", d.status).Detail("address", d.address)
		f.StatusCode = d.status
		return f, true
	case d.status != http.StatusOK:
		f := doctor.Failed(reason.IssuerNotPublic, doctor.Do("Publish at that address what this prints:", command), "The issuer answers %d: %s", d.status, d.address)
		f.StatusCode = d.status
		return f, true
	}
	return doctor.Finding{}, false
}

// isStatus reports whether a body is the API object of an API server's refusal.
func isStatus(body []byte) bool {
	var s struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	return json.Unmarshal(body, &s) == nil && s.Kind == "Status" && s.APIVersion == "v1"
}

// unreachable checks nothing: the cloud may reach what this machine does not, and says so in the exchange.
func unreachable(d *document) doctor.Finding {
	f := doctor.Unclear(doctor.Do("Read it from outside of this network:", "curl -v "+shell.Word(d.address, "ADDRESS")), "The issuer cannot be read from this machine.")
	if errors.Is(d.err, transport.ErrInside) {
		f.Message = "The issuer names keys at an address of this network, which is not read."
	}
	return f.Detail("error", transport.Message(d.err))
}

func (e *examination) checkKeys(ctx context.Context, c *doctor.Claims) doctor.Finding {
	if len(e.JWKS) > 0 {
		return e.verifyKeys(ctx, c, parseKeys(e.JWKS), "uploaded")
	}
	if !e.cloud.readsIssuer {
		return doctor.Skipped("No cloud reads the issuer's documents.")
	}
	docs := e.issuerDocuments(ctx)
	if docs.keys.address == "" {
		return doctor.Skipped("The discovery document could not be read.")
	}
	if f, bad := unreadableDocument(&docs.keys, printKeys); bad {
		return f
	}
	return e.verifyKeys(ctx, c, parseKeys(docs.keys.body), "published")
}

// verifyKeys verifies the signature as a cloud does. Verifying takes the square of a key's length, and the issuer, which may be
// hostile, chooses length and number.
func (e *examination) verifyKeys(ctx context.Context, c *doctor.Claims, set *jose.JSONWebKeySet, which string) doctor.Finding {
	const maxKeyBits, maxKeys = 8192, 4
	publish := doctor.Do("Replace the "+which+" keys by what this prints:", printKeys)
	if set == nil {
		return doctor.Failed(reason.SigningKeyUnavailable, publish, "The %s keys are not a JSON web key set.", which)
	}
	found := set.Key(c.KeyID)
	if len(found) == 0 {
		return doctor.Failed(reason.SigningKeyUnavailable, publish, "The %s keys lack the one that signed the token, as after a rotation.", which).
			Compare("kid", c.KeyID, "expected", fmt.Sprintf("one of the %d %s keys", len(set.Keys), which))
	}
	signed, err := jose.ParseSigned(e.token.raw, []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA})
	if err != nil {
		return doctor.Failed(reason.TokenMalformed, e.freshToken(), "The token's signature is malformed.")
	}
	for i := range found[:min(len(found), maxKeys)] {
		if public, ok := found[i].Key.(*rsa.PublicKey); ok && public.N.BitLen() > maxKeyBits || ctx.Err() != nil {
			continue
		}
		if _, err := signed.Verify(found[i].Key); err == nil {
			return doctor.Passed("The signing key is %s and the signature verifies.", which).Detail("kid", c.KeyID)
		}
	}
	return doctor.Failed(reason.SignatureNotVerified, publish, "The %s key has the token's kid, but did not sign the token.", which).Detail("kid", c.KeyID)
}

// document is a public document as an anonymous client gets it.
type document struct {
	address string
	status  int
	body    []byte
	err     error
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
	httpClient := e.pool.For(e.IssuerClient, e.resolved().ProxyURL)
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
		return d
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	d.status = resp.StatusCode
	d.body, d.err = io.ReadAll(io.LimitReader(resp.Body, transport.MaxBody))
	return d
}
