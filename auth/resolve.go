package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
)

// resolved is a call whose options, Policy and ServiceAccount have been
// checked. Only resolve writes to it. Nothing does afterwards, because plans
// and exchanges, which may outlive the call, share it.
type resolved struct {
	operation string
	provider  Provider
	name      string // of the provider
	opts      Options
	product   *product // nil for an access token

	// account is the subject, with the caller's annotations. It is nil for the
	// controller's own identity without a SubjectIssuer, which needs no subject
	// token. The fields below are empty then.
	account         *corev1.ServiceAccount
	identity        string
	audiences       []string
	lifetime        time.Duration
	subjectIdentity string        // of the SubjectIssuer
	jwt             redact.Secret // of the caller's own source

	// Memory of a hit, which the next hit reuses.
	scratch [512]byte // of the key; a longer one gets memory of its own
	builder keyBuilder
	read    corev1.ServiceAccount
}

// resolve checks everything that a cached credential depends on too. It uses
// the network only to read the ServiceAccount and the caller's own token.
func (s *resolved) resolve(ctx context.Context, derive derivation) (err error) {
	if s.provider == nil {
		return misconfigured("pass a provider, or pick one from a ProviderSet", "the provider is nil")
	}
	s.name = s.provider.GetName()
	if err = s.opts.resolve(); err != nil {
		return err
	}
	if derive != nil {
		if err = s.resolveProduct(derive); err != nil {
			return err
		}
	}
	if err = validateOptions(s.provider, &s.opts.Options); err != nil {
		return err
	}
	if err = s.opts.checkOwner(); err != nil {
		return err
	}
	account, err := s.opts.readSubject(ctx, &s.read)
	if err != nil {
		return err
	}
	if account != nil {
		s.account = account
		if err = s.inspect(ctx); err != nil {
			return err
		}
	}
	if err = s.authorize(ctx); err != nil {
		return err
	}
	if s.opts.SubjectToken != nil {
		s.jwt, err = s.callersToken(ctx)
	}
	return err
}

// resolveProduct merges the options of a single access token into the call's,
// so that the provider validates both at once.
func (s *resolved) resolveProduct(derive derivation) (err error) {
	if s.product, err = derive(s.provider, &s.opts); err != nil {
		return err
	}
	if lists := s.product.lists; len(lists) == 1 {
		s.opts.applyToAccessToken(lists[0])
		lists[0] = nil
	}
	return nil
}

func validateOptions(p Provider, o *provider.Options) error {
	if v, ok := p.(provider.OptionsValidator); ok {
		return v.ValidateOptions(o)
	}
	if o.STSEndpoint != "" {
		return misconfigured("leave it out", "the provider accepts no STS endpoint").About("auth.WithSTSEndpoint")
	}
	return nil
}

// checkOwner skips only callers that hold a token of the ServiceAccount and act
// for no object. A TokenRequest uses the controller's own right to make tokens.
func (o *Options) checkOwner() error {
	owner := o.owner()
	if o.IsOwnIdentity() || o.TokenInHand && *owner == (cache.InvolvedObject{}) {
		return nil
	}
	return o.Policy.checkNamespace(owner, o.subject())
}

// subject names the ServiceAccount. It is empty for the controller's own
// identity.
func (o *Options) subject() client.ObjectKey {
	switch {
	case o.ServiceAccount != nil:
		return *o.ServiceAccount
	case o.SubjectServiceAccount != nil:
		return client.ObjectKeyFromObject(o.SubjectServiceAccount)
	}
	return client.ObjectKey{}
}

// readSubject returns the subject with the caller's annotations, and nil for
// the controller's own identity. into is memory for a ServiceAccount that is
// read.
func (o *Options) readSubject(ctx context.Context, into *corev1.ServiceAccount) (sa *corev1.ServiceAccount, err error) {
	switch {
	case o.SubjectServiceAccount != nil:
		given := *o.SubjectServiceAccount
		sa = &given
		err = o.checkTokenRequest(ctx, sa)
	case o.ServiceAccount != nil:
		sa = into
		err = o.readCurrent(ctx, o.Client, sa)
		// The provider sees the requested names, whatever the reader filled in.
		sa.Name, sa.Namespace = o.ServiceAccount.Name, o.ServiceAccount.Namespace
	case o.SubjectIssuer != nil:
		sa = &corev1.ServiceAccount{}
		sa.Annotations = o.ControllerAnnotations
	default:
		return nil, nil
	}
	if len(o.Annotations) > 0 { // never written to the ServiceAccount's own map, which may be an informer's
		annotations := make(map[string]string, len(sa.Annotations)+len(o.Annotations))
		maps.Copy(annotations, sa.Annotations)
		maps.Copy(annotations, o.Annotations)
		sa.Annotations = annotations
	}
	return sa, err
}

