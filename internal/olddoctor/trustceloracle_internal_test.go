package doctor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// plainCEL is an expression that is evaluated with everything known, as Google does.
func plainCEL(t *testing.T, expression string) cel.Program {
	t.Helper()
	kind := cel.MapType(cel.StringType, cel.DynType)
	env, err := cel.NewEnv(cel.Variable("assertion", kind), cel.Variable("google", kind), cel.Variable("attribute", kind))
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(checked)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return program
}

func evaluatePlain(program cel.Program, names map[string]any) any {
	value, _, err := program.Eval(names)
	if err != nil {
		return err
	}
	switch value := value.(type) {
	case types.Bool:
		return bool(value)
	case types.String:
		return string(value)
	}
	return fmt.Errorf("a %s", value.Type().TypeName())
}

// randomCEL is an expression of that depth at most. kind is "bool", "string" or "any".
func randomCEL(r *rand.Rand, kind string, depth int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	sub := func(kind string) string { return randomCEL(r, kind, depth-1) }
	if depth <= 0 {
		switch kind {
		case "bool":
			return pick("true", "false", "has(assertion.n)", "has(assertion.m.a)", "has(google.groups)", "has(google.subject)",
				"has(attribute.x)", "has(assertion.none)", "has(assertion.o.s)")
		case "string":
			return pick("'x'", "'a'", "'n'", "'mapped'", "google.subject", "string(assertion.sub)")
		}
		return pick("assertion", "google", "attribute", "assertion.n", ".assertion.n", "assertion.sub", "assertion.levels", "assertion.aud",
			"assertion.m", "assertion.o", "assertion.o.s", "google.subject", ".google.subject", "google.groups", "attribute.x", "assertion.mixed", "3", "3.0", "'x'",
			"null", "[3, 5]", "{'a': 5}", "{'subject': 'mapped'}", "[]", "{}")
	}
	switch kind {
	case "bool":
		return pick(fmt.Sprintf("(%s && %s)", sub("bool"), sub("bool")), fmt.Sprintf("(%s || %s)", sub("bool"), sub("bool")), "!"+sub("bool"),
			fmt.Sprintf("(dyn(%s) == dyn(%s))", sub("any"), sub("any")), fmt.Sprintf("(dyn(%s) != dyn(%s))", sub("any"), sub("any")),
			fmt.Sprintf("(dyn(%s) in dyn(%s))", sub("any"), sub("any")), fmt.Sprintf("(%s ? %s : %s)", sub("bool"), sub("bool"), sub("bool")),
			sub("string")+".startsWith("+sub("string")+")", fmt.Sprintf("(size(dyn(%s)) > 1)", sub("any")), fmt.Sprintf("(dyn(%s) < dyn(%s))", sub("any"), sub("any")))
	case "string":
		return pick(fmt.Sprintf("string(dyn(%s))", sub("any")), fmt.Sprintf("(%s + %s)", sub("string"), sub("string")),
			fmt.Sprintf("(%s ? %s : %s)", sub("bool"), sub("string"), sub("string")))
	}
	return pick(fmt.Sprintf("dyn(%s)[%s]", sub("any"), sub("string")), fmt.Sprintf("dyn(%s)[%s]", sub("any"), pick("0", "1", "0.0", "'n'", "'m'")),
		fmt.Sprintf("dyn(%s).%s", sub("any"), pick("n", "m", "a", "sub", "subject", "groups", "levels")), fmt.Sprintf("[dyn(%s), dyn(%s)]", sub("any"), sub("any")),
		fmt.Sprintf("{%s: dyn(%s)}", pick("'a'", "'n'", "'subject'"), sub("any")), fmt.Sprintf("(dyn(%s) + dyn(%s))", sub("any"), sub("any")),
		fmt.Sprintf("(%s ? dyn(%s) : dyn(%s))", sub("bool"), sub("any"), sub("any")), fmt.Sprintf("(%s ? assertion : google).%s", sub("bool"), pick("n", "subject", "sub")),
		fmt.Sprintf("assertion[%s]", sub("string")), fmt.Sprintf("google[%s]", sub("string")), sub("bool"), sub("string"), sub("any"))
}

// Whatever is answered is right for all that is not known. The expressions are the same in each run; FuzzCELOfUnknowns has others.
func TestCELOfUnknowns(t *testing.T) {
	t.Parallel()
	answered := 0
	for seed := range uint64(200) {
		answered += answersOfUnknowns(t, seed)
	}
	if answered < 20 {
		t.Errorf("only %d expressions were answered", answered)
	}
}

func FuzzCELOfUnknowns(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { answersOfUnknowns(t, seed) })
}

