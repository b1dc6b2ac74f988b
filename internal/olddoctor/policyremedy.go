package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

const (
	// maxRemedy is the longest policy that a remedy shows, in bytes: more than IAM takes unless it was allowed more.
	maxRemedy = 4 << 10
	// maxIssuer is the longest URL that an OIDC provider of AWS can have, in bytes.
	maxIssuer = 255
	// maxSubject is more than what Kubernetes makes of a namespace and a name, in bytes.
	maxSubject = 512
)

// toAdmit gives a finding its remedy: a whole trust policy that admits the token, and the command that sets it. The policy is
// that which the role has; nil: it is not known, and is read before it is set, for IAM replaces all of it.
func (e *examination) toAdmit(f Finding, policy *trustPolicy) Finding {
	statement, ok := e.statement()
	if !ok {
		f.Remedy = ""
		return f.near("use a token of a ServiceAccount, from an issuer with https: no trust policy can name this one exactly")
	}
	role := e.roleWord()
	apply := "aws iam update-assume-role-policy --role-name " + role + " --policy-document file://trust.json"
	if whole, ok := policy.with(statement); ok {
		f.Remedy = "save the next line as trust.json; it is the trust policy, and a statement that admits the token:\n" + whole + "\n" + apply
	} else {
		why := "the trust policy was not read"
		if policy != nil {
			why = "the whole is too long to be shown, or has odd characters"
		}
		f.Remedy = "aws iam get-role --role-name " + role + " --query Role.AssumeRolePolicyDocument --output json > trust.json\n" +
			"add the next line to its list Statement, and keep what is there: " + why + "\n" + statement + "\n" + apply
	}
	return f
}

// with has all that the policy has, as it stands, and one statement more. It reports false for what is better not shown.
func (p *trustPolicy) with(statement string) (string, bool) {
	if p == nil {
		return "", false
	}
	parts := make([]string, 0, len(p.statements)+1)
	for _, s := range p.statements {
		parts = append(parts, string(s.raw))
	}
	var b strings.Builder
	for _, m := range p.others {
		fmt.Fprintf(&b, "%s:%s,", inJSON(m.name), m.value)
	}
	present := b.String() + strings.Join(parts, ",")
	if strings.Contains(present, `\u`) || strings.ContainsFunc(present, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", false
	}
	whole := "{" + inert.Replace(b.String()) + `"Statement":[` + inert.Replace(strings.Join(parts, ",")) + "," + statement + "]}"
	return whole, len(whole) <= maxRemedy
}

// statement is one that admits exactly this token, with the audience that is wanted, not one that the token just has.
// It reports false where a policy would mean more by the issuer or the subject than what they say.
func (e *examination) statement() (string, bool) {
	c := e.token.claims
	provider, _, known := e.oidcProvider()
	if !known {
		partition, account := "aws", "ACCOUNT_ID"
		provider = "arn:" + partition + ":iam::" + account + ":oidc-provider/" + strings.TrimPrefix(c.Issuer, "https://")
	}
	special := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("*?$", r) }
	if !strings.HasPrefix(c.Issuer, "https://") || len(c.Issuer) > maxIssuer || len(c.Subject) > maxSubject ||
		strings.ContainsFunc(c.Issuer+c.Subject, special) {
		return "", false
	}
	host := strings.TrimPrefix(c.Issuer, "https://")
	return fmt.Sprintf(`{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity","Principal":{"Federated":%s},`+
		`"Condition":{"StringEquals":{%s:%s,%s:%s}}}`, inJSON(provider), inJSON(host+":sub"), inJSON(c.Subject),
		inJSON(host+":aud"), inJSON(firstOf(e.audience, e.cloud.audience))), true
}

// inJSON is a text in JSON that no shell obeys.
func inJSON(s string) string {
	content, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return inert.Replace(string(content))
}

// learnAudience finds out which audience remedies may have a cloud trust: that which tokens for the provider are to have,
// never one that this token happens to have, nor one that API servers take, nor a typo.
func (e *examination) learnAudience(ctx context.Context) {
	want, err := e.wantedAudiences(ctx)
	c := e.token.claims
	if err != nil || len(want) != 1 || c == nil || isAPIServer(want[0]) || want[0] == c.Issuer || e.nearAudience(want[0]) != "" ||
		strings.ContainsAny(want[0], "*?$") {
		e.audience = ""
		return
	}
	e.audience = want[0]
}

const wrongAudience = "see first that the token has the right audience and no other (check 6): no cloud is to trust a wrong one"

// lacksAudience says that the token has not the audience that it is to have, so that nothing is wrong with the cloud.
func (e *examination) lacksAudience() bool {
	return e.audience == "" || !slices.Contains(e.token.claims.Audience, e.audience)
}

func (e *examination) audienceWord() string { return shell.Word(e.audience, "AUDIENCE") }

// payload is all that the token says. Nothing of it has been verified.
func (e *examination) payload() map[string]any {
	const parts = 3
	p := strings.Split(e.token.raw, ".")
	var claims map[string]any
	if len(p) != parts || decodePart(p[1], &claims) != nil {
		return nil
	}
	return claims
}
