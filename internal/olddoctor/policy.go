package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Which part of a statement does not fit: the later, the closer.
const (
	otherAction = iota
	otherPrincipal
	otherCondition
)

const compareByHand = "compare the trust policy with the token by hand"

// judgePolicy evaluates what concerns tokens: one statement has to allow the token, and none may deny it. What a part of the
// policy means that is not understood here is open, so it neither passes nor fails.
func (e *examination) judgePolicy(document []byte) Finding {
	policy, ok := parsePolicy(document)
	if !ok {
		return unknown("the trust policy cannot be read", e.howToRead())
	}
	f := e.judgeStatements(policy)
	if f.Result != Fail || f.Remedy != "" {
		return f
	}
	return e.toAdmit(f, &policy)
}

func (e *examination) judgeStatements(policy trustPolicy) Finding {
	closest := fail("A1", "", "no statement of the trust policy is about web identities").
		with(differs("Action", "others", "sts:AssumeRoleWithWebIdentity"))
	near := otherAction
	var allowed, open, openDeny *Finding
	for i, s := range policy.statements {
		f, fits := e.judgeStatement(s)
		switch {
		case s.odd: // it may do either
			open, openDeny = &f, &f
		case f.Result == Unknown && s.deny:
			openDeny = &f
		case f.Result == Unknown:
			open = &f
		case s.deny && f.Result == Pass:
			return deniedBy(i + 1)
		case s.deny:
		case f.Result == Pass:
			allowed = &f
		case fits > otherAction && fits >= near:
			closest, near = f, fits
		}
	}
	switch {
	case openDeny != nil && allowed != nil:
		return unknown("a statement of the trust policy allows it, but another one is beyond this check: "+openDeny.Message,
			compareByHand)
	case allowed != nil:
		return *allowed
	case open != nil: // or else nothing allows it, whatever is denied
		return *open
	}
	return closest
}

func deniedBy(statement int) Finding {
	remedy := fmt.Sprintf("change statement %d of the trust policy, which denies: it counts more than all that allow", statement)
	return fail("A1", remedy, "a statement of the trust policy denies it").
		with(differs(fmt.Sprintf("Effect of statement %d", statement), "Deny", "Allow"))
}

// judgeStatement says whether the statement is about the token. If it is not, it also says which part does not fit.
func (e *examination) judgeStatement(s policyStatement) (f Finding, fits int) {
	if s.odd {
		return unknown("a statement of the trust policy is not one that this check understands", compareByHand), otherAction
	}
	if !coversWebIdentity(s) {
		return Finding{Result: Fail}, otherAction
	}
	who := e.judgePrincipal(s)
	if who.Result == Fail {
		return who, otherPrincipal
	}
	f = e.judgeConditions(s.conditions)
	switch {
	case f.Result == Fail:
		return f, otherCondition
	case who.Result == Unknown:
		return who, otherPrincipal
	}
	return f, otherCondition
}

// coversWebIdentity goes by the names of actions, in which case does not matter and * and ? stand for others.
func coversWebIdentity(s policyStatement) bool {
	matches := func(action string) bool { return like(strings.ToLower(action), "sts:assumerolewithwebidentity") }
	return slices.ContainsFunc(s.actions, matches) || len(s.notActions) > 0 && !slices.ContainsFunc(s.notActions, matches)
}

// judgePrincipal looks for the issuer's OIDC provider. Who is named by anything but Federated comes without a token, unless
// everybody is named.
func (e *examination) judgePrincipal(s policyStatement) Finding {
	want, account, ok := e.oidcProvider()
	if s.notPrincipal || !ok {
		return unknown("a statement of the trust policy has a NotPrincipal, which this check does not judge", compareByHand)
	}
	named := func(kind, name string) bool { return slices.Contains(s.principals[kind], name) }
	odd := slices.ContainsFunc(slices.Concat(s.principals["aws"], s.principals["federated"]), func(name string) bool {
		return strings.ContainsAny(name, "*?$")
	})
	ownAccount := slices.ContainsFunc(s.principals["aws"], func(name string) bool {
		return name == account || strings.HasSuffix(name, "::"+account+":root")
	})
	switch {
	case named("federated", want):
		return pass("the issuer's OIDC provider")
	case s.deny && named("aws", "*"):
		return pass("everybody")
	case odd, s.deny && ownAccount:
		return unknown("whether a statement of the trust policy is about the token is not known to this check", compareByHand)
	}
	return fail("A1", "", "the trust policy names another OIDC provider").
		with(differs("Principal.Federated", audiences(s.principals["federated"]), want))
}

// oidcProvider is the ARN of the issuer's OIDC provider: it has to be one of the role's own account.
func (e *examination) oidcProvider() (arn, account string, ok bool) {
	partition, account, _, ok := e.roleParts()
	host := strings.TrimPrefix(e.token.claims.Issuer, "https://")
	return "arn:" + partition + ":iam::" + account + ":oidc-provider/" + host, account, ok
}

// roleParts takes the role's ARN apart; its name has no path.
func (e *examination) roleParts() (partition, account, name string, ok bool) {
	const parts, accountAt, last = 6, 4, 5
	p := strings.SplitN(e.serviceAccount().Annotations[e.cloud.required], ":", parts)
	if len(p) != parts || p[0] != "arn" {
		return "", "", "", false
	}
	return p[1], p[accountAt], p[last][strings.LastIndexByte(p[last], '/')+1:], true
}
