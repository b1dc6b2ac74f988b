package hubadmin

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// MissingRules returns the rules that the caller lacks to accept or deny a cluster. The webhook of Open Cluster Management asks for accept
// in a group of its own. A hub may do without it, so that rule counts only if no other is missing.
func MissingRules(ctx context.Context, c client.Client, cluster string) (rules []rbacv1.PolicyRule) {
	for _, a := range []authorizationv1.ResourceAttributes{
		{Group: ocm.GroupVersion.Group, Resource: "managedclusters", Verb: "patch"},
		{Group: ocm.GroupVersion.Group, Resource: "managedclusters", Subresource: "accept", Verb: "update"},
		{Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "accept", Verb: "update"},
	} {
		a.Name = cluster
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		err := c.Create(ctx, review)
		if err != nil || review.Status.Allowed || a.Group != ocm.GroupVersion.Group && len(rules) > 0 {
			continue
		}
		resource := strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{a.Group}, Resources: []string{resource}, Verbs: []string{a.Verb}})
	}
	return rules
}