// answersOfUnknowns tries an expression and returns how often it was answered.
func answersOfUnknowns(t *testing.T, seed uint64) (answered int) {
	t.Helper()
	claims := func(three, five any) map[string]any {
		return map[string]any{"sub": "x", "n": three, "levels": []any{three, five}, "aud": []any{"x", "y"}, "m": map[string]any{"a": five, "s": "x"},
			"o": map[string]any{"s": "x", "nul": nil}, "mixed": []any{"x", []any{three}}}
	}
	subject := "mapped"
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
	expression := randomCEL(r, []string{"bool", "string"}[r.IntN(2)], 1+r.IntN(4))
	for _, known := range []*string{&subject, nil} {
		got := namesOf(claims(3.0, 5.0), known).evaluate(expression)
		if got == nil {
			continue
		}
		answered++
		program := plainCEL(t, expression)
		for _, completed := range completions(claims, known) {
			if want := evaluatePlain(program, completed); got != want {
				t.Fatalf("seed %d: %s is %v, but %v with %v", seed, expression, got, want, completed)
			}
		}
	}
	return answered
}

func completions(claims func(three, five any) map[string]any, subject *string) []map[string]any {
	subjects := []any{"a", "mapped", "x", nil}
	if subject != nil {
		subjects = []any{*subject}
	}
	var list []map[string]any
	for _, assertion := range []map[string]any{claims(3.0, 5.0), claims(int64(3), int64(5)), claims(7.0, int64(8))} {
		for _, s := range subjects {
			for _, google := range []map[string]any{{}, {"groups": []any{"a", "x"}}, {"groups": []any{}}, {"n": "x", "sub": "x", "display_name": "x"}} {
				if s != nil {
					google["subject"] = s
				}
				for _, attribute := range []map[string]any{{}, {"x": "x", "n": "a", "sub": "a", "subject": "mapped"}} {
					list = append(list, map[string]any{"assertion": assertion, "google": google, "attribute": attribute})
				}
			}
		}
	}
	return list
}

// What a provider's owner or a token's maker chooses ends soon, and in little memory.
func TestCELIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 40_000)
	levels := make([]any, 10_000)
	for i := range levels {
		levels[i] = "a"
	}
	deep := any(1.0)
	for range 9_000 {
		deep = map[string]any{"a": deep}
	}
	numbers := map[string]any{}
	for i := range 8_000 {
		numbers[fmt.Sprint(i)] = 1.0
	}
	subject := "mapped"
	names := namesOf(map[string]any{"sub": long, "aud": levels, "deep": deep}, &subject)
	many := namesOf(map[string]any{"sub": long, "numbers": numbers}, &subject)
	times := strings.Repeat
	for name, expression := range map[string]string{
		"lists doubled, in":     `[[1,2]]` + times(`.map(a,a+a)`, 30) + `.all(a, 3 in a)`,
		"lists doubled, equal":  `[[1,2]]` + times(`.map(a,a+a)`, 26) + `.all(a, a == a)`,
		"strings doubled":       `[assertion.sub]` + times(`.map(a,a+a)`, 25) + `.all(a, a == 'x')`,
		"texts doubled":         `[dyn('` + times("a", 1000) + `')]` + times(`.map(a,a+a)`, 25) + `.all(a, a == 'x')`,
		"strings concatenated":  times(`assertion.sub + `, 250) + `'a' == 'b'`,
		"some concatenated":     times(`assertion.sub + `, 49) + `'a' == 'b'`,
		"lists concatenated":    `'b' in (` + times(`assertion.aud + `, 200) + `[])`,
		"some lists":            `'b' in (` + times(`assertion.aud + `, 49) + `[])`,
		"lists equal":           times(`assertion.aud == assertion.aud && `, 100) + `true`,
		"lists sought in":       times(`'b' in assertion.aud || `, 150) + `false`,
		"expressions repeated":  `assertion.sub.matches('(a?){999}b$')`,
		"expressions in number": times(`assertion.sub.matches('(a?){99}b$')||`, 100) + `false`,
		"expressions nested":    `assertion.sub.matches('` + times("(", 300) + "a" + times("){2}", 300) + `')`,
		"an expression":         `assertion.sub.matches('(a?){300}b$')`,
		"not":                   times("!", 4000) + "true",
		"sums":                  times("1+", 1900) + "1 == 2",
		"choices":               times("true?1:", 500) + "1 == 2",
		"lists":                 "[" + times("[],", 1300) + "[]] == []",
		"lists in lists":        times("[", 39) + "1" + times("]", 39) + " == " + times("[", 38) + "1" + times("]", 38),
		"maps in maps":          times("{1:", 38) + "1" + times("}", 38) + " == {}",
		"members":               "assertion" + times(".a", 2000) + " == 1",
		"indices":               "assertion" + times("[1]", 1300) + " == 1",
		"presence":              times("has(assertion.a)&&", 220) + "true",
		"claims":                times("assertion==assertion&&", 180) + "true",
		"deep":                  "assertion.deep == assertion.deep",
		"parentheses":           times("(", 2000) + "true" + times(")", 2000),
	} {
		for _, n := range []celNames{names, many} {
			began := time.Now()
			value := n.evaluate(expression)
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: %v after %s", name, value, took)
			}
		}
	}
}
