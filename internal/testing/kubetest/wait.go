package kubetest

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Await returns when the API server allows what roles and bindings say that were created without User.
func (c *Cluster) Await(t testing.TB, allowed authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	if err := c.WaitAllowed(allowed); err != nil {
		t.Fatal(err)
	}
}

// accesses are all that a user may do by his rules.
func accesses(user, namespace string, rules []rbacv1.PolicyRule) (all []authorizationv1.SubjectAccessReviewSpec) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, authorizationv1.SubjectAccessReviewSpec{User: user,
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb}})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range namesOf(rule) {
						all = append(all, accessTo(user, namespace, verb, group, resource, name))
					}
				}
			}
		}
	}
	return all
}

func namesOf(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}

func accessTo(user, namespace, verb, group, resource, name string) authorizationv1.SubjectAccessReviewSpec {
	resource, part, _ := strings.Cut(resource, "/")
	return authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: part, Name: name}}
}
