package aws

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/redact"
)

// maxPolicy bounds a trust policy, in bytes. IAM accepts less.
const maxPolicy = 64 << 10

// statement is a statement of a trust policy. Its members have more than one form.
type statement struct {
	raw json.RawMessage
	// odd marks a statement with members that the package does not judge, such as NotAction.
	odd bool

	Sid               json.RawMessage
	Effect            string
	Principal, Action json.RawMessage
	Condition         map[string]map[string]json.RawMessage
}

// parsePolicy reports false for a document without statements.
func parsePolicy(document []byte) (list []statement, ok bool) {
	var policy struct{ Statement json.RawMessage }
	if len(document) > maxPolicy || !utf8.Valid(document) || json.Unmarshal(document, &policy) != nil || policy.Statement == nil {
		return nil, false
	}
	var many []json.RawMessage
	if json.Unmarshal(policy.Statement, &many) != nil {
		many = []json.RawMessage{policy.Statement} // IAM takes one statement without a list
	}
	for _, raw := range many {
		s := statement{raw: raw}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		s.odd = d.Decode(&s) != nil || s.Effect != "Allow" && s.Effect != "Deny"
		list = append(list, s)
	}
	return list, len(list) > 0
}

// texts reports false for an empty list, and for something else than strings.
func texts(raw json.RawMessage) ([]string, bool) {
	var one *string
	if json.Unmarshal(raw, &one) == nil && one != nil {
		return []string{*one}, true
	}
	var all []string
	if json.Unmarshal(raw, &all) != nil {
		return nil, false
	}
	return all, len(all) > 0
}

const webIdentityAction = "sts:AssumeRoleWithWebIdentity"

// covers reports whether a list of actions contains AssumeRoleWithWebIdentity. IAM ignores the case of actions.
func covers(actions []string) bool {
	return slices.ContainsFunc(actions, func(a string) bool { return like(strings.ToLower(a), strings.ToLower(webIdentityAction)) })
}

// like is IAM's StringLike: * stands for any text, ? for one character. Its time is bounded by the product of the lengths.
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

// How far a statement fits the token. The message is about the statement that comes closest.
const (
	otherAction = iota
	otherPrincipal
	otherCondition
)

// judgePolicy needs one statement that allows the token. It judges no Deny: beside such a statement, one makes the result unknown.
func (t *target) judgePolicy(document []byte) doctor.Finding {
	statements, ok := parsePolicy(document)
	if !ok {
		return doctor.Unclear(doctor.Do("See:", t.showRole()), "The trust policy of role %s cannot be read.", t.role.Name)
	}
	closest := t.refused("The trust policy of role %s does not mention AssumeRoleWithWebIdentity.", t.role.Name)
	near := otherAction
	var allowed, doubt, deny doctor.Finding
	for i := range statements {
		s := &statements[i]
		if s.Effect != "Allow" {
			deny = t.unclear(string(s.raw))
		}
		switch f, fits := t.judgeStatement(s); {
		case s.Effect == "Deny":
		case f.Result == doctor.Pass:
			allowed = f
		case f.Result == doctor.Unknown:
			doubt = f
		case fits > otherAction && fits >= near:
			closest, near = f, fits
		}
	}
	switch {
	case allowed.Result != "" && deny.Result != "":
		return deny
	case allowed.Result != "":
		return doctor.Passed("The trust policy of role %s admits the ServiceAccount.", t.role.Name)
	case doubt.Result != "":
		return doubt
	}
	return closest
}

// unclear quotes what the package does not judge.
func (t *target) unclear(expression string) doctor.Finding {
	remedy := doctor.Do("Compare it with the token:", t.showRole()+" --query Role.AssumeRolePolicyDocument")
	return doctor.Unclear(remedy, "The doctor does not judge this in the trust policy of role %s: %s", t.role.Name, reading.Excerpt(expression)).
		Detail("expression", redact.Text(expression))
}

