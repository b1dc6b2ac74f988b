package aws

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// maxPolicy bounds a trust policy, in bytes. IAM accepts less.
const maxPolicy = 64 << 10

// statement is a statement of a trust policy. Its members have more than one
// form.
type statement struct {
	raw json.RawMessage
	// odd marks a statement with members that the package does not check, such
	// as NotAction.
	odd bool

	Sid, Principal, Action json.RawMessage
	Effect                 string
	Condition              map[string]map[string]json.RawMessage
}

// parsePolicy reports false for a document without statements.
func parsePolicy(document []byte) (list []statement, ok bool) {
	var policy struct{ Statement json.RawMessage }
	if len(document) > maxPolicy || !utf8.Valid(document) || json.Unmarshal(document, &policy) != nil ||
		policy.Statement == nil {
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

// covers reports whether a list of actions contains AssumeRoleWithWebIdentity.
// IAM ignores the case of actions.
func covers(actions []string) bool {
	return slices.ContainsFunc(actions, func(a string) bool {
		return like(strings.ToLower(a), strings.ToLower(webIdentityAction))
	})
}

// like is IAM's StringLike: * stands for any text, ? for one character.
func like(pattern, s string) bool {
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	expression, err := regexp.Compile("(?s)^" + quoted + "$") // in linear time
	return err == nil && expression.MatchString(s)
}

// checkPolicy needs one statement that allows the token. It checks no Deny:
// beside such a statement, one makes the result unknown. The message is about
// the last statement that comes close.
func (t *target) checkPolicy(document []byte) doctor.Finding {
	statements, ok := parsePolicy(document)
	if !ok {
		return doctor.Unclear(doctor.Do("See:", t.showRole()), "The trust policy of role %s cannot be read.", t.role.Name)
	}
	found := map[doctor.Result]doctor.Finding{doctor.Fail: t.refused("does not mention AssumeRoleWithWebIdentity.")}
	for i := range statements {
		s := &statements[i]
		if s.Effect != "Allow" {
			found["deny"] = t.unclear(string(s.raw))
		}
		if f := t.checkStatement(s); f.Result != "" && s.Effect != "Deny" {
			found[f.Result] = f
		}
	}
	allowed, isAllowed := found[doctor.Pass]
	deny, isDenied := found["deny"]
	doubt, isDoubtful := found[doctor.Unknown]
	switch {
	case isAllowed && isDenied:
		return deny
	case isAllowed:
		return allowed
	case isDoubtful:
		return doubt
	}
	return found[doctor.Fail]
}

// unclear quotes what the package does not check.
func (t *target) unclear(expression string) doctor.Finding {
	expression = redact.Text(expression)
	remedy := doctor.Do("Compare it with the token:", t.showRole()+" --query Role.AssumeRolePolicyDocument")
	return doctor.Unclear(remedy, "The doctor does not check this in the trust policy of role %s: %.60s", t.role.Name,
		expression).Detail("expression", expression)
}

// checkStatement returns the zero Finding for a statement about something else.
func (t *target) checkStatement(s *statement) doctor.Finding {
	actions, ok := texts(s.Action)
	if s.odd || !ok {
		return t.unclear(string(s.raw))
	}
	var principals map[string]json.RawMessage
	everybody := json.Unmarshal(s.Principal, &principals) != nil // "*"
	federated, _ := texts(principals["Federated"])
	users, _ := texts(principals["AWS"])
	wild := slices.ContainsFunc(append(users, federated...), func(name string) bool {
		return strings.ContainsAny(name, "*?$")
	})
	switch {
	case !covers(actions):
		return doctor.Finding{}
	case slices.Contains(federated, t.providerARN()):
		return t.checkConditions(s.Condition)
	case everybody || wild:
		return t.unclear(string(s.raw))
	case len(federated) == 0: // callers without a token
		return doctor.Finding{}
	}
	return t.refused("names another OIDC provider.").Compare("token", t.providerARN(), "policy", list(federated))
}

// checkConditions needs all to hold. The order makes the subject come before
// the audience.
func (t *target) checkConditions(conditions map[string]map[string]json.RawMessage) doctor.Finding {
	result := doctor.Passed("The trust policy of role %s admits the ServiceAccount.", t.role.Name)
	for _, operator := range slices.Sorted(maps.Keys(conditions)) {
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(conditions[operator]))) {
			switch f := t.checkCondition(operator, key, conditions[operator][key]); f.Result {
			case doctor.Fail:
				return f
			case doctor.Unknown:
				result = f
			default:
			}
		}
	}
	return result
}

// checkCondition returns the zero Finding for a condition that holds. Of
// several audiences STS is not known to treat all in one way.
func (t *target) checkCondition(operator, key string, raw json.RawMessage) doctor.Finding {
	values, ok := texts(raw)
	pattern := strings.EqualFold(operator, "StringLike")
	claim, own := strings.CutPrefix(strings.ToLower(key), strings.ToLower(t.host)+":")
	got := map[string][]string{"sub": {t.Claims.Subject}, "aud": t.Claims.Audiences}[claim]
	if !ok || !own || len(got) != 1 || !pattern && !strings.EqualFold(operator, "StringEquals") {
		return t.unclear(`{"` + operator + `":{"` + key + `":` + string(raw) + `}}`)
	}
	says := map[string]string{"sub": "does not admit this ServiceAccount.",
		"aud": "does not admit the token's audience."}[claim]
	for _, v := range values {
		switch {
		case v == got[0] || pattern && like(v, got[0]):
			return doctor.Finding{}
		case strings.Contains(v, "${"):
			return t.unclear(`{"` + operator + `":{"` + key + `":` + string(raw) + `}}`)
		// StringLike would admit every ServiceAccount of the pattern
		case !pattern && strings.ContainsAny(v, "*?") && like(v, got[0]):
			says = "has a * under StringEquals, which compares it literally."
		case strings.EqualFold(v, got[0]):
			says = "differs from the token only in upper and lower case."
		}
	}
	return t.refused(says).Compare("token", got[0], "policy", list(values))
}

// list joins values for a comparison, bounded.
func list(values []string) string { return cmp.Or(redact.Text(strings.Join(values, ", ")), "none") }
