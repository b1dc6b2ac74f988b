package identity

import (
	"context"
	"slices"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/issuercheck"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkIssuer(ctx context.Context, c *doctor.Claims) doctor.Finding {
	if e.Issuer != "" && e.Issuer != c.Issuer {
		return doctor.Failed(reason.IssuerNotTrusted, doctor.Do(e.isMeant()+" If it is, correct --issuer and the issuer in "+e.cloud.name+"."),
			"The token's issuer is not the one that %s trusts%s.", e.cloud.name, issuercheck.Difference(c.Issuer, e.Issuer)).Compare("token", c.Issuer, "trusted", e.Issuer)
	}
	ended, end := context.WithCancel(ctx)
	end() // the form of an issuer needs no request, and reading the documents may be excluded
	return firstFailure(e.verify(ended), doctor.Passed("The issuer is %s.", c.Issuer), issuercheck.IssuerURL, issuercheck.IssuerPublic)
}

func (e *examination) checkDiscovery(ctx context.Context, _ *doctor.Claims) doctor.Finding {
	return e.findingOf(ctx, doctor.Passed("Anyone can read the discovery document."),
		issuercheck.Reachable, issuercheck.Public, issuercheck.Anonymous, issuercheck.SameIssuer, issuercheck.Discovery)
}

func (e *examination) checkKeys(ctx context.Context, c *doctor.Claims) doctor.Finding {
	which := "published"
	switch {
	case len(e.JWKS) > 0:
		which = "uploaded"
	case !e.cloud.readsIssuer:
		return doctor.Skipped("No cloud reads the issuer's documents.")
	case !slices.ContainsFunc(e.verifyIssuer(ctx), func(c issuer.Check) bool { return c.Name == issuercheck.Discovery && c.OK }):
		return doctor.Skipped("The discovery document could not be read.")
	}
	passed := doctor.Passed("The signing key is %s and the signature verifies.", which).Detail("kid", c.KeyID)
	return e.findingOf(ctx, passed, issuercheck.KeysReachable, issuercheck.KeysPublic, issuercheck.Anonymous, issuercheck.KeySet, issuercheck.SigningKey, issuercheck.Signature)
}

// verifyIssuer reads the issuer's documents once, if the cloud reads them. The token's own API server is not asked.
func (e *examination) verifyIssuer(ctx context.Context) []issuer.Check {
	if e.documents == nil {
		e.documents = e.verify(ctx)
	}
	return e.documents
}

func (e *examination) verify(ctx context.Context) []issuer.Check {
	keys := e.JWKS
	if len(keys) == 0 && !e.cloud.readsIssuer {
		keys = []byte("{}") // no cloud has any
	}
	httpClient := e.pool.For(e.IssuerClient, e.resolved().ProxyURL)
	checks, _ := issuer.Verify(ctx, issuer.Verification{Token: e.token.raw, Issuer: e.token.claims.Issuer, Keys: keys, HTTPClient: httpClient}) // needs a token, which is parsed
	return checks
}

func (e *examination) findingOf(ctx context.Context, passed doctor.Finding, names ...string) doctor.Finding {
	return firstFailure(e.verifyIssuer(ctx), passed, names...)
}

// firstFailure returns that of the named checks.
func firstFailure(checks []issuer.Check, passed doctor.Finding, names ...string) doctor.Finding {
	for _, c := range checks {
		if c.Failed() && slices.Contains(names, c.Name) {
			return findingOfCheck(c)
		}
	}
	return passed
}

func findingOfCheck(c issuer.Check) doctor.Finding {
	f := doctor.Failed(classOfCheck(c.Name), doctor.Do(c.Remedy), "%s", c.Problem)
	f.StatusCode = c.StatusCode
	if c.Got != "" && c.Want != "" && c.StatusCode == 0 {
		f = f.Compare("found", c.Got, "expected", c.Want)
	}
	switch c.Name {
	case issuercheck.Reachable, issuercheck.KeysReachable: // the cloud may reach it, and says so in the exchange
		return doctor.Unclear(doctor.Do("Read it from outside of this network:", "curl -v "+shell.Word(c.Got, "ADDRESS")), "%s", c.Problem)
	case issuercheck.Anonymous:
		f.Remedy = doctor.Do("As an administrator: let anyone read the issuer's documents, or publish them elsewhere (docs/issuer.md):",
			asAdministrator+"clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated")
	case issuercheck.Public, issuercheck.KeysPublic, issuercheck.Discovery, issuercheck.KeySet, issuercheck.SigningKey, issuercheck.Signature:
		f.Remedy = doctor.Do("Publish what the API server has, wherever the issuer is served from:", "wid issuer publish --to STORE")
	}
	if c.Warning {
		return f.As(doctor.Warn)
	}
	return f
}

func classOfCheck(name string) string {
	switch name {
	case issuercheck.IssuerURL, issuercheck.SameIssuer:
		return reason.IssuersDiffer
	case issuercheck.KeySet, issuercheck.SigningKey:
		return reason.SigningKeyUnavailable
	case issuercheck.Signature:
		return reason.SignatureNotVerified
	}
	return reason.IssuerNotPublic
}
