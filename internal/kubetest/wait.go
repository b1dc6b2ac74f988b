package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

// until asks again and again, since what the API server has stored takes effect when its own watches bring it.
func until(what string, done func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("within %s the API server %s: %w", patience, what, errOr(err, ctx.Err()))
		}
	}
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// waitReady waits until the API server has read what decides on requests, such as roles. It calls itself healthy before.
func (c *Cluster) waitReady() error {
	transport, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	return until("does not become ready", func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.issuer+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := transport.Do(req)
		if err != nil {
			return false, err
		}
		_ = resp.Body.Close() // the status is all that counts
		return resp.StatusCode == http.StatusOK, nil
	})
}

// Await returns when the API server allows what roles and bindings say that were created without User.
func (c *Cluster) Await(t testing.TB, allowed authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	if err := c.waitAllowed(allowed); err != nil {
		t.Fatal(err)
	}
}

// waitAllowed waits until the API server goes by a rule that it has stored.
func (c *Cluster) waitAllowed(spec authorizationv1.SubjectAccessReviewSpec) error {
	return until(fmt.Sprintf("does not allow %+v", spec), func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		err := c.client.Create(ctx, review)
		return review.Status.Allowed, err
	})
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
