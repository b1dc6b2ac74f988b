package doctor_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/testworld"
)

// request is a call of AssumeRoleWithWebIdentity: the keys that IAM evaluates, in lower case, and how it reads what its
// documentation leaves open.
type request struct {
	keys      map[string][]string
	everybody bool // * includes who comes with a token
	accounts  bool // an account includes who comes with a token of its OIDC provider
	not       bool // NotPrincipal holds
}

// requests are all that the token may come with.
func requests() (all []request) {
	for _, address := range [][]string{nil, {"x"}, {"192.0.2.1"}} {
		for bits := range 8 {
			keys := map[string][]string{"issuer.example:sub": {subject}, "issuer.example:aud": {"sts.amazonaws.com"}}
			if address != nil {
				keys["aws:sourcevpc"], keys["sts:rolesessionname"], keys["issuer.example:email"] = address, address, address
			}
			all = append(all, request{keys: keys, everybody: bits&1 != 0, accounts: bits&2 != 0, not: bits&4 != 0})
		}
	}
	return all
}

type plainStatement struct {
	Effect                                  string
	Action, NotAction, Principal, Condition any
	NotPrincipal                            any
}

// admits is IAM's evaluation, plainly: no statement that denies holds, and one that allows does.
func (r request) admits(policy string) bool {
	var p struct{ Statement []plainStatement }
	if json.Unmarshal([]byte(policy), &p) != nil {
		return false
	}
	allowed := false
	for _, s := range p.Statement {
		if !r.holds(s) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = true
	}
	return allowed
}

func (r request) holds(s plainStatement) bool {
	covered := false
	for _, action := range anyTexts(s.Action) {
		covered = covered || wild("(?i)", action, "sts:AssumeRoleWithWebIdentity")
	}
	if s.NotAction != nil {
		covered = !slices.ContainsFunc(anyTexts(s.NotAction), func(a string) bool { return wild("(?i)", a, "sts:AssumeRoleWithWebIdentity") })
	}
	named := s.NotPrincipal != nil && r.not
	if s.Principal == "*" {
		named = s.Effect == "Deny" || r.everybody
	}
	kinds, _ := s.Principal.(map[string]any)
	for kind, names := range kinds {
		for _, name := range anyTexts(names) {
			named = named || kind == "Federated" && name == oidcProvider || kind == "AWS" && name == "*" && (s.Effect == "Deny" || r.everybody) ||
				kind == "AWS" && strings.Contains(name, account) && r.accounts && s.Effect == "Deny"
		}
	}
	operators, _ := s.Condition.(map[string]any)
	for operator, keys := range operators {
		all, _ := keys.(map[string]any)
		for key, values := range all {
			named = named && r.condition(strings.ToLower(operator), r.keys[strings.ToLower(key)], anyTexts(values))
		}
	}
	return covered && named
}

func (r request) condition(operator string, got, want []string) bool {
	_, forAll := strings.CutPrefix(operator, "forallvalues:")
	operator = operator[strings.LastIndexByte(operator, ':')+1:]
	operator, ifExists := strings.CutSuffix(operator, "ifexists")
	operator, not := strings.CutPrefix(operator, "stringnot")
	operator = strings.TrimPrefix(operator, "string")
	if len(got) == 0 {
		return ifExists || forAll || not
	}
	matches := slices.ContainsFunc(want, func(w string) bool {
		if strings.Contains(w, "${") {
			w = strings.ReplaceAll(w, "${aws:SourceVpc}", strings.Join(r.keys["aws:sourcevpc"], ""))
		}
		switch operator {
		case "equals":
			return w == got[0]
		case "equalsignorecase":
			return strings.EqualFold(w, got[0])
		}
		return wild("", w, got[0])
	})
	return matches != not
}

func wild(flags, pattern, s string) bool {
	pattern = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(flags + "^" + pattern + "$").MatchString(s)
}

func anyTexts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			list = append(list, anyTexts(one)...)
		}
	}
	return list
}

// written turns bytes into a policy of the kinds that people write, and worse.
type written struct{ bytes []byte }

func (w *written) pick(from ...string) string {
	if len(w.bytes) == 0 {
		return from[0]
	}
	b := w.bytes[0]
	w.bytes = w.bytes[1:]
	return from[int(b)%len(from)]
}

