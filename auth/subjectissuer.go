package auth

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// SubjectIssuer issues subject tokens in the API server's place: JWTs of an AWS
// role or JWT-SVIDs, for example. It belongs to the controller. Implementations
// are safe for concurrent use, and neither change nor keep their arguments
// beyond the call. They return an *Error if they know the Reason; any other
// error counts as [ErrUnavailable].
//
// The ServiceAccount is read on each call as usual, so deleting it ends access.
// Its annotations include the call's ([WithAnnotations]). It is nil for the
// controller's own identity.
type SubjectIssuer interface {
	// Key distinguishes the tokens of this issuer from other issuers' tokens.
	// The cache key adds cluster, namespace, name, UID, audiences, issuer and
	// subject. Key is not empty and never changes.
	Key() string

	// Subject states the claims that the token has to have. It runs on each
	// call, also on cache hits, before Policy.Authorize, which sees the answer.
	// So it has to be quick and uses no network.
	Subject(serviceAccount *corev1.ServiceAccount, opts *Options) (SubjectClaims, error)

	// Token returns a JWT with exactly the given audiences. It is called on a
	// cache miss only, as a part of the exchange. The library checks issuer,
	// subject, audiences and the claim exp before it sends the token anywhere.
	//
	// If expiry is not zero, no credential that is made of the token stays in
	// the cache for longer. Zero leaves the lifetime of the credential to the
	// service that issues it.
	Token(ctx context.Context, serviceAccount *corev1.ServiceAccount, audiences []string, opts *Options,
	) (jwt string, expiry time.Time, err error)
}

// SubjectClaims are the claims that a [SubjectIssuer] states for its token.
// They are inputs of the cache key.
type SubjectClaims struct {
	// Issuer is the claim iss. An empty one is not compared.
	Issuer string
	// Subject is the claim sub. Required.
	Subject string
	// Identity is the identity that the annotations ask for, if Subject does
	// not show it: the first role of a chain, for example.
	Identity string
}

// WithSubjectIssuer sets the issuer of the subject token. It goes with
// [WithServiceAccount]. Without a ServiceAccount, the issuer's token proves the
// controller's own identity, with the annotations of
// [WithControllerAnnotations]. The provider then does not look for credentials
// in its environment. It excludes [WithSubjectToken], [WithBoundObject] and
// [WithTokenLifetime]. Annotations that set the lifetime of Kubernetes tokens
// have no effect. Nil means the API server.
func WithSubjectIssuer(issuer SubjectIssuer) Option {
	return func(o *Options) { o.SubjectIssuer = issuer }
}

// WithControllerAnnotations sets the annotations of the controller's own
// identity with [WithSubjectIssuer], as a ServiceAccount has them: the client
// ID, the role. They count only in calls without a ServiceAccount. Never fill
// them in from what a tenant writes: the controller's token would become any
// identity that trusts the controller. The map is cloned.
func WithControllerAnnotations(annotations map[string]string) Option {
	annotations = maps.Clone(annotations)
	return func(o *Options) { o.ControllerAnnotations = annotations }
}

const opSubjectToken = "get subject token"

func (o *Options) checkSubjectIssuer() error {
	const option = "auth.WithSubjectIssuer"
	excludes := func(what, other string) error {
		return misconfigured("leave one out", "an issuer of subject tokens and %s exclude each other", what).
			About(option, other)
	}
	switch {
	case isNil(o.SubjectIssuer):
		return misconfigured("pass an issuer, or leave it out", "the issuer of subject tokens is a nil pointer").About(option)
	case o.SubjectToken != nil || o.SubjectServiceAccount != nil:
		return excludes("a token in hand", "auth.WithSubjectToken")
	case o.BoundObject != nil:
		return excludes("a bound object", "auth.WithBoundObject")
	case o.TokenLifetime != 0:
		return excludes("a lifetime of the ServiceAccount's token", "auth.WithTokenLifetime")
	}
	return nil
}

// sourceError removes the token from the error of a source. One without it is
// returned as it is, so that a back-off around it keeps its hint.
func sourceError(err error, jwt string) error {
	known := (*Error)(nil)
	if err == nil {
		return nil
	}
	cleaned := clean(err, jwt)
	shows := jwt != "" && strings.Contains(err.Error(), jwt)
	if errors.As(err, &known) && !shows && cleaned.Error() == known.Error() {
		return err
	}
	cleaned.Operation = cmp.Or(cleaned.Operation, opSubjectToken)
	return cleaned
}
