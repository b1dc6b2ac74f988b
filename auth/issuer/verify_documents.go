package issuer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/issuercheck"
	"github.com/workloadid/workloadid/internal/transport"
)

// documentTimeout bounds reading one document. AWS waits about as long.
const documentTimeout = 5 * time.Second

// document is an answer as an anonymous client gets it.
type document struct {
	address, contentType string
	status               int
	body                 []byte
	err                  error
}

// checkURL reports whether documents can be there.
func (x *verifier) checkURL() bool {
	u, err := url.Parse(x.Issuer)
	problem := ""
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https":
		problem = "The issuer is not an https:// URL."
	case strings.ContainsAny(x.Issuer, "?#") || u.User != nil:
		problem = "The issuer holds a query, a fragment or a user name."
	case len(x.Keys) > 0:
		return x.passed(issuercheck.IssuerURL)
	case isClusterName(u.Hostname()):
		problem = "The issuer is the cluster's own address, which no cloud can reach."
	}
	if problem != "" {
		return x.failed(Check{Name: issuercheck.IssuerURL, Problem: problem, Got: x.Issuer, Want: "https://HOST/PATH",
			Remedy: "Set --service-account-issuer of the API server to a public https URL."})
	}
	x.passed(issuercheck.IssuerURL)
	if transport.LeadsInside(u.Hostname()) {
		return x.failed(Check{Name: issuercheck.IssuerPublic, Warning: true, Problem: "The issuer is at an address that no cloud can reach.", Got: x.Issuer,
			Want: "https://HOST/PATH", Remedy: "Set --service-account-issuer of the API server to a public https URL."})
	}
	return x.passed(issuercheck.IssuerPublic)
}

// isClusterName recognizes the usual names of API servers.
func isClusterName(host string) bool {
	return host == "kubernetes" || host == "kubernetes.default" || strings.HasPrefix(host, "kubernetes.default.")
}

// checkDocuments stops at the first document that cannot be used.
func (x *verifier) checkDocuments(ctx context.Context) {
	if len(x.Keys) > 0 {
		x.checkKeys(ctx, x.Keys, uploaded)
		return
	}
	httpClient, closing := x.httpClient()
	defer closing()
	discovery := get(ctx, httpClient, strings.TrimSuffix(x.Issuer, "/")+"/"+DiscoveryFile)
	if !x.checkAnswer(discovery, issuercheck.Reachable, issuercheck.Public) {
		return
	}
	address, ok := x.checkDiscovery(discovery)
	if !ok {
		return
	}
	keys := x.readKeys(ctx, httpClient, address)
	if x.checkAnswer(keys, issuercheck.KeysReachable, issuercheck.KeysPublic) {
		x.checkKeys(ctx, keys.body, "published")
		x.checkContentTypes(discovery, keys)
	}
}

// checkAnswer checks the transfer of a document.
func (x *verifier) checkAnswer(d document, reachable, public string) bool {
	if d.err != nil {
		problem := "The issuer cannot be read from this machine: " + transport.Message(d.err) + "."
		if errors.Is(d.err, transport.ErrInside) {
			problem = "The issuer names keys at an address of this network, which is not read."
		}
		return x.failed(Check{Name: reachable, Problem: problem, Got: d.address, Want: "an answer over https, from this address, with a certificate of a public CA",
			Remedy: "Serve the documents at that address. If only this machine cannot reach it, verify from another network."})
	}
	x.passed(reachable)
	c := Check{Name: public, StatusCode: d.status, Got: fmt.Sprintf("HTTP %d", d.status), Want: "HTTP 200", Remedy: "Publish the documents.",
		Problem: fmt.Sprintf("The issuer answers %d: %s", d.status, d.address)}
	switch d.status {
	case http.StatusOK:
		return x.passed(public)
	case http.StatusUnauthorized, http.StatusForbidden:
		c.Problem, c.Remedy = fmt.Sprintf("The issuer answers %d to anonymous requests.", d.status), "Let anyone read "+d.address+"."
		if isStatus(d.body) {
			c.Name = issuercheck.Anonymous
		}
	}
	return x.failed(c)
}

// isStatus reports whether a body is the API object of an API server's refusal.
func isStatus(body []byte) bool {
	var s struct{ Kind, APIVersion string }
	return json.Unmarshal(body, &s) == nil && s.Kind == "Status" && s.APIVersion == "v1"
}

const algorithmsField = "id_token_signing_alg_values_supported"

