package doctor

import (
	"context"
	"crypto/sha1" //nolint:gosec // IAM's thumbprints are defined with it
	"crypto/x509"
	"encoding/hex"
	"errors"
)

// Check 12.
func (e *examination) checkTLS(ctx context.Context) Finding {
	if f, ok := e.issuerApplies(); !ok {
		return f
	}
	d := e.issuerDocuments(ctx).discovery
	if d.tls == nil || len(d.tls.PeerCertificates) == 0 {
		return unknown("no certificate was seen", "see check 10")
	}
	if e.trustsNobody(ctx, d) {
		return e.distrustful(d)
	}
	leaf := d.tls.PeerCertificates[0]
	end := same("notAfter", stamp(leaf.NotAfter))
	switch {
	case !leaf.NotAfter.After(e.Now()):
		return fail(e.cloud.private, "renew the certificate", "the issuer's certificate has expired").
			with(differs("notAfter", stamp(leaf.NotAfter), "after "+stamp(e.Now())))
	case d.untrusted == nil:
		return pass("the certificate is trusted by this machine, until %s", stamp(leaf.NotAfter)).with(d.thumbprint(), end)
	}
	why := "it is not trusted here"
	var authority x509.UnknownAuthorityError
	if errors.As(d.untrusted, &authority) {
		why = "it is of an authority that this machine does not know"
	}
	by := same("issued by", leaf.Issuer.String())
	if e.Provider.GetName() == "aws" {
		f := Finding{Result: Warn, Class: "A7", Message: "the issuer's certificate: " + why +
			"; if it is a private one, IAM has to know its thumbprint", Remedy: e.addThumbprint()}
		return e.widening(f, publicAuthority).with(by, differs("thumbprint", d.thumbprint().Observed, "in the OIDC provider's ThumbprintList, if it is the issuer's own"))
	}
	return fail(e.cloud.private, publicAuthority, "the issuer's certificate: %s", why).
		with(by, differs("thumbprint", d.thumbprint().Observed, "a public authority's"))
}

const publicAuthority = "use a certificate of a public authority; if a proxy of this network shows its own certificate, run this " +
	"where there is none, or have this machine trust it"

// thumbprint is that of the last certificate that was shown.
func (d document) thumbprint() Field {
	sum := sha1.Sum(d.tls.PeerCertificates[len(d.tls.PeerCertificates)-1].Raw) //nolint:gosec // see above
	return same("thumbprint", hex.EncodeToString(sum[:]))
}

// addThumbprint leaves the value out: what was seen here was not verified, and may be a proxy's. IAM looks at thumbprints only if
// it does not know the authority, and the command replaces the whole list.
func (e *examination) addThumbprint() string {
	provider := " --open-id-connect-provider-arn " + e.oidcProviderWord()
	return "IAM goes by thumbprints only if the issuer's authority is no public one. Then take the thumbprint from the issuer itself, not from " +
		"here, where a proxy may have shown its own, and repeat those that are there, for the list is replaced:\n" +
		"aws iam get-open-id-connect-provider --query ThumbprintList" + provider + "\n" +
		"aws iam update-open-id-connect-provider-thumbprint" + provider + " --thumbprint-list OLD_THUMBPRINT NEW_THUMBPRINT"
}

// trustsNobody tells a machine without the right certificate authorities, or behind a proxy that shows certificates of its own,
// from an issuer with a private one: it believes the cloud as little.
func (e *examination) trustsNobody(ctx context.Context, d document) bool {
	return d.untrusted != nil && e.reachPublic(ctx).untrusted
}

func (e *examination) distrustful(d document) Finding {
	f := unknown("the issuer cannot be judged from here: this machine trusts the certificate that "+e.cloud.name+" shows as little",
		trustRemedy)
	if d.tls != nil && len(d.tls.PeerCertificates) > 0 {
		f = f.with(same("issued by", d.tls.PeerCertificates[0].Issuer.String()))
	}
	return f
}

// unverified is what was found in a document that somebody else may have shown.
func (d document) unverified(f Finding) Finding {
	if d.untrusted != nil && f.Result == Pass {
		f.Message += "; the connection was not verified, see check 12"
	}
	return f
}
