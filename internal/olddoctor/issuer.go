package doctor

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/transport"
)

const publish = "publish the documents elsewhere and set --service-account-issuer and --service-account-jwks-uri, or have everybody read " +
	"the cluster's:\n" +
	"kubectl create clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated"

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
		return fail(e.cloud.private, "publish there what this prints:\nkubectl get --raw /.well-known/openid-configuration",
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
			return fail(e.cloud.private, "publish what this prints:\nkubectl get --raw /.well-known/openid-configuration",
				"the discovery document lacks %s", list.name).with(differs(list.name, "", "a list"))
		}
	}
	if why := refusedKeys(d.JWKSURI, iss); why != "" {
		return fail(e.cloud.private, "set --service-account-jwks-uri to a public https URL", "%s", why).
			with(differs("jwks_uri", d.JWKSURI, "https://..."))
	}
	return docs.discovery.unverified(pass("the discovery document can be read by everyone"))
}

// unreadableDocument judges what is no document at all.
func (e *examination) unreadableDocument(ctx context.Context, d document) (Finding, bool) {
	switch {
	case ctx.Err() != nil:
		return unknown("there was no time left", "allow more time, a minute at most"), true
	case e.trustsNobody(ctx, d):
		return e.distrustful(d), true
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
		return fail(e.cloud.private, absent(d), "%s answers %d", shown(d.address), d.status).
			with(Field{Name: "status", Observed: fmt.Sprint(d.status), Expected: "200", Differs: true}), true
	}
	return Finding{}, false
}

// absent is the remedy for a document that is not there, which is not one that is kept from strangers.
func absent(d document) string {
	switch {
	case d.status != http.StatusNotFound && d.status != http.StatusGone:
		return "see why it fails: the clouds get the same answer"
	case d.ofKeys:
		return "publish the keys at that address, or have the discovery document name the right one (--service-account-jwks-uri):\n" +
			"kubectl get --raw /openid/v1/jwks"
	}
	return "publish the discovery document at that address, or set --service-account-issuer to where it is:\n" +
		"kubectl get --raw /.well-known/openid-configuration"
}

const republish = "publish what this prints at the issuer's jwks_uri:\nkubectl get --raw /openid/v1/jwks"

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
	return docs.keys.unverified(e.judgeKeys(ctx, docs.set, "the published keys"))
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
