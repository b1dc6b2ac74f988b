package doctor

import (
	"fmt"
	"strings"
	"testing"
)

func someNames() celNames {
	subject := "mapped"
	return namesOf(map[string]any{"sub": "system:serviceaccount:a:b", "n": 1.5, "levels": []any{3.0, 5.0}, "m": map[string]any{"a": 5.0}, "mixed": []any{"x", []any{map[string]any{"b": 1.0}}}, "nothing": nil, "ok": true, "aud": []any{"x", "y"},
		"kubernetes.io": map[string]any{"namespace": "a", "serviceaccount": map[string]any{"name": "b"}}}, &subject)
}

func TestCEL(t *testing.T) {
	for expression, want := range map[string]string{
		`assertion.sub`:       "system:serviceaccount:a:b",
		` assertion [ 'sub']`: "system:serviceaccount:a:b",
		`"k8s::" + assertion['kubernetes.io']['namespace'] + '/' + assertion["kubernetes.io"].serviceaccount.name`: "k8s::a/b",
		`assertion.sub == 'system:serviceaccount:a:b' && assertion.ok`:                                             "true",
		`assertion.sub != 'x'`:                                         "true",
		`!(assertion.sub == 'x' || google.subject == 'x')`:             "true",
		`!!assertion.ok`:                                               "true",
		`google.subject.startsWith('map')`:                             "true",
		`assertion.sub.endsWith(':b') && !assertion.sub.contains('x')`: "true",
		`'x' in assertion.aud`:                                         "true",
		`assertion.sub in ['x', 'y']`:                                  "false",
		`assertion.sub in []`:                                          "false",
		`assertion.sub == 'x' || assertion.n > 1`:                      "unknown",
		`assertion.missing == 'x' || true`:                             "true",
		`assertion.missing == 'x' && false`:                            "false",
		`assertion.missing == 'x' && true`:                             "unknown",
		`true || false && false`:                                       "true",
		`(true || false) && false`:                                     "false",
		`assertion.sub.matches('.*') || true`:                          "true",
		`assertion.sub.matches('.*')`:                                  "true",
		`assertion.sub.extract('a{b}')`:                                "unknown",
		`attribute.x == 'y'`:                                           "unknown",
		`assertion.n == 'x'`:                                           "unknown",
		`assertion.sub + 1`:                                            "unknown",
		`assertion.sub + assertion.n`:                                  "unknown",
		`assertion.sub == "a\"b" || true`:                              "true",
		`'''a''' == 'a'`:                                               "true",
		`r'a' == 'a'`:                                                  "true",
		`'a' 'b'`:                                                      "unknown",
		`true ? true : false`:                                          "true",
		`assertion.sub == 'x' // no`:                                   "false",
		`has(assertion.sub)`:                                           "true",
		`assertion.sub == assertion.sub == true`:                       "true",
		`assertion.sub == 'a'; true`:                                   "unknown",
		`assertion.sub in [`:                                           "unknown",
		`assertion.sub in ['a' 'b']`:                                   "unknown",
		`assertion.sub.startsWith('s'`:                                 "unknown",
		`has(assertion.n)`:                                             "unknown",
		`has(google.subject)`:                                          "unknown",
		`string(assertion.n) == '1.5'`:                                 "unknown",
		`assertion.aud.all(a, a.size() == 1)`:                          "unknown",
		`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a > 0))))))`: "unknown",
		`assertion.subx`: "unknown",
		// What holds a number or something that is not read depends on it as a whole.
		`assertion.levels == [7, 8]`:                                 "unknown",
		`!(3 in assertion.levels)`:                                   "unknown",
		`3 in assertion.levels`:                                      "unknown",
		`[assertion.levels][0][0] == 3`:                              "unknown",
		`(true ? assertion : google).n == 1.5`:                       "unknown",
		`{'a': assertion}.a.n == 1.5`:                                "unknown",
		`assertion['' + 'n'] == 1.5`:                                 "unknown",
		`assertion[assertion.aud[0] == 'x' ? 'n' : 'sub'] == 1.5`:    "unknown",
		`.assertion.n == 1.5`:                                        "unknown",
		`dyn(assertion).n == 1.5`:                                    "unknown",
		`assertion.m == {'a': 5}`:                                    "unknown",
		`assertion.mixed[0] == 'x'`:                                  "unknown",
		`assertion.mixed[0.0] == 'x'`:                                "unknown",
		`assertion.nothing == null`:                                  "true",
		`size(assertion) > 1`:                                        "unknown",
		`assertion.m.b == 'x' || true`:                               "true",
		`has(assertion.m.b)`:                                         "false",
		`has(google.groups)`:                                         "unknown",
		`has(google.groups) && 'a' in google.groups`:                 "unknown",
		`'groups' in google`:                                         "unknown",
		`size(google) == 1`:                                          "unknown",
		`google == {'subject': 'mapped'}`:                            "unknown",
		`google['sub' + 'ject'] == 'x'`:                              "unknown",
		`.google.subject == 'mapped'`:                                "true",
		`google.subject == 'x'`:                                      "false",
		`google.groups == [] && assertion.sub == 'x'`:                "false",
		`google.groups == [] || assertion.ok`:                        "true",
		`attribute.x == 'y' || assertion.ok`:                         "true",
		`has(attribute.x)`:                                           "unknown",
		`size(attribute) == 0`:                                       "unknown",
		`assertion.sub.matches(assertion.sub)`:                       "unknown",
		`matches(assertion.sub, '^system:serviceaccount:[a-z]+:b$')`: "true",
		`assertion.sub.matches('(')`:                                 "unknown",
		`-1 == -1`:                                                   "true",
		``:                                                           "unknown",
		strings.Repeat("(", 100000) + "true":                         "unknown",
		strings.Repeat("!", 8) + "true":                              "true",
	} {
		got := evaluateCEL(t.Context(), expression, someNames())
		text := fmt.Sprint(got)
		if got == nil {
			text = "unknown"
		}
		if text != want {
			t.Errorf("%.100s is %s, not %s", expression, text, want)
		}
	}
}

// FuzzCEL evaluates whatever a cloud may hold, in time.
func FuzzCEL(f *testing.F) {
	for _, seed := range []string{`assertion.sub == 'x' && !(a in ['b']) || c.startsWith("d")`, `a['b'].c + "d" != 'e'`, "((((", "[[[[", "!!!!", "a.b(c,d(e", "'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		value, known := evaluateCEL(t.Context(), expression, someNames()).(bool)
		if !known {
			return
		}
		if negated, ok := evaluateCEL(t.Context(), "!("+expression+"\n)", someNames()).(bool); ok && value == negated {
			t.Errorf("%q is %v, and negated %v", expression, value, negated)
		}
	})
}