func (w *written) policy() string {
	var list []string
	for len(list) == 0 || len(w.bytes) > 0 && len(list) < 5 {
		list = append(list, w.statement())
	}
	return statements(list...)
}

func (w *written) statement() string {
	s := `{"Effect":"` + w.pick("Allow", "Allow", "Deny") + `",` +
		w.pick(`"Action":"sts:AssumeRoleWithWebIdentity"`, `"Action":"sts:*"`, `"Action":["sts:TagSession","*"]`, `"Action":"STS:assumerolewith*"`, `"Action":"sts:AssumeRole"`,
			`"NotAction":"sts:AssumeRole"`, `"NotAction":["x","sts:assume*"]`) + "," +
		w.pick(`"Principal":{"Federated":"`+oidcProvider+`"}`, `"Principal":"*"`, `"Principal":{"AWS":"*"}`, `"Principal":{"Federated":"`+oidcProvider+`/x"}`, `"Principal":{"Service":"x"}`,
			`"Principal":{"AWS":["x","arn:aws:iam::`+account+`:root"],"Federated":["y"]}`, `"NotPrincipal":{"AWS":"x"}`)
	conditions := map[string]map[string][]string{}
	for range len(w.pick("", "", "1", "12", "123")) {
		operator := w.pick("", "", "ForAllValues:", "ForAnyValue:") + w.pick("StringEquals", "StringNotEquals", "StringLike", "StringNotLike", "stringequalsignorecase", "StringNotEqualsIgnoreCase") +
			w.pick("", "", "IfExists")
		if conditions[operator] == nil {
			conditions[operator] = map[string][]string{}
		}
		key := w.pick("issuer.example:sub", "issuer.example:aud", "ISSUER.example:sub", "other.example:sub", "aws:SourceVpc", "sts:RoleSessionName", "issuer.example:email")
		if slices.ContainsFunc([]string{"issuer.example:sub", "ISSUER.example:sub"}, func(k string) bool { return conditions[operator][k] != nil }) {
			continue // the same key twice
		}
		for range len(w.pick("1", "1", "12")) {
			conditions[operator][key] = append(conditions[operator][key], w.pick(subject, "sts.amazonaws.com", "system:serviceaccount:tenant-a:*", "*", "x", "System:serviceaccount:tenant-a:app",
				"system:serviceaccount:tenant-?:app", "${aws:SourceVpc}", "x*", "system:serviceaccount:tenant-a:app${aws:SourceVpc}"))
		}
	}
	if encoded, err := json.Marshal(conditions); err == nil && len(conditions) > 0 {
		s += `,"Condition":` + string(encoded)
	}
	return s + "}"
}

// FuzzPolicy holds the check against a plain evaluation with everything that the token may come with: what passes is always
// admitted, and what fails never.
func FuzzPolicy(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // to be the same at each run
	for range 400 {
		seed := make([]byte, 5+random.IntN(40))
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	issuer := testworld.SharedIssuer(f)
	sa := &corev1.ServiceAccount{}
	sa.Namespace, sa.Name = "tenant-a", "app"
	config := providerConfig("aws")
	var err error
	if config.Token, err = issuer.Sign(issuer.Claims(sa, []string{"sts.amazonaws.com"}, 1e12)); err != nil {
		f.Fatal(err)
	}
	for _, c := range doctor.Checks() {
		if c.ID != "claims" && c.ID != "trust-rule" {
			config.Skip = append(config.Skip, c.ID)
		}
	}
	every := requests()
	f.Fuzz(func(t *testing.T, seed []byte) {
		policy := (&written{seed}).policy()
		config := config
		config.Trust = &reading{trust: &doctor.Trust{Policy: []byte(policy)}}
		finding := doctor.Run(t.Context(), config).Of("trust-rule")
		admitted := 0
		for _, r := range every {
			if r.admits(policy) {
				admitted++
			}
		}
		if finding.Result == doctor.Pass && admitted != len(every) || finding.Result == doctor.Fail && admitted != 0 ||
			!slices.Contains([]doctor.Result{doctor.Pass, doctor.Fail, doctor.Unknown}, finding.Result) || strings.HasPrefix(finding.Message, "the check failed") {
			t.Errorf("%s is admitted in %d of %d cases: %+v", policy, admitted, len(every), finding)
		}
	})
}
