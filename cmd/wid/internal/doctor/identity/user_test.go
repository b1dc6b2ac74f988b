package identity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// user is the user of a client, as its API server sees them.
type user struct {
	// name is empty if the API server refuses every request with 401.
	name   string
	groups []string
	// mayNot lists resources that the user must not create, such as "serviceaccounts/token", and "get serviceaccounts".
	mayNot []string
}

// asUser returns a client of the same API server for a user. It also answers SelfSubjectReviews.
func asUser(c client.WithWatch, u user) client.WithWatch {
	api := &reviewer{user: u}
	return interceptor.NewClient(c, interceptor.Funcs{Get: api.get, Create: api.create, SubResourceCreate: api.createSubResource})
}

type reviewer struct {
	user user
}

func (v *reviewer) may(resource string) bool { return !slices.Contains(v.user.mayNot, resource) }

func (v *reviewer) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if v.user.name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; (kind == "ServiceAccount" || kind == "") && !v.may("get serviceaccounts") {
		return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), key.Name, nil)
	}
	return c.Get(ctx, key, obj, opts...)
}

func (v *reviewer) create(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if v.user.name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
		review.Status.UserInfo = authenticationv1.UserInfo{Username: v.user.name, Groups: v.user.groups}
		return nil
	}
	return c.Create(ctx, obj, opts...)
}

func (v *reviewer) createSubResource(ctx context.Context, c client.Client, name string, obj, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	if !v.may("serviceaccounts/" + name) {
		return forbidden(v.user.name, obj)
	}
	return c.SubResource(name).Create(ctx, obj, sub, opts...)
}

// forbidden returns the error of an API server whose RBAC does not let a user create tokens of a ServiceAccount.
func forbidden(user string, sa client.Object) error {
	words := fmt.Sprintf(`User %q cannot create resource "serviceaccounts/token" in API group "" in the namespace %q`, user, sa.GetNamespace())
	return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), sa.GetName(), errors.New(words))
}
