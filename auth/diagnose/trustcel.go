package diagnose

import (
	"slices"
	"strings"
)

// cel evaluates the plain part of the Common Expression Language, which attribute mappings and conditions of Google Cloud are
// written in: texts, truth values, members, ==, !=, in, +, !, &&, ||, startsWith, endsWith and contains. All else is unknown,
// as is what would be an error there.
type cel struct {
	rest  string
	depth int
	bad   bool // it is none, or uses what this parser does not know
	names map[string]any
}

type celUnknown struct{}

const (
	maxCEL      = 8 << 10 // bytes; Google takes less
	maxCELDepth = 40
)

// evaluateCEL returns a string, a bool, a map, a list or celUnknown.
func evaluateCEL(expression string, names map[string]any) any {
	if len(expression) > maxCEL {
		return celUnknown{}
	}
	c := &cel{rest: expression, names: names}
	value := c.or()
	c.space()
	if c.bad || c.rest != "" {
		return celUnknown{}
	}
	return value
}

func (c *cel) space() { c.rest = strings.TrimLeft(c.rest, " \t\r\n") }

func (c *cel) take(token string) bool {
	c.space()
	rest, ok := strings.CutPrefix(c.rest, token)
	if ok {
		c.rest = rest
	}
	return ok
}

func (c *cel) fail() any {
	c.bad = true
	return celUnknown{}
}

// or is true if one side is, whatever the other is.
func (c *cel) or() any {
	if c.depth++; c.depth > maxCELDepth {
		return c.fail()
	}
	defer func() { c.depth-- }()
	value := c.and()
	for !c.bad && c.take("||") {
		value = logical(value, c.and(), true)
	}
	return value
}

func (c *cel) and() any {
	value := c.relation()
	for !c.bad && c.take("&&") {
		value = logical(value, c.relation(), false)
	}
	return value
}

// logical is strong if one of the two is, and known otherwise only if both are.
func logical(a, b any, strong bool) any {
	first, okA := a.(bool)
	second, okB := b.(bool)
	switch {
	case okA && first == strong, okB && second == strong:
		return strong
	case okA && okB:
		return !strong
	}
	return celUnknown{}
}

func (c *cel) relation() any {
	left := c.sum()
	switch {
	case c.take("=="):
		return equal(left, c.sum())
	case c.take("!="):
		if same, ok := equal(left, c.sum()).(bool); ok {
			return !same
		}
		return celUnknown{}
	case c.takeWord("in"):
		return within(left, c.sum())
	}
	return left
}

func equal(a, b any) any {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return a == b
		}
	case bool:
		if b, ok := b.(bool); ok {
			return a == b
		}
	}
	return celUnknown{}
}

func within(value, list any) any {
	items, ok := list.([]any)
	if !ok {
		return celUnknown{}
	}
	var found any = false
	for _, item := range items {
		found = logical(found, equal(value, item), true)
	}
	return found
}

func (c *cel) sum() any {
	value := c.unary()
	for !c.bad && c.take("+") {
		a, okA := value.(string)
		b, okB := c.unary().(string)
		value = celUnknown{}
		if okA && okB {
			value = a + b
		}
	}
	return value
}

func (c *cel) unary() any {
	negate, negated := false, false
	for c.space(); strings.HasPrefix(c.rest, "!") && !strings.HasPrefix(c.rest, "!="); c.space() {
		c.rest, negate, negated = c.rest[1:], !negate, true
	}
	value := c.member()
	if !negated {
		return value
	}
	if b, ok := value.(bool); ok {
		return b != negate
	}
	return celUnknown{}
}

func (c *cel) member() any {
	value := c.primary()
	for !c.bad {
		switch {
		case c.take("."):
			name := c.word()
			if name == "" {
				return c.fail()
			}
			if c.take("(") {
				value = call(value, name, c.items(")"))
			} else {
				value = field(value, name)
			}
		case c.take("["):
			if keys := c.items("]"); len(keys) == 1 {
				value = field(value, keys[0])
			} else {
				return c.fail()
			}
		default:
			return value
		}
	}
	return celUnknown{}
}

func field(of, key any) any {
	members, isMap := of.(map[string]any)
	name, isText := key.(string)
	if value, ok := members[name]; ok && isMap && isText {
		return value
	}
	return celUnknown{}
}

func call(on any, function string, args []any) any {
	functions := map[string]func(s, part string) bool{
		"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains}
	f, known := functions[function]
	text, ok := on.(string)
	if !known || !ok || len(args) != 1 {
		return celUnknown{}
	}
	if part, ok := args[0].(string); ok {
		return f(text, part)
	}
	return celUnknown{}
}

// items are values between commas, up to the end.
func (c *cel) items(end string) (values []any) {
	for !c.bad && !c.take(end) {
		if len(values) > 0 && !c.take(",") {
			c.fail()
			break
		}
		values = append(values, c.or())
	}
	return values
}

func (c *cel) primary() any {
	c.space()
	switch {
	case c.take("("):
		value := c.or()
		if !c.take(")") {
			return c.fail()
		}
		return value
	case c.take("["):
		return append([]any{}, c.items("]")...)
	case strings.HasPrefix(c.rest, `"`), strings.HasPrefix(c.rest, "'"):
		return c.text()
	}
	name := c.word()
	switch {
	case name == "", c.take("("), strings.HasPrefix(c.rest, `"`), strings.HasPrefix(c.rest, "'"):
		return c.fail() // such as numbers, functions, raw texts
	case name == "true", name == "false":
		return name == "true"
	}
	if value, ok := c.names[name]; ok {
		return value
	}
	return celUnknown{}
}

// text is one in quotes without escapes.
func (c *cel) text() any {
	value, rest, ok := strings.Cut(c.rest[1:], c.rest[:1])
	if !ok || strings.ContainsAny(value, "\\\r\n") || strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "'") {
		return c.fail()
	}
	c.rest = rest
	return value
}

func (c *cel) word() string {
	c.space()
	end := strings.IndexFunc(c.rest, func(r rune) bool { return !isWord(r) })
	if end < 0 {
		end = len(c.rest)
	}
	word := c.rest[:end]
	if word == "" || word[0] >= '0' && word[0] <= '9' || slices.Contains([]string{"in", "null"}, word) {
		return ""
	}
	c.rest = c.rest[end:]
	return word
}

func (c *cel) takeWord(word string) bool {
	c.space()
	rest, ok := strings.CutPrefix(c.rest, word)
	if !ok || strings.IndexFunc(rest, isWord) == 0 {
		return false
	}
	c.rest = rest
	return true
}

func isWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}
