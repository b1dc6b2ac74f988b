package identity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth/authtest"
)

// user is the user of a client, as its API server sees them.
type user struct {
	// name is empty if the API server refuses every request with 401.
	name   string
	groups []string
	// mayNot lists resources that the user must not create, such as "tokenreviews" and "serviceaccounts/token", and "get serviceaccounts".
	mayNot []string
	// webhook are the variables that a webhook adds to new pods.
	webhook []corev1.EnvVar
	// reviewError is the error of each TokenReview. Empty: the review accepts tokens of the issuer.
	reviewError string
}

// asUser returns a client of the same API server for a user. It also answers SelfSubjectReviews, SelfSubjectAccessReviews of
// the right to create, and TokenReviews, which compare issuer, signature and expiry.
func asUser(issuer *authtest.Issuer, c client.WithWatch, u user) client.WithWatch {
	api := &reviewer{issuer: issuer, user: u}
	return interceptor.NewClient(c, interceptor.Funcs{Get: api.get, Create: api.create, SubResourceCreate: api.createSubResource})
}

type reviewer struct {
	issuer *authtest.Issuer
	user   user
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
	switch review := obj.(type) {
	case *corev1.Pod:
		if !v.may("pods") {
			return apierrors.NewForbidden(corev1.Resource("pods"), review.Name, nil)
		}
		review.Spec.Containers[0].Env = append(review.Spec.Containers[0].Env, v.user.webhook...)
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = authenticationv1.UserInfo{Username: v.user.name, Groups: v.user.groups}
		return nil
	case *authorizationv1.SelfSubjectAccessReview:
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = a != nil && v.may(a.Resource+"/"+a.Subresource)
		return nil
	case *authenticationv1.TokenReview:
		if !v.may("tokenreviews") {
			return apierrors.NewForbidden(authenticationv1.Resource("tokenreviews"), "", nil)
		}
		v.review(review)
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

// review answers with the texts of Kubernetes.
func (v *reviewer) review(r *authenticationv1.TokenReview) {
	claims, err := v.check(r)
	if err != "" {
		r.Status = authenticationv1.TokenReviewStatus{Error: err}
		return
	}
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences,
		User: authenticationv1.UserInfo{Username: claims.Subject}}
}

func (v *reviewer) check(r *authenticationv1.TokenReview) (claims jwt.Claims, refusal string) {
	if v.user.reviewError != "" {
		return claims, v.user.reviewError
	}
	token, err := jwt.ParseSigned(r.Spec.Token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil || claims.Issuer != v.issuer.URL() {
		return claims, "invalid bearer token"
	}
	keys := v.keys()
	found := keys.Key(token.Headers[0].KeyID)
	if len(found) == 0 || token.Claims(found[0].Key, &claims) != nil {
		return claims, "[invalid bearer token, invalid signature, no keys found]"
	}
	if claims.Expiry != nil && !time.Now().Before(claims.Expiry.Time()) {
		return claims, "[invalid bearer token, service account token has expired]"
	}
	return claims, ""
}

// keys returns none if the issuer does not serve them.
func (v *reviewer) keys() (keys jose.JSONWebKeySet) {
	resp, err := v.issuer.HTTPClient().Get(v.issuer.URL() + "/openid/v1/jwks") //nolint:noctx // in memory
	if err != nil || resp.StatusCode != http.StatusOK {
		return keys
	}
	defer resp.Body.Close() //nolint:errcheck // in memory
	_ = json.NewDecoder(resp.Body).Decode(&keys)
	return keys
}
