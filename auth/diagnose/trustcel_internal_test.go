package diagnose

import (
	"fmt"
	"strings"
	"testing"
)

func celNames() map[string]any {
	return map[string]any{"google": map[string]any{"subject": "mapped"}, "assertion": map[string]any{"sub": "system:serviceaccount:a:b", "n": 1.5, "ok": true,
		"aud": []any{"x", "y"}, "kubernetes.io": map[string]any{"namespace": "a", "serviceaccount": map[string]any{"name": "b"}}}}
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
		`assertion.sub.matches('.*')`:                                  "unknown",
		`assertion.sub.extract('a{b}')`:                                "unknown",
		`attribute.x == 'y'`:                                           "unknown",
		`assertion.n == 'x'`:                                           "unknown",
		`assertion.sub + 1`:                                            "unknown",
		`assertion.sub + assertion.n`:                                  "unknown",
		`assertion.sub == "a\"b" || true`:                              "unknown",
		`'''a''' == 'a'`:                                               "unknown",
		`r'a' == 'a'`:                                                  "unknown",
		`'a' 'b'`:                                                      "unknown",
		`true ? true : false`:                                          "unknown",
		`assertion.sub == 'x' // no`:                                   "unknown",
		`has(assertion.sub)`:                                           "unknown",
		`assertion.sub == assertion.sub == true`:                       "unknown",
		`assertion.sub == 'a'; true`:                                   "unknown",
		`assertion.sub in [`:                                           "unknown",
		`assertion.sub in ['a' 'b']`:                                   "unknown",
		`assertion.sub.startsWith('s'`:                                 "unknown",
		`assertion.subx`:                                               "unknown",
		`-1 == -1`:                                                     "unknown",
		``:                                                             "unknown",
		strings.Repeat("(", 100000) + "true":                           "unknown",
		strings.Repeat("!", 8) + "true":                                "true",
	} {
		got := evaluateCEL(expression, celNames())
		text := fmt.Sprint(got)
		if got == (celUnknown{}) {
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
		value, known := evaluateCEL(expression, celNames()).(bool)
		negated, alike := evaluateCEL("!("+expression+")", celNames()).(bool)
		if known && alike && value == negated || evaluateCEL("("+expression+") && false", celNames()) == true {
			t.Errorf("%q is %v, and negated %v", expression, value, negated)
		}
	})
}
