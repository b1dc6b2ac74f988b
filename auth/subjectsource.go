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

// SubjectSource issues subject tokens in the API server's place: JWTs of an AWS role or JWT-SVIDs, for example. It
// belongs to the controller. Implementations are safe for concurrent use, and neither change nor keep their arguments
// beyond the call. They return an *Error if they know the Reason; any other error counts as ErrUnavailable.
//
// The ServiceAccount is read on each call as usual, so deleting it ends access. Its annotations include those of
// WithAnnotations. It is nil for the controller's own identity.
type SubjectSource interface {
	// Key tells the tokens of this source from those of others, besides cluster, namespace, name, UID, audiences,
	// issuer and subject. It is not empty and never changes.
	Key() string

	// Subject returns the claims iss and sub that the token has to have. It runs on each call, also on cache hits,
	// before Policy.Authorize, which sees the subject. So it has to be quick and uses no network. An empty issuer is
	// not compared. An empty subject is refused.
	Subject(serviceAccount *corev1.ServiceAccount, opts *Options) (issuer, subject string, err error)

	// Token returns a JWT with exactly the given audiences. It is called on a cache miss only, as a part of the
	// exchange. The library checks issuer, subject, audiences and the claim exp before it sends the token anywhere.
	//
	// If expiry is not zero, no credential that is made of the token stays in the cache for longer. Zero leaves the
	// lifetime of the credential to the service that issues it.
	Token(ctx context.Context, serviceAccount *corev1.ServiceAccount, audiences []string, opts *Options,
	) (jwt string, expiry time.Time, err error)
}

// WithSubjectSource sets the source of the subject token. It goes with WithServiceAccount. Without a ServiceAccount,
// the controller's own identity is that of the source's token with the annotations of WithControllerAnnotations, and
// the provider does not look for credentials in its environment. It excludes WithSubjectToken, WithBoundObject and
// WithTokenLifetime. Annotations that set the lifetime of Kubernetes tokens have no effect. Nil is no source.
func WithSubjectSource(source SubjectSource) Option {
	return func(o *Options) { o.SubjectSource = source }
}

// WithControllerAnnotations sets the annotations of the controller's own identity with WithSubjectSource, as a
// ServiceAccount has them: the client ID, the role. They count only in calls without a ServiceAccount. Never fill
// them in from what a tenant writes: the controller's token would become any identity that trusts the controller. The
// map is cloned.
func WithControllerAnnotations(annotations map[string]string) Option {
	annotations = maps.Clone(annotations)
	return func(o *Options) { o.ControllerAnnotations = annotations }
}

const opSubjectToken = "get subject token"

func (o *Options) checkSubjectSource() error {
	const option = "auth.WithSubjectSource"
	excludes := func(what, other string) error {
		return misconfigured("leave one out", "a source of subject tokens and %s exclude each other", what).
			About(option, other)
	}
	switch {
	case isNil(o.SubjectSource):
		return misconfigured("pass a source, or leave it out", "the source of subject tokens is a nil pointer").About(option)
	case o.SubjectToken != nil || o.SubjectServiceAccount != nil:
		return excludes("a token in hand", "auth.WithSubjectToken")
	case o.BoundObject != nil:
		return excludes("a bound object", "auth.WithBoundObject")
	case o.TokenLifetime != 0:
		return excludes("a lifetime of the ServiceAccount's token", "auth.WithTokenLifetime")
	}
	return nil
}

// SubjectIdentifier is implemented by a SubjectSource whose token depends on more than its subject tells, such as the
// first role of a chain.
type SubjectIdentifier interface {
	// SubjectIdentity is asked on each call, with the arguments of Subject. The cache key has the answer, and
	// Policy.Authorize sees it.
	SubjectIdentity(serviceAccount *corev1.ServiceAccount, opts *Options) (string, error)
}

// sourceError removes the token from the error of a source. One without it is returned as it is, so that a back-off
// around it keeps its hint.
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
