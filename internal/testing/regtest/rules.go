package regtest

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// RulesOf returns the rules of a Role or ClusterRole in manifests.
func RulesOf(t testing.TB, manifests, name string) []rbacv1.PolicyRule {
	t.Helper()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		role := &rbacv1.ClusterRole{}
		Must(t, yaml.Unmarshal([]byte(document), role))
		if strings.HasSuffix(role.Kind, "Role") && role.Name == name {
			return role.Rules
		}
	}
	t.Fatalf("the manifests lack the role %q", name)
	return nil
}

// VerbsOf returns rules with one verb each.
func VerbsOf(rules []rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			one := *rule.DeepCopy()
			one.Verbs = []string{verb}
			all = append(all, one)
		}
	}
	return all
}
