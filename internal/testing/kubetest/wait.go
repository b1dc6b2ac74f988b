package kubetest

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Await returns when the API server allows what roles and bindings say that
// were created without User.
func (c *Cluster) Await(t testing.TB, allowed authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	if err := c.WaitAllowed(allowed); err != nil {
		t.Fatal(err)
	}
}

// anAccess returns something that a user may do by a rule.
func anAccess(user, namespace string, rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	if len(rule.NonResourceURLs) > 0 {
		return authorizationv1.SubjectAccessReviewSpec{User: user,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}}
	}
	resource, part, _ := strings.Cut(rule.Resources[0], "/")
	return authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: part,
		Name: append(slices.Clone(rule.ResourceNames), "")[0]}}
}
