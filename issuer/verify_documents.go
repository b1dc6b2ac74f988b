package issuer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// documentTimeout bounds reading one document. AWS waits about as long.
const documentTimeout = 5 * time.Second

// document is the answer to an anonymous client.
type document struct {
	transport.Answer
	address string
	err     error
}

// difference names a difference between issuers that is easy to overlook. It is
// empty for any other difference.
func difference(a, b string) string {
	switch {
	case a == b:
		return ""
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "; they differ only by the / at the end"
	case strings.EqualFold(a, b):
		return "; they differ in upper and lower case"
	}
	return ""
}

// checkURL reports whether the issuer's URL can have documents.
func (x *verifier) checkURL() bool {
	c := Check{Name: CheckIssuerURL, Got: x.Issuer, Want: "https://HOST/PATH",
		Remedy: "Set --service-account-issuer of the API server to a public https URL."}
	if err := ValidateURL(x.Issuer); err != nil {
		c.Problem = "T" + err.Error()[1:] + "." // a sentence
		return x.failed(c)
	}
	u, _ := url.Parse(x.Issuer) // ValidateURL has parsed it
	if len(x.Keys) > 0 {
		return x.passed(CheckIssuerURL)
	}
	c.Problem = "The issuer is the cluster's own address, which no cloud can reach."
	if host := u.Hostname() + "."; !x.check(!strings.HasPrefix(host, "kubernetes.default.") && host != "kubernetes.", c) {
		return false
	}
	c.Name, c.Warning, c.Problem = CheckIssuerPublic, true, "The issuer is at an address that no cloud can reach."
	inside := transport.LeadsInside(u.Hostname())
	if !inside {
		c.Problem = "The issuer has a port, but AWS demands one without."
	}
	return x.check(!inside && u.Port() == "", c)
}

// checkDocuments stops at the first document that is unusable.
func (x *verifier) checkDocuments(ctx context.Context) {
	if len(x.Keys) > 0 {
		if x.KeysIssuer != "" && x.KeysIssuer != x.Issuer {
			x.failed(Check{Name: CheckKeysIssuer, Got: x.KeysIssuer, Want: x.Issuer,
				Remedy:  "Set the issuer of the cloud's provider to that of the tokens.",
				Problem: "The cloud was given the keys for another issuer" + difference(x.KeysIssuer, x.Issuer) + "."})
		}
		x.checkKeys(x.Keys, "uploaded", "Upload the keys of the API server again.")
		return
	}
	httpClient := new(transport.Pool).For(x.HTTPClient, nil)
	defer httpClient.CloseIdleConnections()
	discovery := get(ctx, httpClient, strings.TrimSuffix(x.Issuer, "/")+"/"+DiscoveryFile)
	if !x.checkAnswer(discovery, CheckDiscoveryReachable, CheckDiscoveryPublic) {
		return
	}
	address, ok := x.checkDiscovery(discovery)
	if !ok {
		return
	}
	keys := x.readKeys(ctx, httpClient, address)
	if x.checkAnswer(keys, CheckKeysReachable, CheckKeysPublic) {
		x.checkKeys(keys.Body, "published", "Publish the keys of the API server again.")
		x.checkContentTypes(discovery, keys)
	}
}

// checkAnswer checks the transfer of a document.
func (x *verifier) checkAnswer(d document, reachable, public CheckName) bool {
	c := Check{Name: reachable, Got: d.address,
		Want:   "an answer over https, from this address, with a certificate of a public CA",
		Remedy: "Serve the documents at that address. If only this machine cannot reach it, verify from another network."}
	switch {
	case errors.Is(d.err, transport.ErrInside):
		c.Problem = "The issuer names keys at an address of this network, which is not read."
	case d.err != nil:
		c.Problem = "The issuer cannot be read from this machine: " + transport.Message(d.err) + "."
	}
	if !x.check(d.err == nil, c) {
		return false
	}
	c = Check{Name: public, StatusCode: d.Status, Got: fmt.Sprintf("HTTP %d", d.Status), Want: "HTTP 200",
		Remedy:  "Publish the documents.",
		Problem: fmt.Sprintf("The issuer answers %d: %s", d.Status, d.address)}
	if d.Status == http.StatusUnauthorized || d.Status == http.StatusForbidden {
		c.Problem, c.Remedy = fmt.Sprintf("The issuer answers %d to anonymous requests.", d.Status), "Let anyone read "+
			d.address+"."
		var s struct { // of an API server's refusal
			Kind       string `json:"kind"`
			APIVersion string `json:"apiVersion"`
		}
		if exactjson.Unmarshal(d.Body, &s) == nil && s.Kind == "Status" && s.APIVersion == "v1" {
			c.Name = CheckDiscoveryAnonymous
		}
	}
	return x.check(d.Status == http.StatusOK, c)
}

