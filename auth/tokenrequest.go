package auth

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
)

// TokenRequest is the source that asks the API server for tokens of a
// ServiceAccount. It returns the same token for the same audiences, so pass the
// same TokenRequest to every call. It renews a token in the background once 75
// to 80 % of its lifetime have passed. Callers share a request that is in
// flight. If a renewal fails for now (ErrUnavailable, [ErrThrottled]), the old
// token is kept until shortly before it expires. [ErrMisconfigured] and
// [ErrDenied] drop it, except for a missing right of the client. Without a
// token, each call tries again.
//
// A call with [WithSubjectToken] reads the ServiceAccount with the Client each
// time, as one with [WithServiceAccount] does. A deleted or re-created
// ServiceAccount therefore gets no credential of the old one. The method Token
// alone does not read it.
//
// A TokenRequest is safe for concurrent use. It must not be copied, nor its
// fields changed, after its first use.
type TokenRequest struct {
	// Client needs the verbs get on serviceaccounts and create on
	// serviceaccounts/token.
	Client KubernetesClient
	// ServiceAccount names the ServiceAccount. Its UID, if set, must match the
	// existing one.
	ServiceAccount *corev1.ServiceAccount
	// Lifetime is the lifetime to ask for, at least 10 minutes. Zero means an
	// hour.
	Lifetime time.Duration
	// BoundObject optionally binds the token to an object: deleting the object
	// invalidates the token.
	BoundObject *authenticationv1.BoundObjectReference

	refused atomic.Pointer[time.Time]
	once    sync.Once
	tokens  *cache.TokenCache // by the UID that the caller knows, and by audiences
}

// serviceAccountToken is a token of a TokenRequest in its cache.
type serviceAccountToken struct {
	jwt    redact.Secret
	expiry time.Time
}

// GetDuration implements Token.
func (t *serviceAccountToken) GetDuration() time.Duration { return time.Until(t.expiry) }

// Invalidate replaces all tokens of the [TokenRequest], as [WithInvalidBefore]
// of this moment does. Call it when a service has refused one.
func (r *TokenRequest) Invalidate() {
	now := time.Now()
	r.refused.Store(&now)
}

// Token implements [SubjectTokenSource]. A caller leaves when its context ends;
// the request goes on for the others.
func (r *TokenRequest) Token(ctx context.Context, audiences []string) (string, time.Time, error) {
	return r.token(ctx, audiences, "", time.Time{})
}

// token is Token for a call that may know the UID of the ServiceAccount, and
// when a service refused a token.
func (r *TokenRequest) token(ctx context.Context, audiences []string, uid types.UID, invalidBefore time.Time,
) (string, time.Time, error) {
	if err := r.check(); err != nil {
		return "", time.Time{}, err
	}
	if t := r.refused.Load(); t != nil && t.After(invalidBefore) {
		invalidBefore = *t
	}
	r.once.Do(func() { // these options are valid
		r.tokens, _ = cache.NewTokenCache(maxHeldTokens, cache.WithoutMaxDuration(),
			cache.WithMaxExchangesPerTenant(maxHeldTokens))
	})
	k := &keyBuilder{}
	k.Add("uid", string(uid))
	k.AddList("audiences", audiences)
	audiences = slices.Clone(audiences)
	token, _, err := r.tokens.GetOrSet(ctx, cache.Request{
		Key: k.sum(), Patient: true, Insistent: true, InvalidBefore: invalidBefore, Classify: classifyTokenRequest,
		Mint: func(ctx context.Context, _ []Token) (cache.Minted, error) {
			jwt, expiry, err := r.request(ctx, audiences)
			return cache.Minted{Token: &serviceAccountToken{redact.New(jwt), expiry}}, err
		},
	})
	held, err := as[*serviceAccountToken](token, err)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", time.Time{}, kubernetesError(ctx.Err(), opCreateToken)
	case err != nil:
		return "", time.Time{}, err
	}
	return held.jwt.Reveal(), held.expiry, nil
}

// classifyTokenRequest drops a token that the API server would not issue again,
// also if the ServiceAccount has another UID.
func classifyTokenRequest(err error) cache.Failure {
	f := classify(err)
	f.Permanent = f.Permanent || f.Refused || apierrors.IsConflict(err)
	return f
}

func (r *TokenRequest) check() error {
	if r == nil || isNil(r.Client) || r.ServiceAccount == nil {
		return misconfigured("set both fields", "the TokenRequest has no Client or no ServiceAccount")
	}
	return nil
}

const (
	defaultTokenLifetime = time.Hour
	minTokenLifetime     = 10 * time.Minute      // the API server refuses less
	maxTokenLifetime     = 1<<32*time.Second - 1 // and more
	maxHeldTokens        = 1024                  // of a TokenRequest
)

const opCreateToken = "create ServiceAccount token"

// request makes one request and keeps nothing.
func (r *TokenRequest) request(ctx context.Context, audiences []string) (string, time.Time, error) {
	lifetime := r.Lifetime
	if lifetime == 0 {
		lifetime = defaultTokenLifetime
	}
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{
		// The UID makes the API server refuse if the ServiceAccount was
		// re-created since it was read.
		ObjectMeta: metav1.ObjectMeta{UID: r.ServiceAccount.UID},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: &seconds,
			BoundObjectRef:    r.BoundObject,
		},
	}
	subject := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: r.ServiceAccount.Name, Namespace: r.ServiceAccount.Namespace, UID: r.ServiceAccount.UID}}
	if err := r.Client.SubResource("token").Create(ctx, subject, request); err != nil {
		return "", time.Time{}, tokenRequestError(err, subject)
	}
	if request.Status.Token == "" {
		return "", time.Time{}, &Error{Operation: opCreateToken, Reason: ErrUnavailable,
			Message: "the API server's answer holds no token"}
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

func tokenRequestError(err error, sa *corev1.ServiceAccount) error {
	e := requestError(err, opCreateToken, fmt.Sprintf("create on serviceaccounts/token, resourceNames [%q],", sa.Name),
		sa.Namespace)
	switch {
	case apierrors.IsForbidden(err):
		e.Cause = provider.CauseTokenRequestForbidden
	case apierrors.IsNotFound(err):
		e.Cause = provider.CauseServiceAccountNotFound
	case apierrors.IsConflict(err):
		// It was re-created between our two requests; the next call reads the
		// new one.
		e.Reason = ErrUnavailable
	}
	return e
}
