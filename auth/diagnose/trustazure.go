package diagnose

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
		return fail("Z6", "az identity federated-credential create ... --issuer "+issuerOf(c)+" --subject "+subjectWord(c)+" --audiences "+audienceWords(c),
			"the identity has no federated credential")
	}
	const everything = 5
	best, most := 0, -1
	for i, a := range anchors {
		fits := 0
		for _, ok := range []bool{strings.TrimSuffix(a.Issuer, "/") == strings.TrimSuffix(c.Issuer, "/"), a.Issuer == c.Issuer,
			strings.EqualFold(a.Subject, c.Subject), a.Subject == c.Subject, fitsAudience(a, c)} {
			if ok {
				fits++
			}
		}
		if fits > most {
			best, most = i, fits
		}
	}
	a := anchors[best]
	if i := slices.IndexFunc(anchors, func(a Anchor) bool { return a.Expression != "" && a.Issuer == c.Issuer }); i >= 0 &&
		most < everything {
		return unknown(fmt.Sprintf("the federated credential %s matches by an expression, which this check does not know: %s",
			shown(anchors[i].Name), shown(anchors[i].Expression)), "compare it with the claims by hand")
	}
	which := fmt.Sprintf("the closest federated credential (%s, %d of %d)", shown(a.Name), best+1, len(anchors))
	const update = "az identity federated-credential update --name %s --identity-name <name> --resource-group <group> --%s %s"
	switch {
	case a.Issuer != c.Issuer:
		return fail("Z2", fmt.Sprintf(update, shell.Word(a.Name, "<name>"), "issuer", issuerOf(c)), "%s differs in issuer: %s", which,
			difference(c.Issuer, a.Issuer)).
			with(differs("iss", c.Issuer, a.Issuer))
	case a.Subject != c.Subject && strings.EqualFold(a.Subject, c.Subject):
		return fail("Z5", fmt.Sprintf(update, shell.Word(a.Name, "<name>"), "subject", subjectWord(c)),
			"%s differs in the subject's upper and lower case", which).
			with(differs("sub", c.Subject, a.Subject))
	case a.Subject != c.Subject:
		return fail("Z4", fmt.Sprintf(update, shell.Word(a.Name, "<name>"), "subject", subjectWord(c)), "%s differs in subject",
			which).with(differs("sub", c.Subject, a.Subject))
	case !fitsAudience(a, c):
		return fail("Z3", fmt.Sprintf(update, shell.Word(a.Name, "<name>"), "audiences", audienceWords(c)), "%s differs in audience", which).
			with(differs("aud", audiences(c.Audience), audiences(a.Audiences)))
	}
	return pass("federated credential %d of %d fits", best+1, len(anchors))
}

func fitsAudience(a Anchor, c *Claims) bool {
	return slices.ContainsFunc(c.Audience, func(aud string) bool { return slices.Contains(a.Audiences, aud) })
}