// checkDiscovery returns the address of the keys.
func (x *verifier) checkDiscovery(d document) (string, bool) {
	var parsed discoveryDocument
	bad := Check{Name: CheckDiscoveryDocument, Remedy: "Publish the documents again."}
	if exactjson.Unmarshal(d.Body, &parsed) != nil || parsed.Issuer == "" && parsed.JWKSURI == "" {
		bad.Problem = "This is not a discovery document: " + d.address
		return "", x.failed(bad)
	}
	if !x.check(parsed.Issuer == x.Issuer, Check{Name: CheckDiscoveryIssuer, Got: parsed.Issuer, Want: x.Issuer,
		Remedy:  "Set --service-account-issuer and the published document to the same text.",
		Problem: "The discovery document names another issuer than the token" + difference(parsed.Issuer, x.Issuer) + "."}) {
		return "", false
	}
	for _, list := range []struct {
		name   string
		values []string
		want   string
		right  bool
	}{
		{"response_types_supported", parsed.ResponseTypes, "id_token", slices.Contains(parsed.ResponseTypes, "id_token")},
		{"subject_types_supported", parsed.SubjectTypes, "public", slices.Contains(parsed.SubjectTypes, "public")},
		// The algorithms follow from the keys, which are compared next.
		{"id_token_signing_alg_values_supported", parsed.Algorithms, x.header().Algorithm, len(parsed.Algorithms) > 0},
	} {
		if !list.right {
			bad.Got = fmt.Sprintf("%q: %.100q", list.name, list.values[:min(len(list.values), 8)])
			bad.Problem, bad.Want = "The list "+list.name+
				" of the discovery document is wrong.", fmt.Sprintf("%q: [%q]", list.name, list.want)
			return "", x.failed(bad)
		}
	}
	bad.Problem, bad.Got, bad.Want = "The jwks_uri of the discovery document is not a public https URL.", parsed.JWKSURI,
		strings.TrimSuffix(x.Issuer, "/")+"/"+KeysFile
	return parsed.JWKSURI, x.check(!refusesKeys(parsed.JWKSURI, x.Issuer), bad)
}

// header returns the header of the token, unverified. Without a token the
// algorithm is RS256.
func (x *verifier) header() (h struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}) {
	h.Algorithm = string(jose.RS256)
	part, _, _ := strings.Cut(x.token, ".")
	content, _ := base64.RawURLEncoding.DecodeString(part) // a malformed one verifies nothing
	_ = exactjson.Unmarshal(content, &h)
	return h
}

// refusesKeys reports whether no cloud would read keys at the address.
func refusesKeys(address, issuer string) bool {
	u, err := url.Parse(address)
	own, parsing := url.Parse(issuer)
	return err != nil || parsing != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		transport.LeadsInside(u.Hostname()) && !strings.EqualFold(u.Host, own.Host)
}

// readKeys follows an address that the issuer chooses. It reaches into the own
// network only if the issuer's own name does.
func (x *verifier) readKeys(ctx context.Context, httpClient *http.Client, address string) document {
	u, err := url.Parse(address)
	own, _ := url.Parse(x.Issuer) // checkURL has parsed it
	if err == nil && !strings.EqualFold(u.Host, own.Host) {
		outside := transport.Outside(httpClient, address)
		if outside == nil {
			outside = transport.Outside(new(transport.Pool).For(nil, nil), address)
		}
		defer outside.CloseIdleConnections()
		httpClient = outside
	}
	return get(ctx, httpClient, address)
}