func (t *target) judgeStatement(s *statement) (f doctor.Finding, fits int) {
	actions, ok := texts(s.Action)
	if s.odd || !ok {
		return t.unclear(string(s.raw)), otherAction
	}
	var principals map[string]json.RawMessage
	everybody := json.Unmarshal(s.Principal, &principals) != nil // "*"
	federated, _ := texts(principals["Federated"])
	users, _ := texts(principals["AWS"])
	wild := slices.ContainsFunc(append(users, federated...), func(name string) bool { return strings.ContainsAny(name, "*?$") })
	switch {
	case !covers(actions):
		return doctor.Finding{Result: doctor.Fail}, otherAction
	case slices.Contains(federated, t.providerARN()):
		return t.judgeConditions(s.Condition), otherCondition
	case everybody || wild:
		return t.unclear(string(s.raw)), otherPrincipal
	case len(federated) == 0: // callers without a token
		return doctor.Finding{Result: doctor.Fail}, otherAction
	}
	f = t.refused("The trust policy of role %s names another OIDC provider.", t.role.Name)
	return f.Compare("token", t.providerARN(), "policy", reading.List(federated)), otherPrincipal
}

// judgeConditions needs all to hold. The order makes the subject come before the audience.
func (t *target) judgeConditions(conditions map[string]map[string]json.RawMessage) doctor.Finding {
	result := doctor.Passed("All conditions hold.")
	for _, operator := range slices.Sorted(maps.Keys(conditions)) {
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(conditions[operator]))) {
			f := t.judgeCondition(operator, key, conditions[operator][key])
			if f.Result == doctor.Fail {
				return f
			}
			if f.Result == doctor.Unknown {
				result = f
			}
		}
	}
	return result
}

func (t *target) judgeCondition(operator, key string, raw json.RawMessage) doctor.Finding {
	c := condition{pattern: strings.EqualFold(operator, "StringLike")}
	values, ok := texts(raw)
	c.values = values
	claim, own := strings.CutPrefix(strings.ToLower(key), strings.ToLower(t.host)+":")
	foreign := !own && strings.Contains(key, ".") && (strings.HasSuffix(key, ":sub") || strings.HasSuffix(key, ":aud"))
	switch {
	case !ok || !c.pattern && !strings.EqualFold(operator, "StringEquals"):
	case foreign:
		return t.refused("A condition in the trust policy of role %s is on another issuer.", t.role.Name).
			Compare("token", t.host, "policy", redact.Text(key))
	case own && claim == "sub":
		c.name, c.got = claim, t.Claims.Subject
	case own && claim == "aud" && len(t.Claims.Audiences) == 1: // STS is not known to treat several in one way
		c.name, c.got = claim, t.Claims.Audiences[0]
	}
	switch {
	case c.name != "" && slices.ContainsFunc(c.values, c.matches):
		return doctor.Passed("The condition holds.")
	case c.name == "" || slices.ContainsFunc(c.values, func(v string) bool { return strings.Contains(v, "${") }):
		return t.unclear(`{"` + operator + `":{"` + key + `":` + string(raw) + `}}`)
	}
	return t.unmet(&c)
}

// condition is a condition on a claim of the token.
type condition struct {
	name, got string
	values    []string
	pattern   bool
}

func (c *condition) matches(value string) bool {
	return value == c.got || c.pattern && like(value, c.got)
}

// unmet recognizes mistakes. Those of a policy for this very ServiceAccount are corrected where they are.
func (t *target) unmet(c *condition) doctor.Finding {
	f := t.refused("The trust policy of role %s does not admit this ServiceAccount.", t.role.Name).Compare("token", c.got, "policy", reading.List(c.values))
	mistake := func(message, correct string) doctor.Finding {
		f.Message = "The trust policy of role " + t.role.Name + " " + message
		f.Remedy.Text, f.Remedy.Commands = correct, nil
		return f
	}
	for _, v := range c.values {
		switch slip := reading.Slip(v, c.got); {
		case !c.pattern && strings.ContainsAny(v, "*?") && like(v, c.got):
			f.Message = "The trust policy of role " + t.role.Name + " has a * under StringEquals, which compares it literally."
			return f // StringLike would admit every ServiceAccount of the pattern
		case slip != "":
			return mistake("differs from the token "+slip+".", "Write the value in the trust policy exactly as in the token.")
		case c.name == "aud" && v == t.Claims.Subject:
			return mistake("has the subject under the key of the audience.", "Write the subject under the key that ends in :sub.")
		}
	}
	if c.name == "aud" {
		f.Message = "The trust policy of role " + t.role.Name + " does not admit the token's audience."
	}
	return f
}
