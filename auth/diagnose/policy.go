package diagnose

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

// trustPolicy is the document that says who may assume a role.
type trustPolicy struct {
	Statement oneOrMore[policyStatement]
}

type policyStatement struct {
	Effect    string
	Action    oneOrMore[string]
	Principal json.RawMessage
	// NotAction and NotPrincipal are only known to be there.
	NotAction, NotPrincipal json.RawMessage
	// Condition holds values by operator and key.
	Condition map[string]map[string]oneOrMore[string]
}

// oneOrMore is a value or a list of values, which IAM takes for the same.
type oneOrMore[T any] []T

// UnmarshalJSON accepts both forms.
func (l *oneOrMore[T]) UnmarshalJSON(data []byte) error {
	var one T
	if json.Unmarshal(data, &one) == nil {
		*l = oneOrMore[T]{one}
		return nil
	}
	return json.Unmarshal(data, (*[]T)(l))
}

// judgePolicy evaluates what concerns tokens. The first statement that admits the token wins; otherwise the finding is that of
// the statement that comes closest.
func (e *examination) judgePolicy(document []byte) Finding {
	var policy trustPolicy
	if json.Unmarshal(document, &policy) != nil || len(policy.Statement) == 0 {
		return unknown("the trust policy cannot be read", e.howToRead())
	}
	closest := fail("A1", e.statement(),
		"no statement of the trust policy is about web identities").with(differs("Action", "others", "sts:AssumeRoleWithWebIdentity"))
	near, doubt := 0, false
	for _, s := range policy.Statement {
		if s.Effect != "Deny" {
			continue
		}
		switch e.denies(s) {
		case Fail:
			return fail("A1", "change the statement that denies", "a statement of the trust policy denies it").with(differs("Effect", "Deny", "Allow"))
		case Unknown:
			doubt = true
		}
	}
	for _, s := range policy.Statement {
		if s.Effect == "Deny" || !slices.ContainsFunc(s.Action, isWebIdentity) {
			continue
		}
		f, fits := e.judgeStatement(s)
		switch {
		case f.Result == Pass && doubt:
			return unknown("a statement of the trust policy allows it, but one that denies is beyond this check", "compare that by hand")
		case f.Result == Pass:
			return f
		case fits >= near:
			closest, near = f, fits
		}
	}
	return closest
}

func isWebIdentity(action string) bool {
	return like(strings.ToLower(action), "sts:assumerolewithwebidentity")
}

// denies is Fail for a statement that denies the token, Pass for one that is plainly about others, else Unknown.
func (e *examination) denies(s policyStatement) Result {
	if s.NotAction == nil && !slices.ContainsFunc(s.Action, isWebIdentity) {
		return Pass
	}
	everybody, federated := e.namedBy(s.Principal)
	if s.NotPrincipal == nil && !everybody && !federated {
		return Pass
	}
	result := Fail
	if s.NotAction != nil || s.NotPrincipal != nil {
		result = Unknown
	}
	for operator, keys := range s.Condition {
		for key, values := range keys {
			switch holds, known := e.conditionHolds(operator, key, values); {
			case !known:
				result = Unknown
			case !holds:
				return Pass
			}
		}
	}
	return result
}

// namedBy reports whether a statement is about everybody, or about tokens of this issuer.
func (e *examination) namedBy(principal json.RawMessage) (everybody, federated bool) {
	var anybody string
	if json.Unmarshal(principal, &anybody) == nil {
		return anybody == "*", false
	}
	var named struct{ Federated, AWS oneOrMore[string] }
	_ = json.Unmarshal(principal, &named) // what it is not is about others
	want := e.oidcProvider(strings.TrimPrefix(e.token.claims.Issuer, "https://"))
	return slices.Contains(named.AWS, "*") || slices.Contains(named.Federated, "*"),
		slices.ContainsFunc(named.Federated, func(arn string) bool { return strings.HasSuffix(arn, want) })
}

// conditionKeys are those of the issuer that this check knows, as IAM writes them: in any case.
func (e *examination) conditionKeys() map[string][]string {
	host := strings.ToLower(strings.TrimPrefix(e.token.claims.Issuer, "https://"))
	return map[string][]string{host + ":sub": {e.token.claims.Subject}, host + ":aud": e.token.claims.Audience}
}

// conditionHolds evaluates a condition whose key and operator are known.
func (e *examination) conditionHolds(operator, key string, values []string) (holds, known bool) {
	got, there := e.conditionKeys()[strings.ToLower(key)]
	name := plainOperator(operator)
	positive := strings.Replace(name, "not", "", 1)
	matches := matcherOf(positive)
	if !there || matches == nil || strings.Contains(operator, ":") && name != positive {
		return false, false
	}
	found := slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(got, func(g string) bool { return matches(v, g) })
	})
	return found == (name == positive), true
}

// plainOperator is the operator in lower case, without what makes no difference for a token that has the key.
func plainOperator(operator string) string {
	name := strings.ToLower(operator)
	name = strings.TrimPrefix(strings.TrimPrefix(name, "foranyvalue:"), "forallvalues:")
	return strings.TrimSuffix(name, "ifexists")
}

