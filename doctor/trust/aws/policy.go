package aws

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
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
	if len(document) > maxPolicy || !utf8.Valid(document) || json.Unmarshal(document, &policy) != nil {
		return nil, false
	}
	for _, raw := range elements(policy.Statement) {
		s := statement{raw: raw}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		s.odd = d.Decode(&s) != nil || s.Effect != "Allow" && s.Effect != "Deny"
		list = append(list, s)
	}
	return list, len(list) > 0
}

// elements returns the elements of a list, or the one value that IAM treats as a list.
func elements(raw json.RawMessage) []json.RawMessage {
	var many []json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &many) == nil {
		return many
	}
	return []json.RawMessage{raw}
}

// texts reports false for an empty list, and for one with an element that is not a string.
func texts(raw json.RawMessage) (all []string, ok bool) {
	for _, one := range elements(raw) {
		var text *string
		if json.Unmarshal(one, &text) != nil || text == nil {
			return nil, false
		}
		all = append(all, *text)
	}
	return all, len(all) > 0
}

// kinds returns the principals of a statement by their kind. It reports false for "*".
func (s *statement) kinds() (kinds map[string][]string, ok bool) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(s.Principal, &raw) != nil || raw == nil {
		return nil, false
	}
	kinds = map[string][]string{}
	for kind, value := range raw {
		if kinds[kind], ok = texts(value); !ok {
			return nil, false
		}
	}
	return kinds, true
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
