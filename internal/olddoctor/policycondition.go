package doctor

import (
	"slices"
	"strings"
)

// operator is one of a condition: what it compares with, and how it treats lists and what is missing.
type operator struct {
	base           string // without prefix and suffix, in lower case
	matches        func(want, got string) bool
	not            bool
	forAll, forAny bool
	ifExists       bool
}

// parseOperator reports whether the operator is one that this check judges.
func parseOperator(name string) (o operator, known bool) {
	o.base = strings.ToLower(name)
	if o.base, o.forAny = strings.CutPrefix(o.base, "foranyvalue:"); !o.forAny {
		o.base, o.forAll = strings.CutPrefix(o.base, "forallvalues:")
	}
	o.base, o.ifExists = strings.CutSuffix(o.base, "ifexists")
	switch o.base {
	case "stringequals", "stringnotequals":
		o.matches = func(want, got string) bool { return want == got }
	case "stringequalsignorecase", "stringnotequalsignorecase":
		o.matches = strings.EqualFold
	case "stringlike", "stringnotlike":
		o.matches = like
	}
	o.not = strings.HasPrefix(o.base, "stringnot")
	// What a quantifier does to an operator that negates is easily taken for the opposite.
	return o, o.matches != nil && (!o.not || !o.forAll && !o.forAny)
}

// holds compares. What is doubtful is taken for a match and for none: if that makes a difference, it is Unknown.
func (o operator) holds(values, got []string) Result {
	if len(values) == 0 || len(got) == 0 {
		return Unknown
	}
	least, most := 0, 0
	for _, g := range got {
		sure := slices.ContainsFunc(values, func(v string) bool { return !doubtful(v, g) && o.matches(v, g) })
		if sure {
			least++
		}
		if sure || slices.ContainsFunc(values, func(v string) bool { return doubtful(v, g) }) {
			most++
		}
	}
	// Without a quantifier, IAM expects one value.
	if least != most || !o.forAll && !o.forAny && len(got) > 1 && (least > 0 || o.not) {
		return Unknown
	}
	holds := least > 0
	if o.forAll {
		holds = least == len(got)
	}
	if holds == o.not {
		return Fail
	}
	return Pass
}

// doubtful are policy variables, and characters whose case and length are not the same to all programs.
func doubtful(value, got string) bool {
	return strings.Contains(value, "${") ||
		strings.ContainsFunc(value+got, func(r rune) bool { return r > '~' || r < ' ' })
}

// judgeConditions: all have to hold.
func (e *examination) judgeConditions(conditions []policyCondition) Finding {
	result := pass("a statement of the trust policy allows it")
	for _, c := range conditions {
		f := e.judgeCondition(c)
		if f.Result == Fail {
			return f
		}
		if f.Result == Unknown {
			result = f
		}
	}
	return result
}

func (e *examination) judgeCondition(c policyCondition) Finding {
	o, known := parseOperator(c.operator)
	if !known {
		return unknown("the operator "+shown(c.operator)+" of the trust policy is not known to this check", compareByHand)
	}
	switch claim, whose := e.claimOf(c.key); {
	case whose == ofOthers && (o.ifExists || o.forAll || o.not):
		return pass("the key is missing, and need not be there")
	case whose == ofOthers:
		host := strings.TrimPrefix(e.token.claims.Issuer, "https://")
		return fail("A1", "", "the trust policy has a condition on a key that the token does not have").
			with(differs("condition", c.key, host+":sub or "+host+":aud"))
	case whose == ofRequest:
		return unknown("the trust policy has a condition on "+shown(c.key)+", which this check does not know", compareByHand)
	default:
		return e.compare(o, c, claim)
	}
}

func (e *examination) compare(o operator, c policyCondition, claim string) Finding {
	got := []string{e.token.claims.Subject}
	if claim == "aud" {
		got = e.token.claims.Audience
		if e.payload()["azp"] != nil {
			return unknown("the trust policy has a condition on the audience, for which AWS takes the claim azp of this token",
				compareByHand)
		}
	}
	switch o.holds(c.values, got) {
	case Pass:
		return pass("the condition holds")
	case Fail:
		return unmet(o, claim, c.values, got)
	}
	return unknown("the condition on "+shown(c.key)+" of the trust policy is too much for this check", compareByHand)
}

// Whose a key of a condition is.
const (
	ofToken   = iota // sub or aud of this issuer
	ofRequest        // may be there, with a value that is not known
	ofOthers         // of another issuer or service: not there
)

// claimOf goes by the prefix of the key: requests with a token have the keys of IAM, of STS and of the token's issuer.
func (e *examination) claimOf(key string) (claim string, whose int) {
	key = strings.ToLower(key)
	host := strings.ToLower(strings.TrimPrefix(e.token.claims.Issuer, "https://"))
	claim, own := strings.CutPrefix(key, host+":")
	switch {
	case own && (claim == "sub" || claim == "aud"):
		return claim, ofToken
	case own, strings.HasPrefix(key, "aws:"), strings.HasPrefix(key, "sts:"), !strings.Contains(key, ":"),
		strings.ContainsFunc(key, func(r rune) bool { return r > '~' || r < '!' }):
		return "", ofRequest
	}
	return "", ofOthers
}

// unmet says in which way the claim is not what the condition wants.
func unmet(o operator, claim string, values, got []string) Finding {
	failed := func(format string, args ...any) Finding {
		return fail("A1", "", format, args...).with(differs(claim, audiences(got), audiences(values)))
	}
	anyOf := func(fits func(v string) bool) bool { return slices.ContainsFunc(values, fits) }
	switch {
	case o.not:
		return failed("the trust policy excludes the token's %s", claim)
	case o.base == "stringequals" && anyOf(func(v string) bool {
		return strings.ContainsAny(v, "*?") && slices.ContainsFunc(got, func(g string) bool { return like(v, g) })
	}):
		return failed("StringEquals contains * and is compared literally").
			near("use StringLike for the condition with *, or name the ServiceAccount")
	case anyOf(func(v string) bool { return strings.EqualFold(v, got[0]) }):
		return failed("the trust policy differs in upper and lower case only").near(sameText)
	case claim == "aud" && anyOf(func(v string) bool { return strings.HasPrefix(v, "system:serviceaccount:") }):
		return failed("the trust policy has the subject under the key for the audience").
			near("put the subject under the key that ends in :sub")
	}
	return failed("the trust policy does not admit the token's %s", claim)
}

// like is IAM's StringLike: * stands for any text, ? for one character. It takes time in proportion to the lengths' product.
func like(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
