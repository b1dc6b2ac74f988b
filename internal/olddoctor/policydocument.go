package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPolicy bounds a trust policy without its blanks, in bytes. IAM takes less.
const maxPolicy = 16 << 10

// trustPolicy is the document that says who may assume a role.
type trustPolicy struct {
	// others are the members beside Statement, such as Version.
	others     []member
	statements []policyStatement
}

// policyStatement is one statement, without what no trust policy has.
type policyStatement struct {
	raw json.RawMessage
	// odd says that something is in it that IAM would not take, or that this package does not know.
	odd bool
	// deny says that it denies; or else it allows.
	deny                bool
	actions, notActions []string
	// principals are by kind, in lower case; everybody is * of the kind "aws".
	principals   map[string][]string
	notPrincipal bool
	conditions   []policyCondition
}

type policyCondition struct {
	operator, key string
	values        []string
}

// member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// parsePolicy reports false for what is no policy, or one that can be read in two ways.
func parsePolicy(document []byte) (p trustPolicy, ok bool) {
	var compact bytes.Buffer
	if !utf8.Valid(document) || json.Compact(&compact, document) != nil || compact.Len() > maxPolicy {
		return p, false
	}
	all, ok := members(compact.Bytes())
	if !ok {
		return p, false
	}
	for _, m := range all {
		if !strings.EqualFold(m.name, "Statement") {
			p.others = append(p.others, m)
			continue
		}
		for _, raw := range list(m.value) {
			p.statements = append(p.statements, parseStatement(raw))
		}
	}
	return p, len(p.statements) > 0
}

// members reports false for what is no object. Names that are the same but for their case do not count as an object either:
// which of them counts is not known.
func members(raw []byte) (all []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		token, err := d.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if err != nil || !isName || d.Decode(&value) != nil ||
			slices.ContainsFunc(all, func(m member) bool { return strings.EqualFold(m.name, name) }) {
			return nil, false
		}
		all = append(all, member{name, value})
	}
	return all, true
}

// list is a list, or one value, which IAM takes for the same.
func list(raw json.RawMessage) []json.RawMessage {
	var many []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &many) == nil {
		return many
	}
	return []json.RawMessage{raw}
}

// texts reports false for lists that are empty or hold something else than texts.
func texts(raw json.RawMessage) (all []string, ok bool) {
	for _, one := range list(raw) {
		var text *string
		if json.Unmarshal(one, &text) != nil || text == nil {
			return nil, false
		}
		all = append(all, *text)
	}
	return all, len(all) > 0
}

func parseStatement(raw json.RawMessage) policyStatement {
	s := policyStatement{raw: raw}
	all, ok := members(raw)
	named := map[string]bool{}
	for _, m := range all {
		name := strings.ToLower(m.name)
		named[name] = true
		ok = s.set(name, m.value) && ok
	}
	s.odd = !ok || !named["effect"] || named["action"] == named["notaction"] || named["principal"] == named["notprincipal"]
	return s
}

func (s *policyStatement) set(name string, value json.RawMessage) (ok bool) {
	switch name {
	case "sid":
		return true
	case "effect":
		s.deny = string(value) == `"Deny"`
		return s.deny || string(value) == `"Allow"`
	case "action":
		s.actions, ok = texts(value)
	case "notaction":
		s.notActions, ok = texts(value)
	case "principal":
		s.principals, ok = parsePrincipals(value)
	case "notprincipal":
		s.notPrincipal, ok = true, true
	case "condition":
		s.conditions, ok = parseConditions(value)
	}
	return ok
}

func parsePrincipals(raw json.RawMessage) (map[string][]string, bool) {
	if string(raw) == `"*"` {
		return map[string][]string{"aws": {"*"}}, true
	}
	kinds, ok := members(raw)
	principals := map[string][]string{}
	for _, kind := range kinds {
		names, isText := texts(kind.value)
		name := strings.ToLower(kind.name)
		ok = ok && isText && slices.Contains([]string{"aws", "canonicaluser", "federated", "service"}, name)
		principals[name] = names
	}
	return principals, ok && len(principals) > 0
}

// parseConditions takes numbers and truth values as they stand.
func parseConditions(raw json.RawMessage) (conditions []policyCondition, ok bool) {
	operators, ok := members(raw)
	for _, operator := range operators {
		keys, isObject := members(operator.value)
		ok = ok && isObject
		for _, key := range keys {
			c := policyCondition{operator: operator.name, key: key.name}
			for _, value := range list(key.value) {
				text := string(value)
				if text == "null" || strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
					ok = false
				}
				_ = json.Unmarshal(value, &text) // what is no text stays as it is
				c.values = append(c.values, text)
			}
			conditions = append(conditions, c)
		}
	}
	return conditions, ok
}
