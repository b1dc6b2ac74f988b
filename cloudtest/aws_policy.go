package cloudtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// policy is a trust policy or an identity policy of IAM. A policy is malformed
// if it contains an element that the fake does not imitate: NotAction,
// NotResource, NotPrincipal, policy variables, or a condition operator that
// conditionOperator does not know.
type policy struct {
	Version, ID string
	Statement   statements
}

type statement struct {
	Sid, Effect string
	Principal   principals
	Action      texts
	Resource    texts
	Condition   map[string]map[string]texts
}

type (
	statements []statement      // a single statement may appear without a list
	principals map[string]texts // by kind; "*" stands for every AWS principal
	texts      []string         // a single string may appear without a list
	operator   func(a, b string) bool
)

// conditionOperator returns nil for an unknown operator.
func conditionOperator(name string) operator {
	switch name {
	case "StringEquals":
		return func(a, b string) bool { return a == b }
	case "StringEqualsIgnoreCase", "Bool":
		return strings.EqualFold
	case "StringLike", "ArnEquals", "ArnLike":
		return like
	}
	return nil
}

func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (s *statements) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return strict(data, (*[]statement)(s))
	}
	*s = statements{{}}
	return strict(data, &(*s)[0])
}

func (p *principals) UnmarshalJSON(data []byte) error {
	if string(data) == `"*"` {
		*p = principals{"AWS": {"*"}}
		return nil
	}
	return strict(data, (*map[string]texts)(p))
}

func (t *texts) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return strict(data, (*[]string)(t))
	}
	*t = texts{""}
	return strict(data, &(*t)[0])
}

func malformed(format string, args ...any) *awsError {
	return refuse(http.StatusBadRequest, "MalformedPolicyDocument", format, args...)
}

// parsePolicy reads a document as IAM does when it stores it.
func parsePolicy(document string, check func(statement) (problem string)) (policy, *awsError) {
	var p policy
	switch err := strict([]byte(document), &p); {
	case !json.Valid([]byte(document)):
		return p, malformed("This policy contains invalid Json")
	case err != nil, !slices.Contains([]string{"", "2012-10-17", "2008-10-17"}, p.Version), len(p.Statement) == 0:
		return p, malformed("Syntax errors in policy.")
	}
	for _, s := range p.Statement {
		if problem := firstOf(s.problem(), check(s)); problem != "" {
			return p, malformed("%s", problem)
		}
	}
	return p, nil
}

func (s statement) problem() string {
	switch {
	case s.Effect != "Allow" && s.Effect != "Deny":
		return "Invalid effect: " + s.Effect
	case len(s.Action) == 0:
		return "Policy statement must contain actions."
	}
	for name := range s.Condition {
		if conditionOperator(name) == nil {
			return fmt.Sprintf("cloudtest does not imitate the condition operator %q", name)
		}
	}
	return ""
}

// checkTrust and checkIdentity hold the rules that differ between the two kinds
// of policy, with IAM's texts.
func checkTrust(s statement) (problem string) {
	switch {
	case len(s.Principal) == 0:
		return "Missing required field Principal"
	case s.Resource != nil:
		return "Has prohibited field Resource"
	case slices.ContainsFunc(s.Action, func(a string) bool { return !strings.HasPrefix(strings.ToLower(a), "sts:") }):
		return "AssumeRole policy may only specify STS AssumeRole actions."
	}
	return ""
}

func checkIdentity(s statement) (problem string) {
	switch {
	case s.Principal != nil:
		return "Policy document should not specify a principal."
	case len(s.Resource) == 0:
		return "Policy statement must contain resources."
	}
	return ""
}

// access is a request of a principal.
type access struct {
	action, resource string
	// names are the names of the principal, of the given kind. groups are names
	// that include the principal, such as its account.
	kind          string
	names, groups []string
	// context holds the condition keys, in lower case.
	context map[string][]string
}

// decision is the result of a policy, in the order of precedence.
type decision int

const (
	silent decision = iota
	allowed
	allowedByName // a trust policy names the principal, not only its account
	denied
)

func (p policy) decide(a access) decision {
	result := silent
	for _, s := range p.Statement {
		d := s.names(a)
		if d == silent || !s.matches(a) {
			continue
		}
		if s.Effect == "Deny" {
			d = denied
		}
		result = max(result, d)
	}
	return result
}

// names reports how the statement names the principal. A statement of an
// identity policy applies to its owner.
func (s statement) names(a access) decision {
	within := func(names []string) bool {
		return slices.ContainsFunc(s.Principal[a.kind], func(p string) bool { return slices.Contains(names, p) })
	}
	switch {
	case within(a.names):
		return allowedByName
	case s.Principal == nil, within(a.groups):
		return allowed
	}
	return silent
}

func (s statement) matches(a access) bool {
	action := strings.ToLower(a.action)
	if !slices.ContainsFunc(s.Action, func(p string) bool { return like(strings.ToLower(p), action) }) {
		return false
	}
	if s.Resource != nil && !slices.ContainsFunc(s.Resource, func(p string) bool { return like(p, a.resource) }) {
		return false
	}
	for name, keys := range s.Condition {
		for key, wanted := range keys {
			if !anyPair(conditionOperator(name), wanted, a.context[strings.ToLower(key)]) {
				return false
			}
		}
	}
	return true
}

// anyPair reports whether a wanted value matches a present one. An absent key
// never matches.
func anyPair(fits operator, wanted, there []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool {
		return slices.ContainsFunc(there, func(t string) bool { return fits(w, t) })
	})
}
