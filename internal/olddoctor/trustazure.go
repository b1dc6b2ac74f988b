package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

// azureAnchor finds the federated credential that fits best, and shows the one field that does not.
func (e *examination) azureAnchor(anchors []Anchor) Finding {
	c := e.token.claims
	if len(anchors) == 0 {
		return fail("Z6", e.createCredential(), "the identity has no federated credential")
	}
	best := slices.MaxFunc(anchors, func(a, b Anchor) int { return credentialFit(a, c) - credentialFit(b, c) })
	if i := slices.IndexFunc(anchors, func(a Anchor) bool {
		return a.Expression != "" && a.Issuer == c.Issuer && fitsAudience(a.Audiences, c) != Fail
	}); i >= 0 && credentialFit(best, c) < perfect {
		return unknown(fmt.Sprintf("the federated credential %s matches by an expression, which this check does not know: %s",
			shown(anchors[i].Name), shown(anchors[i].Expression)), "compare it with the claims by hand")
	}
	place := slices.IndexFunc(anchors, func(a Anchor) bool { return credentialFit(a, c) == credentialFit(best, c) }) + 1
	if credentialFit(best, c) == perfect {
		return pass("federated credential %d of %d fits", place, len(anchors))
	}
	return e.judgeCredential(best,
		fmt.Sprintf("the closest federated credential (%s, %d of %d)", shown(best.Name), place, len(anchors)))
}

// perfect is what credentialFit is at most.
const perfect = 5

// credentialFit counts what fits. A credential that matches by an expression has no subject that could.
func credentialFit(a Anchor, c *Claims) (fits int) {
	for _, ok := range []bool{strings.TrimSuffix(a.Issuer, "/") == strings.TrimSuffix(c.Issuer, "/"), a.Issuer == c.Issuer,
		a.Expression == "" && strings.EqualFold(a.Subject, c.Subject), a.Expression == "" && a.Subject == c.Subject,
		fitsAudience(a.Audiences, c) == Pass} {
		if ok {
			fits++
		}
	}
	return fits
}

func (e *examination) judgeCredential(a Anchor, which string) Finding {
	c := e.token.claims
	// The command takes issuer, subject and audiences together, and sets what is left out to nothing or to its default.
	update := "az identity federated-credential update --name " + shell.Word(a.Name, "CREDENTIAL_NAME") + e.credentialFor()
	// A credential for somebody else stays theirs.
	switch {
	case a.Issuer != c.Issuer && meansIssuer(a.Issuer, c.Issuer):
		return fail("Z2", update, "%s differs in issuer: %s", which, difference(c.Issuer, a.Issuer)).
			with(differs("iss", c.Issuer, a.Issuer)).near(sameIssuer(a.Issuer, c.Issuer))
	case a.Issuer != c.Issuer:
		return fail("Z2", e.createCredential(), "%s differs in issuer: %s", which, difference(c.Issuer, a.Issuer)).
			with(differs("iss", c.Issuer, a.Issuer))
	case a.Expression != "":
		return fail("Z3", e.createCredential(), "%s differs in audience", which).
			with(differs("aud", audiences(c.Audience), audiences(a.Audiences)))
	case a.Subject != c.Subject && strings.EqualFold(a.Subject, c.Subject):
		return fail("Z5", update, "%s differs in the subject's upper and lower case", which).
			with(differs("sub", c.Subject, a.Subject)).near(sameText)
	case a.Subject != c.Subject:
		return fail("Z4", e.createCredential(), "%s differs in subject", which).with(differs("sub", c.Subject, a.Subject))
	case fitsAudience(a.Audiences, c) == Unknown:
		return severalAudiences(a.Audiences, c)
	}
	return fail("Z3", update, "%s differs in audience", which).
		with(differs("aud", audiences(c.Audience), audiences(a.Audiences)))
}

// createCredential is the command for a credential that fits this token, if it had the right audience.
func (e *examination) createCredential() string {
	return "az identity federated-credential create --name CREDENTIAL_NAME" + e.credentialFor()
}

func (e *examination) credentialFor() string {
	c := e.token.claims
	return " --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --issuer " + issuerOf(c) + " --subject " + subjectWord(c) +
		" --audiences " + e.audienceWord()
}
