package auth

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cache"
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
	return &Error{Reason: ErrMisconfigured, Err: err,
		Message: fmt.Sprintf("cannot read the token file %q: %v", s.path, err),
		Remedy:  "mount the projected token, and set fsGroup if the file belongs to another user"}
}

// TokenRequest is the source that asks the API server for tokens of a ServiceAccount. It returns the same token for the same
// audiences until 80 % of the token's lifetime have passed, so pass the same TokenRequest to every call. Callers share a request
// that is in flight. A ServiceAccount that is deleted or re-created meanwhile takes effect with the next request;
// WithServiceAccount, which reads the ServiceAccount on every call, takes effect at once.
//
// A TokenRequest is safe for concurrent use. It must not be copied, nor its fields changed, after its first use.
type TokenRequest struct {
	// Client needs the verb create on serviceaccounts/token.
	Client KubernetesClient
	// ServiceAccount names the ServiceAccount. Its UID, if set, must be that of the living one.
	ServiceAccount *corev1.ServiceAccount
	// Lifetime is the lifetime to ask for, at least 10 minutes. Zero means an hour.
	Lifetime time.Duration
	// BoundObject optionally binds the token to an object's life.
	BoundObject *authenticationv1.BoundObjectReference

	mu      sync.Mutex
	flights map[string]*tokenFlight // by audiences
}

// tokenFlight is one request, and its token once done is closed.
type tokenFlight struct {
	done    chan struct{}
	running bool
	jwt     redact.Secret
	expiry  time.Time
	renew   time.Time // on the wall clock, because a suspended machine stops the monotonic one
	err     error
}

// Token implements SubjectTokenSource. A caller leaves when its context ends; the request goes on for the others.
func (r *TokenRequest) Token(ctx context.Context, audiences []string) (string, time.Time, error) {
	f := r.flight(ctx, audiences)
	select {
	case <-f.done:
		return f.jwt.Reveal(), f.expiry, f.err
	case <-ctx.Done():
		return "", time.Time{}, kubernetesError(ctx.Err(), opCreateToken)
	}
}

// flight returns the request for the audiences that is in flight or whose token is fresh, else a new one.
func (r *TokenRequest) flight(ctx context.Context, audiences []string) *tokenFlight {
	key, now := fmt.Sprintf("%q", audiences), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.flights, func(_ string, f *tokenFlight) bool { return !f.running && !now.Before(f.renew) })
	if f := r.flights[key]; f != nil {
		return f
	}
	if r.flights == nil {
		r.flights = map[string]*tokenFlight{}
	}
	f := &tokenFlight{done: make(chan struct{}), running: true}
	r.flights[key] = f
	go r.run(context.WithoutCancel(ctx), f, slices.Clone(audiences))
	return f
}

func (r *TokenRequest) run(ctx context.Context, f *tokenFlight, audiences []string) {
	ctx, stop := context.WithTimeout(ctx, tokenRequestTimeout)
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			f.err = cache.NewPanicError(p)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now().Round(0)
		f.running, f.renew = false, now.Add(f.expiry.Sub(now)/5*4)
		close(f.done)
	}()
	token, expiry, err := r.request(ctx, audiences)
	f.jwt, f.expiry, f.err = redact.New(token), expiry, err
}

const (
	defaultTokenLifetime = time.Hour
	minTokenLifetime     = 10 * time.Minute      // the API server refuses less
	maxTokenLifetime     = 1<<32*time.Second - 1 // and more
	tokenRequestTimeout  = 30 * time.Second
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
	e := kubernetesError(err, opCreateToken)
	switch {
	case apierrors.IsForbidden(err):
		// An API server that is starting refuses everyone until it has read the RBAC objects.
		e.mayPass = true
		e.Remedy = fmt.Sprintf("grant the controller the verb create on serviceaccounts/token, resourceNames [%q], in namespace %q",
			sa.Name, sa.Namespace)
	case apierrors.IsNotFound(err):
		e.Remedy = "create it, or correct the name"
	case apierrors.IsConflict(err):
		// It was re-created between our two requests; the next call reads the new one.
		e.Reason = ErrUnavailable
	}
	return e
}

// kubernetesError classifies an answer of the API server. Its message names users, objects and rules, never tokens.
func kubernetesError(err error, operation string) *Error {
	e := &Error{Operation: operation, Reason: ErrUnavailable, Message: foreignMessage(err), Err: err}
	if status, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // clients return Status errors bare
		e.StatusCode = int(status.Status().Code)
		e.Code = string(status.Status().Reason)
	}
	switch {
	case apierrors.IsForbidden(err):
		e.Reason = ErrDenied
	case apierrors.IsUnauthorized(err):
		// It is the controller's own credential that was refused; the ServiceAccount has not been judged.
		e.Remedy = "check the controller's own kubeconfig or ServiceAccount token"
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		e.Reason = ErrMisconfigured
	case apierrors.IsTooManyRequests(err):
		e.Reason = ErrThrottled
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.Wait = time.Duration(seconds) * time.Second
	}
	return e
}