// checkDiscovery returns the address of the keys.
func (x *verifier) checkDiscovery(d document) (string, bool) {
	var parsed struct {
		Issuer        string   `json:"issuer"`
		JWKSURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}
	bad := Check{Name: issuercheck.Discovery, Remedy: "Publish the documents again."}
	if json.Unmarshal(d.body, &parsed) != nil || parsed.Issuer == "" && parsed.JWKSURI == "" {
		bad.Problem = "This is not a discovery document: " + d.address
		return "", x.failed(bad)
	}
	if parsed.Issuer != x.Issuer {
		return "", x.failed(Check{Name: issuercheck.SameIssuer, Got: parsed.Issuer, Want: x.Issuer, Remedy: "Set --service-account-issuer and the published document to the same text.",
			Problem: "The discovery document names another issuer than the token" + issuercheck.Difference(parsed.Issuer, x.Issuer) + "."})
	}
	x.passed(issuercheck.SameIssuer)
	for _, list := range []struct {
		name         string
		values, want []string
	}{
		{"response_types_supported", parsed.ResponseTypes, []string{"id_token"}},
		{"subject_types_supported", parsed.SubjectTypes, []string{"public"}},
		{algorithmsField, parsed.Algorithms, []string{x.algorithm()}},
	} {
		// The list of algorithms follows from the keys, which are compared next.
		if len(list.values) == 0 || list.name != algorithmsField && !slices.Contains(list.values, list.want[0]) {
			bad.Got = fmt.Sprintf("%q: %.100q", list.name, list.values[:min(len(list.values), 8)])
			bad.Problem, bad.Want = "The list "+list.name+" of the discovery document is wrong.", fmt.Sprintf("%q: %q", list.name, list.want)
			return "", x.failed(bad)
		}
	}
	if refusesKeys(parsed.JWKSURI, x.Issuer) {
		bad.Problem, bad.Got, bad.Want = "The jwks_uri of the discovery document is not a public https URL.", parsed.JWKSURI, strings.TrimSuffix(x.Issuer, "/")+"/"+KeysFile
		return "", x.failed(bad)
	}
	return parsed.JWKSURI, x.passed(issuercheck.Discovery)
}

// algorithm is that of the token, RS256 without one.
func (x *verifier) algorithm() string {
	if h := x.header(); h.Algorithm != "" {
		return h.Algorithm
	}
	return string(jose.RS256)
}

// header returns the token's own, which is not verified.
func (x *verifier) header() (h struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}) {
	part, _, _ := strings.Cut(x.token, ".")
	if content, err := base64.RawURLEncoding.DecodeString(part); err == nil {
		_ = json.Unmarshal(content, &h) // a malformed one verifies nothing
	}
	return h
}

// refusesKeys reports whether no cloud would read the keys there.
func refusesKeys(address, issuer string) bool {
	u, err := url.Parse(address)
	own, parsing := url.Parse(issuer)
	return err != nil || parsing != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		transport.LeadsInside(u.Hostname()) && !strings.EqualFold(u.Host, own.Host)
}

// readKeys follows an address that the issuer chooses. It leads into the own network only if the issuer's own name does.
func (x *verifier) readKeys(ctx context.Context, httpClient *http.Client, address string) document {
	u, err := url.Parse(address)
	own, _ := url.Parse(x.Issuer) // checkURL has parsed it
	if err == nil && !strings.EqualFold(u.Host, own.Host) {
		if outside := transport.Outside(httpClient, address); outside != nil {
			defer outside.CloseIdleConnections()
			httpClient = outside
		}
	}
	return get(ctx, httpClient, address)
}

// get reads a document with a client that follows no redirect and bounds answers.
func get(ctx context.Context, httpClient *http.Client, address string) document {
	d := document{address: address}
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
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
	d.status, d.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
	d.body, d.err = io.ReadAll(resp.Body)
	return d
}

func (x *verifier) checkContentTypes(discovery, keys document) {
	for _, d := range []struct {
		document
		want []string
	}{{discovery, []string{ContentType(DiscoveryFile)}}, {keys, []string{ContentType(KeysFile), "application/json"}}} {
		if got, _, err := mime.ParseMediaType(d.contentType); err != nil || !slices.Contains(d.want, got) {
			x.failed(Check{Name: issuercheck.ContentType, Problem: "The content type is wrong: " + d.address, Got: fmt.Sprintf("%.100q", d.contentType), Want: d.want[0],
				Remedy: "Set the content type of the file where it is stored."})
			return
		}
	}
	x.passed(issuercheck.ContentType)
}

// uploaded says how a cloud got the keys of Verification.Keys.
const uploaded = "uploaded"

// checkKeys compares the keys that a cloud has with those of the API server, and verifies the token with them. Which says how it got them.
func (x *verifier) checkKeys(ctx context.Context, content []byte, which string) {
	remedy := "Publish the keys of the API server again."
	if which == uploaded {
		remedy = "Upload the keys of the API server again."
	}
	set, problem := parseSet(content)
	if problem != "" {
		x.failed(Check{Name: issuercheck.KeySet, Problem: "The " + which + " keys " + problem + ".", Remedy: remedy})
		return
	}
	x.passed(issuercheck.KeySet)
	x.compareKeys(set, which, remedy)
	if x.token == "" {
		x.skipped(issuercheck.SigningKey, x.noToken)
		return
	}
	x.checkSignature(ctx, set, which, remedy)
	x.checkAlgorithm()
}

