package identity

import (
	"context"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/issuer"
)

// checkIssuer compares the token with the issuer's documents. The token's own
// API server is not asked.
func (e *examination) checkIssuer(ctx context.Context) doctor.Finding {
	switch {
	case e.token.claims == nil:
		return doctor.Skipped("There is no token to examine.")
	case !e.cloud.trustsIssuers():
		return doctor.Skipped("No cloud reads the issuer's documents.")
	}
	checks, err := issuer.Verify(ctx,
		issuer.Verification{Token: e.token.raw, HTTPClient: e.pool.For(e.IssuerClient, e.resolved().ProxyURL)})
	if err != nil {
		return doctor.Failed(cause.TokenMalformed, e.freshToken(ctx), "The issuer cannot be verified: %v.", err)
	}
	f := doctor.Passed("The keys of %s verify the token.", e.token.claims.Issuer)
	for i := range checks {
		if class, judged := classOfCheck(checks[i].Name); judged && checks[i].Failed() {
			if f = e.findingOfCheck(&checks[i], class); !checks[i].Warning {
				return f
			}
		}
	}
	return f
}

func (e *examination) findingOfCheck(c *issuer.Check, class cause.Reason) doctor.Finding {
	f := doctor.Failed(class, doctor.Do(c.Remedy), "%s", c.Problem)
	f.StatusCode = c.StatusCode
	if c.Got != "" && c.Want != "" && c.StatusCode == 0 {
		f = f.Compare("found", c.Got, "expected", c.Want)
	}
	switch c.Name {
	case issuer.CheckDiscoveryReachable, issuer.CheckKeysReachable: // the cloud may reach it, and says so in the exchange
		return doctor.Unclear(doctor.Do("Read it from outside of this network:", "curl -v "+shell.Word(c.Got, "ADDRESS")),
			"%s", c.Problem)
	case issuer.CheckDiscoveryAnonymous: // its own remedy says it
	default:
		if class != cause.IssuersDiffer {
			f.Remedy = doctor.Do(comparing, e.publishing()...)
		}
	}
	if c.Warning {
		return f.As(doctor.Warn)
	}
	return f
}

const comparing = "Compare what clouds read with what the API server has, and publish that:"

// publishing returns the commands of this program that compare and publish the
// issuer's documents.
func (e *examination) publishing() []string {
	of := " --issuer " + shell.Word(e.query().Claims.Issuer, "ISSUER")
	return []string{"wid issuer check" + of, "wid issuer publish" + of + " --to STORE"}
}

// classOfCheck reports false for what the exchange answers for the token at
// hand: content types, foreign keys and lifetimes.
func classOfCheck(name issuer.CheckName) (class cause.Reason, judged bool) {
	switch name {
	case issuer.CheckIssuerURL, issuer.CheckIssuerPublic, issuer.CheckDiscoveryIssuer:
		return cause.IssuersDiffer, true
	case issuer.CheckKeySet, issuer.CheckSigningKey:
		return cause.SigningKeyUnavailable, true
	case issuer.CheckSignature:
		return cause.SignatureNotVerified, true
	case issuer.CheckContentType, issuer.CheckKeysIssuer, issuer.CheckForeignKeys, issuer.CheckAlgorithm,
		issuer.CheckTokenLifetime, issuer.CheckIssuerOfToken:
		return "", false
	}
	return cause.IssuerNotPublic, true
}
