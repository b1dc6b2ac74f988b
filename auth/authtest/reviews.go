package authtest

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// User is who a client of an API server is, and what that server answers to questions about users.
type User struct {
	// Name is the user's name. Empty: the API server refuses every request with 401.
	Name string
	// Groups are those of the user.
	Groups []string
	// MayNot are resources that the user has no right to create, such as "tokenreviews" and "serviceaccounts/token".
	MayNot []string
	// MaxTokenLifetime shortens the tokens that are created. 0: as long as asked for.
	MaxTokenLifetime time.Duration
	// ReviewError is the error that each TokenReview ends with. Empty: tokens of the issuer are accepted.
	ReviewError string
}

// As returns a client of the same API server for a user: it answers SelfSubjectReviews, SelfSubjectAccessReviews and
// TokenReviews in addition. Of access reviews it knows the right to create what User.MayNot lists; TokenReviews compare
// issuer, signature, end and audiences.
func (i *Issuer) As(c client.WithWatch, user User) client.WithWatch {
	api := &reviewer{issuer: i, user: user}
	return interceptor.NewClient(c, interceptor.Funcs{Get: api.get, Create: api.create, SubResourceCreate: api.createSubResource})
}

type reviewer struct {
	issuer *Issuer
	user   User
}

func (v *reviewer) may(resource string) bool {
	for _, r := range v.user.MayNot {
		if r == resource {
			return false
		}
	}
	return true
}

func (v *reviewer) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if v.user.Name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	return c.Get(ctx, key, obj, opts...)
}

func (v *reviewer) create(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if v.user.Name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	switch review := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = authenticationv1.UserInfo{Username: v.user.Name, Groups: v.user.Groups}
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
		return Forbidden(v.user.Name, client.ObjectKeyFromObject(obj))
	}
	if request, ok := sub.(*authenticationv1.TokenRequest); ok && v.user.MaxTokenLifetime > 0 {
		most := int64(v.user.MaxTokenLifetime / time.Second)
		if s := request.Spec.ExpirationSeconds; s == nil || *s > most {
			request.Spec.ExpirationSeconds = &most
		}
	}
	return c.SubResource(name).Create(ctx, obj, sub, opts...)
}

// review judges a token with the texts of Kubernetes.
func (v *reviewer) review(r *authenticationv1.TokenReview) {
	claims, err := v.judge(r)
	if err != "" {
		r.Status = authenticationv1.TokenReviewStatus{Error: err}
		return
	}
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences,
		User: authenticationv1.UserInfo{Username: claims.Subject}}
}

func (v *reviewer) judge(r *authenticationv1.TokenReview) (claims jwt.Claims, refusal string) {
	if v.user.ReviewError != "" {
		return claims, v.user.ReviewError
	}
	token, err := jwt.ParseSigned(r.Spec.Token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil || claims.Issuer != v.issuer.url {
		return claims, "invalid bearer token"
	}
	keys := v.issuer.keys()
	found := keys.Key(token.Headers[0].KeyID)
	if len(found) == 0 || token.Claims(found[0].Key, &claims) != nil {
		return claims, "[invalid bearer token, invalid signature, no keys found]"
	}
	if claims.Expiry != nil && !v.issuer.now().Before(claims.Expiry.Time()) {
		return claims, "[invalid bearer token, service account token has expired]"
	}
	return claims, ""
}