// parseSet returns what is wrong with a key set, as the end of a sentence.
func parseSet(content []byte) (*jose.JSONWebKeySet, string) {
	set := &jose.JSONWebKeySet{}
	if json.Unmarshal(content, set) != nil || set.Keys == nil {
		return nil, "are not a JSON web key set"
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Sprintf("are %d keys, but AWS reads %d at most", len(set.Keys), maxKeys)
	}
	for i := range set.Keys {
		if !set.Keys[i].IsPublic() {
			return nil, "hold the private key " + fmt.Sprintf("%.100q", set.Keys[i].KeyID) + ", which has leaked thereby"
		}
	}
	return set, ""
}

// compareKeys compares by key and ID.
func (x *verifier) compareKeys(set *jose.JSONWebKeySet, which, remedy string) {
	if x.expected == nil {
		return
	}
	cluster := &jose.JSONWebKeySet{}
	for _, key := range x.expected {
		cluster.Keys = append(cluster.Keys, key.JSONWebKey)
	}
	if missing := without(cluster, set); len(missing) > 0 {
		x.failed(Check{Name: issuercheck.KeysOfCluster, Problem: "The " + which + " keys lack some of the API server.", Remedy: remedy, Got: idsOf(set.Keys), Want: idsOf(cluster.Keys)})
	} else {
		x.passed(issuercheck.KeysOfCluster)
	}
	if foreign := without(set, cluster); len(foreign) > 0 {
		x.failed(Check{Name: issuercheck.ForeignKeys, Warning: true, Problem: "The " + which + " keys hold others than the API server's. Tokens that those sign are accepted.",
			Got: idsOf(foreign), Want: idsOf(cluster.Keys), Remedy: "Wait if these are former keys of the API server. Otherwise remove them at once."})
		return
	}
	x.passed(issuercheck.ForeignKeys)
}

// without returns the keys that the other set lacks.
func without(set, other *jose.JSONWebKeySet) (missing []jose.JSONWebKey) {
	for i := range set.Keys {
		if !slices.ContainsFunc(other.Key(set.Keys[i].KeyID), func(k jose.JSONWebKey) bool { return sameKey(&k, &set.Keys[i]) }) {
			missing = append(missing, set.Keys[i])
		}
	}
	return missing
}

func sameKey(a, b *jose.JSONWebKey) bool {
	left, err := a.Thumbprint(crypto.SHA256)
	right, other := b.Thumbprint(crypto.SHA256)
	return err == nil && other == nil && bytes.Equal(left, right)
}

func idsOf(keys []jose.JSONWebKey) string {
	var ids []string
	for i := range keys {
		ids = append(ids, fmt.Sprintf("%.100q", keys[i].KeyID))
	}
	return "kid " + strings.Join(ids[:min(len(ids), 8)], ", ")
}

// checkSignature verifies as a cloud does. Verifying takes the square of a key's length, and the issuer, which may be hostile, chooses
// length and number.
func (x *verifier) checkSignature(ctx context.Context, set *jose.JSONWebKeySet, which, remedy string) {
	const maxKeyBits, maxTries = 8192, 4
	id := x.header().KeyID
	found := set.Key(id)
	if len(found) == 0 {
		x.failed(Check{Name: issuercheck.SigningKey, Problem: "The " + which + " keys lack the one that signed the token, as after a rotation.", Remedy: remedy,
			Got: idsOf(set.Keys), Want: fmt.Sprintf("kid %.100q", id)})
		return
	}
	x.passed(issuercheck.SigningKey)
	if use, algorithm := found[0].Use, found[0].Algorithm; use != "" && use != "sig" || algorithm != "" && algorithm != x.algorithm() {
		x.failed(Check{Name: issuercheck.Signature, Problem: "The " + which + " key is not for the signature of this token.", Remedy: remedy,
			Got: fmt.Sprintf("use %.20q, alg %.20q", use, algorithm), Want: fmt.Sprintf("use %q, alg %q", "sig", x.algorithm())})
		return
	}
	signed, err := jose.ParseSigned(x.token, []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA})
	if err != nil {
		x.failed(Check{Name: issuercheck.Signature, Problem: "The token's signature is malformed.", Remedy: "Use a fresh token."})
		return
	}
	for i := range found[:min(len(found), maxTries)] {
		if public, ok := found[i].Key.(*rsa.PublicKey); ok && public.N.BitLen() > maxKeyBits || ctx.Err() != nil {
			continue
		}
		if _, err := signed.Verify(found[i].Key); err == nil {
			x.passed(issuercheck.Signature)
			return
		}
	}
	x.failed(Check{Name: issuercheck.Signature, Problem: "The " + which + " key has the token's kid, but did not sign the token.", Remedy: remedy, Got: fmt.Sprintf("kid %.100q", id)})
}

func (x *verifier) checkAlgorithm() {
	if got := x.algorithm(); got != string(jose.RS256) {
		x.failed(Check{Name: issuercheck.Algorithm, Warning: true, Problem: "Microsoft Entra accepts RS256 alone.", Got: got, Want: string(jose.RS256),
			Remedy: "For Azure, sign with an RSA key (kubeadm: encryptionAlgorithm RSA-2048)."})
		return
	}
	x.passed(issuercheck.Algorithm)
}