// checkTokenRequest compares the ServiceAccount of a TokenRequest with the
// current one. The tokens of other sources prove it themselves.
func (o *Options) checkTokenRequest(ctx context.Context, sa *corev1.ServiceAccount) error {
	r, ok := o.SubjectToken.(*TokenRequest)
	if !ok {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	current := &corev1.ServiceAccount{}
	if err := o.readCurrent(ctx, r.Client, current); err != nil {
		return err
	}
	for _, uid := range []types.UID{sa.UID, r.ServiceAccount.UID} {
		if uid != "" && uid != current.UID {
			return denied("pass the ServiceAccount as it is now",
				"the ServiceAccount was re-created: its UID is %q instead of %q", current.UID, uid)
		}
	}
	sa.UID = current.UID // in the key of tokens and credentials
	return nil
}

// readCurrent reads the ServiceAccount that the options name.
func (o *Options) readCurrent(ctx context.Context, c KubernetesClient, sa *corev1.ServiceAccount) error {
	if err := c.Get(ctx, o.subject(), sa); err != nil {
		return o.readError(err)
	}
	if sa.DeletionTimestamp != nil {
		return misconfigured("create it again, or name another one", "it is being deleted")
	}
	return nil
}

func (o *Options) readError(err error) error {
	e := requestError(err, "read ServiceAccount", "get on serviceaccounts", o.subject().Namespace)
	if apierrors.IsNotFound(err) {
		e.Cause = provider.CauseServiceAccountNotFound
		if d := o.defaulted; d.name != "" {
			e.Message = fmt.Sprintf("the controller's default ServiceAccount for %s: %s", d.purpose, e.Message)
			e.Remedy, e.Option = "create it, name another one in the object, or correct the default", d.option
		}
	}
	return e
}

// inspect asks the provider for the identity and audiences of the annotations.
func (s *resolved) inspect(ctx context.Context) (err error) {
	if s.identity, err = s.provider.GetIdentity(s.account, &s.opts.Options); err != nil {
		return err
	}
	s.opts.Identity = s.identity
	if s.audiences = s.opts.Audiences; len(s.audiences) == 0 {
		if s.audiences, err = s.provider.GetAudiences(ctx, s.account, &s.opts.Options); err != nil {
			return err
		}
	}
	if err = s.opts.Policy.checkAudiences(s.audiences); err != nil {
		return err
	}
	if s.opts.SubjectIssuer != nil {
		return s.stateSubject()
	}
	s.lifetime = s.opts.TokenLifetime
	if p, ok := s.provider.(provider.TokenLifetimeProvider); ok && s.lifetime == 0 {
		if s.lifetime, err = p.GetTokenLifetime(s.account, &s.opts.Options); err != nil {
			return err
		}
	}
	return checkLifetime(s.lifetime)
}

func (s *resolved) authorize(ctx context.Context) error {
	if s.opts.Policy.Authorize == nil {
		return nil
	}
	request := AuthorizeRequest{
		Provider:       s.name,
		Owner:          *s.opts.owner(),
		ClusterID:      s.opts.ClusterID,
		ServiceAccount: s.opts.subject(),
		Annotations:    s.opts.Annotations,
		Subject:        s.opts.TokenSubject, SubjectIdentity: s.subjectIdentity,
		Identity:  s.identity,
		Audiences: s.audiences,
	}
	if p, ok := s.provider.(provider.ChainedTokenProvider); ok {
		request.Chain = p.GetChain(&s.opts.Options)
	}
	err := s.opts.Policy.Authorize(ctx, request)
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Reason: ErrDenied, Message: "the controller's policy refuses: " + redact.Text(err.Error()), Err: err}
}

// sourceAccount is nil for the controller's own identity.
func (s *resolved) issuersAccount() *corev1.ServiceAccount {
	if s.opts.IsOwnIdentity() {
		return nil
	}
	return s.account
}

// stateSubject asks the issuer which claims its token has to have.
func (s *resolved) stateSubject() error {
	issuer := s.opts.SubjectIssuer
	claims, err := issuer.Subject(s.issuersAccount(), &s.opts)
	if err == nil && (claims.Subject == "" || issuer.Key() == "") {
		err = misconfigured("have the issuer return both", "the issuer of subject tokens has no key, or states no subject")
	}
	s.opts.TokenIssuer, s.opts.TokenSubject, s.subjectIdentity = claims.Issuer, claims.Subject, claims.Identity
	return err
}

// callersToken asks the caller's own source. A TokenRequest also learns the UID
// and which of its tokens were refused.
func (s *resolved) callersToken(ctx context.Context) (redact.Secret, error) {
	ask := s.opts.SubjectToken.Token
	if r, ok := s.opts.SubjectToken.(*TokenRequest); ok {
		ask = func(ctx context.Context, audiences []string) (string, time.Time, error) {
			return r.token(ctx, audiences, s.account.UID, s.opts.invalidBefore)
		}
	}
	jwt, expiry, err := ask(ctx, s.audiences)
	switch {
	case err != nil:
		return redact.Secret{}, err
	case jwt == "":
		return redact.Secret{}, misconfigured("have the source return a token or an error",
			"the source of subject tokens returned none")
	case expiry.IsZero():
		claims, err := parseClaims(jwt)
		if err != nil {
			return redact.Secret{}, err
		}
		expiry = claims.Expiry.Time
	}
	return redact.New(jwt), checkExpiry(expiry, time.Now())
}

func (s *resolved) describe(err error) error {
	return describe(err, s.name, s.operation, s.opts.subject())
}

// isNil also finds a nil pointer in an interface, which providers return by
// mistake.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}
