package diagnose

import (
	"context"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // IAM's thumbprints are defined with it
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/transport"
)

const publish = "kubectl create clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery " +
	"--group=system:unauthenticated, or publish the documents elsewhere and set --service-account-issuer and --service-account-jwks-uri"

// issuerApplies skips the checks of the issuer's documents where nobody reads them.
func (e *examination) issuerApplies() (Finding, bool) {
	if f, none := e.noToken(); none {
		return f, false
	}
	switch {
	case !e.cloud.readsIssuer:
		return skip("no cloud reads the issuer's documents for this provider"), false
	case len(e.JWKS) > 0:
		return skip("the keys were uploaded to the cloud, which does not ask the issuer"), false
	}
	return Finding{}, true
}

// Check 10.
func (e *examination) checkDiscovery(ctx context.Context) Finding {
	if f, ok := e.issuerApplies(); !ok {
		return f
	}
	docs := e.issuerDocuments(ctx)
	if f, bad := e.unreadableDocument(ctx, docs.discovery); bad {
		return f
	}
	d, iss := docs.parsed, e.token.claims.Issuer
	if !json.Valid(docs.discovery.body) || d.Issuer == "" && d.JWKSURI == "" {
		return fail(e.cloud.private, "publish the output of kubectl get --raw /.well-known/openid-configuration there",
			"what is at %s is not a discovery document", docs.discovery.address)
	}
	if d.Issuer != iss {
		return fail("K8", "set --service-account-issuer and the published document to the same text",
			"the document names another issuer than the token: %s", difference(d.Issuer, iss)).with(differs("issuer", d.Issuer, iss))
	}
	for _, list := range []struct {
		name   string
		values []string
	}{{"response_types_supported", d.ResponseTypes}, {"subject_types_supported", d.SubjectTypes},
		{"id_token_signing_alg_values_supported", d.Algorithms}} {
		if len(list.values) == 0 {
			return fail(e.cloud.private, "publish the output of kubectl get --raw /.well-known/openid-configuration",
				"the discovery document lacks %s", list.name).with(differs(list.name, "", "a list"))
		}
	}
	if why := refusedKeys(d.JWKSURI, iss); why != "" {
		return fail(e.cloud.private, "set --service-account-jwks-uri to a public https URL", "%s", why).
			with(differs("jwks_uri", d.JWKSURI, "https://..."))
	}
	return pass("the discovery document can be read by everyone")
}

// unreadableDocument judges what is no document at all.
func (e *examination) unreadableDocument(ctx context.Context, d document) (Finding, bool) {
	switch {
	case ctx.Err() != nil:
		return unknown("there was no time left", "allow more time, a minute at most"), true
	case d.err != nil:
		if f, own := e.ownSide(ctx, d); own {
			return f, true
		}
		return fail(e.cloud.private, "make the issuer public, or publish its documents elsewhere; for GCP, upload the keys",
			"%s cannot be reached from here: %s", shown(d.address), transport.Message(d.err)), true
	case d.status == http.StatusUnauthorized, d.status == http.StatusForbidden:
		class := e.cloud.private
		if strings.Contains(string(d.body), `"kind":"Status"`) || strings.Contains(string(d.body), "system:anonymous") {
			class = "K7"
		}
		return fail(class, publish, "%d for anonymous: the clouds cannot read %s", d.status, shown(d.address)).
			with(Field{Name: "status", Observed: fmt.Sprint(d.status), Expected: "200", Differs: true}), true
	case d.status/100 == 3:
		return fail(e.cloud.private, "serve the document itself", "%s answers with a redirect, which not all clouds follow", shown(d.address)), true
	case d.status != http.StatusOK:
		return fail(e.cloud.private, publish, "%s answers %d", shown(d.address), d.status).
			with(Field{Name: "status", Observed: fmt.Sprint(d.status), Expected: "200", Differs: true}), true
	}
	return Finding{}, false
}

const republish = "kubectl get --raw /openid/v1/jwks, and publish what it prints at the issuer's jwks_uri"

// Check 11.
func (e *examination) checkKeys(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	if len(e.JWKS) > 0 {
		return e.judgeKeys(ctx, parseKeys(e.JWKS), "the uploaded keys")
	}
	if f, ok := e.issuerApplies(); !ok {
		return f
	}
	docs := e.issuerDocuments(ctx)
	if docs.keys.address == "" {
		return Finding{Result: Skip, Needs: 10, Message: "skipped: needs check 10"}
	}
	if f, bad := e.unreadableDocument(ctx, docs.keys); bad {
		return f
	}
	return e.judgeKeys(ctx, docs.set, "the published keys")
}

