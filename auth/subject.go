package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
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
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// SubjectTokenSource returns Kubernetes tokens of a ServiceAccount: subject
// tokens in the words of RFC 8693. Implementations are safe for concurrent use
// and honour the context.
//
// Token returns a JWT with exactly the given audiences and the time at which it
// expires; for the zero time the claim exp counts. The library checks its
// audience, subject and expiry before sending it anywhere.
//
// A source passed with [WithSubjectToken] is asked on every call, also when the
// credential is cached, because only the token proves the caller's identity. An
// expired token is refused, whatever is cached. The source should return the
// same token while that is fresh, since a new one means a new exchange.
type SubjectTokenSource interface {
	Token(ctx context.Context, audiences []string) (jwt string, expiry time.Time, err error)
}

// NewStaticTokenSource returns a source for a token that the caller already holds.
func NewStaticTokenSource(token string) SubjectTokenSource {
	return staticTokenSource{redact.New(strings.TrimSpace(token))}
}

type staticTokenSource struct{ token redact.Secret }

func (s staticTokenSource) Token(context.Context, []string) (string, time.Time, error) {
	token := s.token.Reveal()
	if token == "" {
		return "", time.Time{}, misconfigured("pass the ServiceAccount's token", "the subject token is empty")
	}
	claims, err := parseClaims(token)
	if err != nil {
		return "", time.Time{}, err
	}
	return token, claims.Expiry.Time, nil
}

// NewFileTokenSource returns a source that reads a token from a file, such as a projected volume, on each use: the
// kubelet replaces it long before it expires.
func NewFileTokenSource(path string) SubjectTokenSource { return fileTokenSource{path} }

type fileTokenSource struct{ path string }

func (s fileTokenSource) Token(ctx context.Context, audiences []string) (string, time.Time, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return "", time.Time{}, s.unreadable(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, jwt.MaxSize+1))
	if err != nil {
		return "", time.Time{}, s.unreadable(err)
	}
	if len(content) > jwt.MaxSize {
		return "", time.Time{}, misconfigured("name the file of a projected ServiceAccount token",
			"the token file %q is larger than %d bytes", s.path, jwt.MaxSize)
	}
	token, expiry, err := NewStaticTokenSource(string(content)).Token(ctx, audiences)
	if err != nil {
		return "", time.Time{}, misconfigured("name the file of a projected ServiceAccount token",
			"the token file %q holds no usable token: %v", s.path, err)
	}
	return token, expiry, nil
}

func (s fileTokenSource) unreadable(err error) error {
	e := misconfigured("mount the projected token, and set fsGroup if the file belongs to another user",
		"cannot read the token file %q: %v", s.path, err)
	e.Err = err
	if errors.Is(err, fs.ErrPermission) {
		e.Cause = provider.CauseTokenFileForbidden
	}
	return e
}

// TokenRequest is the source that asks the API server for tokens of a
// ServiceAccount. It returns the same token for the same audiences and renews
// it in the background once 75 to 80 % of its lifetime have passed, so pass the
// same TokenRequest to every call. Callers share a request that is in flight.
// If a renewal fails for now (ErrUnavailable, [ErrThrottled]), the old token is
// kept until shortly before it expires. [ErrMisconfigured] and [ErrDenied] drop
// it, except for a missing right of the client. Without a token, each call
// tries again.
//
// A call with [WithSubjectToken] reads the ServiceAccount with the Client each
// time, as one with [WithServiceAccount] does. A deleted or re-created
// ServiceAccount therefore gets no credential of the old one. The method Token
// alone does not read it.
//
// A TokenRequest is safe for concurrent use. It must not be copied, nor its
// fields changed, after its first use.
type TokenRequest struct {
	// Client needs the verbs get on serviceaccounts and create on serviceaccounts/token.
	Client KubernetesClient
	// ServiceAccount names the ServiceAccount. Its UID, if set, must be that of the living one.
	ServiceAccount *corev1.ServiceAccount
	// Lifetime is the lifetime to ask for, at least 10 minutes. Zero means an hour.
	Lifetime time.Duration
	// BoundObject optionally binds the token to an object's life.
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

// token is Token for a call that may know the UID of the ServiceAccount, and when
// a service refused a token.
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
		// The UID makes the API server refuse if the ServiceAccount was re-created since it was read.
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
	e := requestError(err, opCreateToken, fmt.Sprintf("create on serviceaccounts/token, resourceNames [%q],", sa.Name), sa.Namespace)
	switch {
	case apierrors.IsForbidden(err):
		e.Cause = provider.CauseTokenRequestForbidden
	case apierrors.IsNotFound(err):
		e.Cause = provider.CauseServiceAccountNotFound
	case apierrors.IsConflict(err):
		// It was re-created between our two requests; the next call reads the new one.
		e.Reason = ErrUnavailable
	}
	return e
}