// matcherOf is nil for operators that are not known.
func matcherOf(operator string) func(want, got string) bool {
	switch operator {
	case "stringequals":
		return func(want, got string) bool { return want == got }
	case "stringequalsignorecase":
		return strings.EqualFold
	case "stringlike":
		return like
	}
	return nil
}

// judgeStatement also says how many parts of the statement fit.
func (e *examination) judgeStatement(s policyStatement) (f Finding, fits int) {
	c := e.token.claims
	host := strings.TrimPrefix(c.Issuer, "https://")
	var principal struct{ Federated oneOrMore[string] }
	_ = json.Unmarshal(s.Principal, &principal) // "*" is not about web identities
	want := e.oidcProvider(host)
	if !slices.ContainsFunc(principal.Federated, func(arn string) bool { return strings.HasSuffix(arn, want) }) {
		return fail("A1", e.statement(),
			"the trust policy names another OIDC provider").with(differs("Principal.Federated", audiences(principal.Federated),
			"arn:..."+want)), 1
	}
	claims := e.conditionKeys()
	for _, operator := range sortedOperators(s.Condition) {
		for _, key := range sortedConditionKeys(s.Condition[operator]) {
			f, ok := e.judgeCondition(operator, key, s.Condition[operator][key], claims, host)
			if !ok {
				return f, 2
			}
		}
	}
	return pass("a statement of the trust policy allows it"), 3
}

// oidcProvider is what the ARN of the issuer's OIDC provider ends in: it has to be one of the role's own account.
func (e *examination) oidcProvider(host string) string {
	const parts, account = 6, 4
	if p := strings.SplitN(e.serviceAccount().Annotations[e.cloud.required], ":", parts); len(p) == parts {
		return ":" + p[account] + ":oidc-provider/" + host
	}
	return ":oidc-provider/" + host
}

// judgeCondition is about one key under one operator.
func (e *examination) judgeCondition(operator, key string, values []string, claims map[string][]string, host string) (Finding, bool) {
	got, known := claims[strings.ToLower(key)]
	plain := plainOperator(operator)
	remedy := e.statement()
	switch {
	case !known && (strings.HasPrefix(key, "sts:") || strings.HasPrefix(key, "aws:")):
		return unknown("the trust policy has a condition on "+shown(key)+", which is not of the token", "compare it by hand"), false
	case !known && strings.HasSuffix(strings.ToLower(operator), "ifexists"):
		return Finding{}, true
	case !known:
		return fail("A1", remedy, "the trust policy has a condition on a key that the token does not have").
			with(differs("condition", key, host+":sub or "+host+":aud")), false
	}
	matches := matcherOf(plain)
	if matches == nil {
		return unknown("the operator "+shown(operator)+" of the trust policy is not known to this check", "compare by hand"), false
	}
	if slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(got, func(g string) bool { return matches(v, g) })
	}) {
		return Finding{}, true
	}
	field := differs(strings.TrimPrefix(key, host+":"), audiences(got), audiences(values))
	switch {
	case plain == "stringequals" && slices.ContainsFunc(values, func(v string) bool {
		return strings.ContainsAny(v, "*?") && slices.ContainsFunc(got, func(g string) bool { return like(v, g) })
	}):
		return fail("A1", "use StringLike for the condition with *, or name the ServiceAccount:\n"+remedy, "StringEquals contains * and is compared literally").with(field), false
	case slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, got[0]) }):
		return fail("A1", remedy, "the trust policy differs in upper and lower case only").with(field), false
	case strings.HasSuffix(key, ":aud") && slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "system:serviceaccount:") }):
		return fail("A1", remedy, "the trust policy has the subject under the key for the audience").with(field), false
	}
	return fail("A1", remedy, "the trust policy does not admit the token's %s", field.Name).with(field), false
}

// statement is one that admits exactly this token.
func (e *examination) statement() string {
	c := e.token.claims
	role := e.serviceAccount().Annotations[e.cloud.required]
	partition, account := "aws", "<account>"
	if parts := strings.SplitN(role, ":", 6); len(parts) == 6 {
		partition, account = parts[1], parts[4]
	}
	audience := e.cloud.audience
	if slices.Contains(c.Audience, "sts.amazonaws.com.cn") && partition == "aws-cn" {
		audience = "sts.amazonaws.com.cn"
	}
	host := shown(strings.TrimPrefix(c.Issuer, "https://"))
	quote := func(v any) string {
		content, err := json.Marshal(v)
		if err != nil {
			return "null"
		}
		return inert.Replace(string(content))
	}
	return fmt.Sprintf(`aws iam update-assume-role-policy --role-name %s --policy-document file://trust.json, whose list Statement gets`+"\n"+
		`{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity","Principal":{"Federated":%s},"Condition":{"StringEquals":{%s:%s,%s:%s}}}`,
		shell.Word(role[strings.LastIndexByte(role, '/')+1:], "<role>"), quote("arn:"+partition+":iam::"+account+":oidc-provider/"+host),
		quote(host+":sub"), quote(shown(c.Subject)), quote(host+":aud"), quote(audience))
}

func sortedOperators(m map[string]map[string]oneOrMore[string]) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func sortedConditionKeys(m map[string]oneOrMore[string]) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
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