// Verifying takes the square of an RSA key's length, and whoever publishes the keys chooses length and number.
const (
	maxKeyBits = 8192
	maxKeys    = 4
)

func cheap(key any) bool {
	public, ok := key.(*rsa.PublicKey)
	return !ok || public.N.BitLen() <= maxKeyBits
}

// judgeKeys verifies the signature with one of the keys, as a cloud does.
func (e *examination) judgeKeys(ctx context.Context, set *jose.JSONWebKeySet, which string) Finding {
	if set == nil {
		return fail(e.cloud.unpublished, republish, "%s are not a JSON web key set", which)
	}
	kid := e.token.claims.KeyID
	var known []string
	for i := range set.Keys {
		known = append(known, set.Keys[i].KeyID)
	}
	found := set.Key(kid)
	if len(found) == 0 {
		return fail(e.cloud.unpublished, republish, "%s lack the one that signed the token: they were rotated and not published again", which).
			with(differs("kid", kid, "one of "+audiences(known)))
	}
	signed, err := jose.ParseSigned(e.token.raw, []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.ES256,
		jose.ES384, jose.ES512, jose.EdDSA})
	if err != nil {
		return fail(e.cloud.malformed, "use a token of the ServiceAccount", "the token's signature is malformed")
	}
	tried := 0
	for i := range found {
		if !cheap(found[i].Key) || tried == maxKeys {
			continue
		}
		if ctx.Err() != nil {
			return unknown("there was no time left to try the keys", "allow more time, a minute at most")
		}
		tried++
		if _, err := signed.Verify(found[i].Key); err == nil {
			return pass("the key is published, and the signature is its").with(same("kid", kid))
		}
	}
	if tried == 0 {
		return fail(e.cloud.unpublished, republish, "%s have one with the token's kid, but none that a cloud would use", which).
			with(differs("kid", kid, fmt.Sprintf("of a key of at most %d bits", maxKeyBits)))
	}
	return fail(e.cloud.badSignature, republish, "the kid is the same, but the key is another one: it was replaced in place").
		with(Field{Name: "signature", Observed: "wrong for kid " + shown(kid), Expected: "signed with that key", Differs: true})
}

// Check 12.
func (e *examination) checkTLS(ctx context.Context) Finding {
	if f, ok := e.issuerApplies(); !ok {
		return f
	}
	d := e.issuerDocuments(ctx).discovery
	if d.tls == nil || len(d.tls.PeerCertificates) == 0 {
		return unknown("no certificate was seen", "see check 10")
	}
	leaf := d.tls.PeerCertificates[0]
	top := d.tls.PeerCertificates[len(d.tls.PeerCertificates)-1]
	print1 := sha1.Sum(top.Raw) //nolint:gosec // see above
	thumbprint := same("thumbprint", hex.EncodeToString(print1[:]))
	end := same("notAfter", stamp(leaf.NotAfter))
	switch {
	case !leaf.NotAfter.After(e.Now()):
		return fail(e.cloud.private, "renew the certificate", "the issuer's certificate has expired").
			with(differs("notAfter", stamp(leaf.NotAfter), "after "+stamp(e.Now())))
	case d.untrusted == nil:
		return pass("the certificate is trusted by this machine, until %s", stamp(leaf.NotAfter)).with(thumbprint, end)
	}
	why := "it is not trusted here"
	var authority x509.UnknownAuthorityError
	if errors.As(d.untrusted, &authority) {
		why = "it is of a private authority"
	}
	if e.Provider.GetName() == "aws" {
		return Finding{Result: Warn, Class: "A7", Message: "the issuer's certificate: " + why + "; IAM has to know its thumbprint",
			Remedy: "aws iam update-open-id-connect-provider-thumbprint --open-id-connect-provider-arn <arn> --thumbprint-list " + thumbprint.Observed}.
			with(Field{Name: "thumbprint", Observed: thumbprint.Observed, Expected: "in the OIDC provider's ThumbprintList", Differs: true})
	}
	return fail(e.cloud.private, "use a certificate of a public authority", "the issuer's certificate: %s", why).
		with(Field{Name: "thumbprint", Observed: thumbprint.Observed, Expected: "a public authority's", Differs: true})
}