// parseClaims reads the claims that a token makes.
func parseClaims(token string) (*jwt.Claims, error) {
	claims, err := jwt.Parse(token)
	if err != nil {
		return nil, misconfigured("use a JWT of the ServiceAccount's token issuer",
			"the subject token cannot be used: %v", err)
	}
	return claims, nil
}

// checkSubjectToken refuses a token that is not the requested one, before it is sent out.
func checkSubjectToken(token string, now time.Time, audiences []string, want *subjectClaims, policy *Policy) error {
	c, err := parseClaims(token)
	if err != nil {
		return err
	}
	if err := checkSubject(c, want); err != nil {
		return err
	}
	if !sameAudiences(c.Audience, audiences) {
		return denied("check the source of the token",
			"the subject token has the audiences %q instead of %q", c.Audience, audiences)
	}
	own := policy.ownAudiences()
	for _, a := range c.Audience {
		if a == c.Issuer || policy.isAPIServerAudience(a) || slices.Contains(own, a) {
			// API servers accept their issuer as audience unless told otherwise.
			e := denied("use an audience of the service that receives the token",
				"the subject token is good for the API server (audience %q), so it is not sent out", a)
			e.Cause = provider.CauseAPIServerAudience
			return e
		}
	}
	return checkExpiry(c.Expiry.Time, now)
}

func checkExpiry(expiry, now time.Time) error {
	if expiry.After(now) {
		return nil
	}
	e := unavailable("check that the clocks agree, and that the token is renewed", "the subject token has expired or has no usable expiry")
	e.Cause = provider.CauseTokenExpired
	return e
}

// ownTokenFile is where the kubelet mounts a token for the API server into each pod.
const ownTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

// ownAudiences returns the audiences of the pod's own token, which the API
// server accepts however it is configured. The file is read for each token that
// is checked, which costs little beside an exchange. Outside a pod there are
// none.
func (p *Policy) ownAudiences() []string {
	content, err := os.ReadFile(cmp.Or(p.ownTokenFile, ownTokenFile))
	if err != nil {
		return nil
	}
	c, err := jwt.Parse(strings.TrimSpace(string(content)))
	if err != nil {
		return nil
	}
	return c.Audience
}

// subjectClaims are the claims that a subject token has to have. The subject is required. An empty issuer or UID is not
// compared.
type subjectClaims struct{ issuer, subject, uid string }

// claimsOf returns the claims of the API server's tokens.
func claimsOf(sa *corev1.ServiceAccount) *subjectClaims {
	return &subjectClaims{subject: (&provider.Options{}).SubjectClaim(sa), uid: string(sa.UID)}
}

// checkSubject compares the token with the claims that it has to have, if they are known.
func checkSubject(c *jwt.Claims, want *subjectClaims) error {
	if want == nil {
		return nil
	}
	const remedy = "check the source of the token"
	if want.issuer != "" && c.Issuer != want.issuer {
		return denied(remedy, "the subject token is of the issuer %.300q, not of %q", c.Issuer, want.issuer)
	}
	if c.Subject != want.subject {
		return denied(remedy, "the subject token is for %.300q, not for %q", c.Subject, want.subject)
	}
	if uid := c.Kubernetes.ServiceAccount.UID; uid != "" && want.uid != "" && uid != want.uid {
		return denied("request a new token: the ServiceAccount was re-created",
			"the subject token is for UID %.100q, the ServiceAccount has %q", uid, want.uid)
	}
	return nil
}

// sameAudiences compares sets.
func sameAudiences(got, want []string) bool { return includes(got, want) && includes(want, got) }

func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