// get reads a document with a client that follows no redirect and bounds
// answers.
func get(ctx context.Context, httpClient *http.Client, address string) document {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	answer, err := transport.SendOnce(ctx, httpClient, func() (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	})
	return document{answer, address, err}
}

func (x *verifier) checkContentTypes(discovery, keys document) {
	for _, d := range []struct {
		document
		want []string
	}{{discovery, []string{ContentType(DiscoveryFile)}}, {keys, []string{ContentType(KeysFile), "application/json"}}} {
		if got, _, err := mime.ParseMediaType(d.Header.Get("Content-Type")); err != nil || !slices.Contains(d.want, got) {
			x.failed(Check{Name: CheckContentType, Problem: "The content type is wrong: " + d.address,
				Got: fmt.Sprintf("%.100q", d.Header.Get("Content-Type")), Want: d.want[0],
				Remedy: "Set the content type of the file where it is stored."})
			return
		}
	}
	x.passed(CheckContentType)
}

// checkKeys compares a cloud's keys with the API server's, and verifies the
// token with them. which describes how the cloud received them.
func (x *verifier) checkKeys(content []byte, which, remedy string) {
	set, err := parseKeySet(content)
	if err != nil {
		x.failed(Check{Name: CheckKeySet, Problem: "The " + which + " keys are refused: " + err.Error() + ".",
			Remedy: remedy})
		return
	}
	x.passed(CheckKeySet)
	if x.expected != nil {
		want, foreign := kids(x.expected.lacking(nil)), set.lacking(x.expected)
		x.check(len(x.expected.lacking(set)) == 0,
			Check{Name: CheckKeysOfCluster, Problem: "The " + which + " keys lack some of the API server.",
				Remedy: remedy, Got: kids(set.lacking(nil)), Want: want})
		x.check(len(foreign) == 0, Check{Name: CheckForeignKeys, Warning: true, Got: kids(foreign), Want: want,
			Problem: "The " + which + " keys hold others than the API server's. Tokens that those sign are accepted.",
			Remedy: "Wait if these are former keys of the API server: publishing removes each after its last token. " +
				"Otherwise remove them at once."})
	}
	if x.token == "" {
		x.skipped(CheckSigningKey, x.noToken)
		return
	}
	x.checkSignature(set, which, remedy)
	x.check(x.header().Algorithm == string(jose.RS256),
		Check{Name: CheckAlgorithm, Warning: true, Problem: "Microsoft Entra accepts RS256 alone.",
			Got: x.header().Algorithm, Want: string(jose.RS256),
			Remedy: "For Azure, sign with an RSA key (kubeadm: encryptionAlgorithm RSA-2048)."})
}

func kids(ids []string) string {
	var quoted []string
	for _, id := range ids[:min(len(ids), 8)] {
		quoted = append(quoted, fmt.Sprintf("%.100q", id))
	}
	return "kid " + strings.Join(quoted, ", ")
}

// checkSignature verifies the token as a cloud does.
func (x *verifier) checkSignature(set keySet, which, remedy string) {
	header := x.header()
	i, kid := set.index(header.KeyID), fmt.Sprintf("kid %.100q", header.KeyID)
	if !x.check(i >= 0,
		Check{Name: CheckSigningKey,
			Problem: "The " + which + " keys lack the one that signed the token, as after a rotation.",
			Remedy:  remedy, Got: kids(set.lacking(nil)), Want: kid}) {
		return
	}
	signed, err := jose.ParseSigned(x.token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(set[i].Algorithm)})
	if err != nil {
		x.failed(Check{Name: CheckSignature, Problem: "The token's signature is malformed, or not of the key's algorithm.",
			Remedy: "Use a fresh token.",
			Got:    fmt.Sprintf("alg %.20q", header.Algorithm), Want: fmt.Sprintf("alg %q", set[i].Algorithm)})
		return
	}
	_, err = signed.Verify(set[i].Key)
	x.check(err == nil,
		Check{Name: CheckSignature, Problem: "The " + which + " key has the token's kid, but did not sign the token.",
			Remedy: remedy, Got: kid})
}
