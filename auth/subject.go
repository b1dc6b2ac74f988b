package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// SubjectTokenSource is where the Kubernetes token of a ServiceAccount comes from: the subject token in the words of
// RFC 8693. Implementations are safe for concurrent use and honour the context.
//
// Token returns a JWT with exactly the given audiences and the time at which it expires; for the zero time the claim exp
// counts. The library checks its audience, subject and expiry before sending it anywhere.
//
// A source passed with WithSubjectToken is asked on every call, also when the credential is cached, because only
// the token proves who is asking. A token that has expired is refused, whatever is cached. The source should return the same
// token while that is fresh, since a new one means a new exchange.
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
		e.Cause = CauseTokenFileForbidden
	}
	return e
}

// TokenRequest is the source that asks the API server for a token of a ServiceAccount. It is what WithServiceAccount
// uses; each call makes one request.
type TokenRequest struct {
	// Client needs the verb create on serviceaccounts/token.
	Client client.Client
	// ServiceAccount names the ServiceAccount. Its UID, if set, must be that of the living one.
	ServiceAccount *corev1.ServiceAccount
	// Lifetime is the lifetime to ask for, at least 10 minutes. Zero means an hour.
	Lifetime time.Duration
	// BoundObject optionally binds the token to an object's life.
	BoundObject *authenticationv1.BoundObjectReference
}

const (
	defaultTokenLifetime = time.Hour
	minTokenLifetime     = 10 * time.Minute      // the API server refuses less
	maxTokenLifetime     = 1<<32*time.Second - 1 // and more
)

const opCreateToken = "create ServiceAccount token"

// Token implements SubjectTokenSource.
func (r TokenRequest) Token(ctx context.Context, audiences []string) (string, time.Time, error) {
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
		e := unavailable("", "the API server's answer holds no token")
		e.Operation = opCreateToken
		return "", time.Time{}, e
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

func tokenRequestError(err error, sa *corev1.ServiceAccount) error {
	e := requestError(err, opCreateToken, fmt.Sprintf("create on serviceaccounts/token, resourceNames [%q],", sa.Name), sa.Namespace)
	switch {
	case apierrors.IsForbidden(err):
		e.Cause = CauseTokenRequestForbidden
		e.mayPass = true // an API server that is starting refuses every request until it has read the RBAC objects
	case apierrors.IsNotFound(err):
		e.Cause = CauseServiceAccountNotFound
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
		return nil, misconfigured("use a token of the cluster's ServiceAccount token issuer",
			"the subject token cannot be used: %v", err)
	}
	return claims, nil
}

// checkSubjectToken makes sure that a token is what was asked for before it is sent out.
func checkSubjectToken(token string, now time.Time, audiences []string, sa *corev1.ServiceAccount, policy *Policy) error {
	c, err := parseClaims(token)
	if err != nil {
		return err
	}
	if err := checkSubject(c, sa); err != nil {
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
			e.Cause = CauseAPIServerAudience
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
	e.Cause = CauseTokenExpired
	return e
}

// ownTokenFile is where the kubelet mounts a token for the API server into each pod.
const ownTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

// ownAudiences returns the audiences of the pod's own token: the API server accepts them, however it is configured. The file
// is read for each token that is checked, which costs little beside an exchange. Outside a pod there are none.
func (p *Policy) ownAudiences() []string {
	content, err := os.ReadFile(firstNonEmpty(p.ownTokenFile, ownTokenFile))
	if err != nil {
		return nil
	}
	c, err := jwt.Parse(strings.TrimSpace(string(content)))
	if err != nil {
		return nil
	}
	return c.Audience
}

// checkSubject compares the token's subject with the ServiceAccount, if there is one to compare with.
func checkSubject(c *jwt.Claims, sa *corev1.ServiceAccount) error {
	if sa == nil {
		return nil
	}
	want := "system:serviceaccount:" + sa.Namespace + ":" + sa.Name
	if c.Subject != want {
		return denied("check the source of the token", "the subject token is for %.300q, not for %q", c.Subject, want)
	}
	if uid := c.Kubernetes.ServiceAccount.UID; uid != "" && sa.UID != "" && uid != string(sa.UID) {
		return denied("request a new token: the ServiceAccount was re-created",
			"the subject token is for UID %.100q, the ServiceAccount has %q", uid, sa.UID)
	}
	return nil
}

// sameAudiences compares sets.
func sameAudiences(got, want []string) bool { return includes(got, want) && includes(want, got) }

func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
