package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
)

const opAccessToken = "get access token"

// GetAccessToken returns a credential for the provider's services: for the ServiceAccount that the options name, or
// for the controller's own identity if they name none. The type of the Token is the provider's.
//
//  1. The options are resolved and checked before any network call.
//  2. Without a ServiceAccount, the credential is the controller's own.
//  3. The ServiceAccount is read, also if the credential is cached. Deleting, re-creating or re-annotating it takes effect as soon
//     as the client reads the change: at once with a direct client, after the informer with a manager's client.
//  4. Audiences and identity come from the provider and the annotations, and the Policy checks them.
//  5. The cache is asked, with a key of everything that shapes the credential.
//  6. Otherwise a token of the ServiceAccount is requested, checked, and exchanged at the provider. The result is cached.
//
// With WithSubjectSource, the source issues the token in step 6, also for the controller's own identity.
//
// Without a cache every call makes an exchange. With one, simultaneous calls share an exchange. A call that gives up
// because its context ends fails none of the others.
//
// Errors hold an *Error; its Reason says what to do next. GetAccessToken is safe for concurrent use.
func GetAccessToken(ctx context.Context, provider Provider, opts ...Option) (token Token, err error) {
	c := beginCall(provider, opAccessToken, opts)
	defer c.end(&token, &err)
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	return c.accessToken(ctx)
}

// accessToken is steps 5 and 6 of GetAccessToken.
func (c *call) accessToken(ctx context.Context) (Token, error) {
	jwt, err := c.addAccessTokenKey(ctx)
	if err != nil {
		return nil, err
	}
	return c.cached(ctx, jwt)
}

// call is one call of a Get function. Its stages write what the next ones read: beginCall what is asked, prepare the rest of the request,
// addAccessTokenKey and derivation.addKey the key. From beginExchange on the call belongs to its exchange, which other callers share
// and which may outlive this one: then the caller only reads, and the exchange writes its own fields.
type call struct {
	request
	key keyBuilder

	// This block serves credentials that are derived from access tokens.
	derivation derivation          // nil for an access token
	input      string              // from ParseArtifactRepository or ParseGitRepository, or provider.ClusterAccess.CacheKey
	lists      [][]provider.Option // one list for each access token
	source     *clusterSource      // keeps the credential if there is no cache

	// fresh marks a call for an access token that another credential is made of.
	fresh bool

	exchange
}

// request is what a call asks for: its options and what was found out about the ServiceAccount. It has no pointer into itself, so a copy
// stands on its own.
type request struct {
	operation string
	provider  Provider
	opts      Options

	// named reports whether there is a ServiceAccount; the fields below it are empty otherwise.
	named     bool
	account   corev1.ServiceAccount
	identity  string
	audiences []string
	lifetime  time.Duration
	// subjectIdentity is what the SubjectSource is asked for beside the subject.
	subjectIdentity string

	// inspected reports that the caller's annotations, if there are any, have been used.
	inspected bool
}

// hasSubject reports whether the credential is made of a subject token.
func (r *request) hasSubject() bool { return r.named || r.opts.SubjectSource != nil }

// serviceAccount returns nil if no annotations shape the credential: that is the controller's own identity without a
// SubjectSource.
func (r *request) serviceAccount() *corev1.ServiceAccount {
	if !r.hasSubject() {
		return nil
	}
	return &r.account
}

// subject names the ServiceAccount. It is empty for the controller's own identity.
func (o *Options) subject() client.ObjectKey {
	switch {
	case o.ServiceAccount != nil:
		return *o.ServiceAccount
	case o.SubjectServiceAccount != nil:
		return client.ObjectKeyFromObject(o.SubjectServiceAccount)
	}
	return client.ObjectKey{}
}

// scratch recycles the calls of hits, which allocate nothing. It holds no state: end clears each call.
var scratch = sync.Pool{New: func() any { return &call{key: keyBuilder{buf: make([]byte, 0, 1024)}} }}

// maxScratch is the largest buffer that a call keeps for the next one, in bytes: a tenant's huge annotation is not to stay around.
const maxScratch = 8 << 10

func beginCall(provider Provider, operation string, opts []Option) *call {
	c, ok := scratch.Get().(*call)
	if !ok {
		c = &call{}
	}
	c.operation, c.provider = operation, provider
	c.opts.apply(opts)
	return c
}

// end completes the error and gives the call back, unless an exchange has it. It turns a panic in code that a tenant's annotations
// reach into an error. The panic's value may hold anything, so the error names only its type.
func (c *call) end(token *Token, err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
	}
	if *err != nil {
		*token, *err = nil, c.nameCaller(c.describeAtLast(*err))
	}
	if b, ok := (*token).(*bounded); ok {
		*token = b.Token
	}
	if c.begun {
		return
	}
	buf := c.key.buf[:0]
	*c = call{} // in place: a literal with a field would be built elsewhere and copied
	if cap(buf) <= maxScratch {
		c.key.buf = buf
		scratch.Put(c)
	}
}

// describeAtLast also survives a provider's error whose methods panic, such as a nil pointer.
func (c *call) describeAtLast(err error) (described error) {
	defer func() {
		if p := recover(); p != nil {
			described = c.describe(panicked(p))
		}
	}()
	return c.describe(err)
}

func (r *request) describe(err error) error {
	return describe(err, r.providerName(), r.operation, r.opts.subject())
}

// providerName is empty if the provider is nil, also as a nil pointer.
func (r *request) providerName() (name string) {
	defer func() { _ = recover() }()
	if r.provider != nil {
		name = r.provider.GetName()
	}
	return name
}

// prepare resolves the call. Only its last part, reading the ServiceAccount, may use the network.
func (c *call) prepare(ctx context.Context) error {
	if isNil(c.provider) {
		return misconfigured("pass a provider, or pick one from a ProviderSet", "the provider is nil")
	}
	if err := c.opts.resolve(); err != nil {
		return err
	}
	c.defaultMinimumLifetime()
	if c.derivation != nil {
		if err := c.prepareDerived(); err != nil {
			return err
		}
	}
	if err := c.validateOptions(); err != nil {
		return err
	}
	if err := c.checkOwner(); err != nil {
		return err
	}
	if err := c.loadServiceAccount(ctx); err != nil {
		return err
	}
	if err := c.inspectServiceAccount(ctx); err != nil {
		return err
	}
	return c.authorize(ctx)
}

// defaultMinimumLifetime leaves adapters and configurations of clusters alone: they ask again by themselves.
func (c *call) defaultMinimumLifetime() {
	if o := &c.opts; o.MinimumLifetime == 0 && o.Settings != nil && !o.renews && c.derivation != (clusterDerivation{}) {
		o.MinimumLifetime = o.Settings.MinimumLifetime
	}
}

func (c *call) validateOptions() error {
	if v, ok := c.provider.(provider.OptionsValidator); ok {
		return v.ValidateOptions(&c.opts.Options)
	}
	if c.opts.STSEndpoint != "" {
		return misconfigured("leave it out", "the provider accepts no STS endpoint").About("auth.WithSTSEndpoint")
	}
	return nil
}

// checkOwner skips callers that hold a token of the ServiceAccount themselves and act for no object.
func (c *call) checkOwner() error {
	owner := c.opts.owner()
	if c.opts.ServiceAccount != nil || c.opts.SubjectServiceAccount != nil && *owner != (cache.InvolvedObject{}) {
		return c.opts.Policy.checkNamespace(owner, c.opts.subject())
	}
	return nil
}

func (c *call) loadServiceAccount(ctx context.Context) error {
	if c.opts.SubjectServiceAccount != nil {
		c.named, c.account = true, *c.opts.SubjectServiceAccount
		return c.checkTokenRequest(ctx)
	}
	if c.opts.ServiceAccount == nil {
		c.account.Annotations = c.opts.ControllerAnnotations
		return nil
	}
	sa := &c.account
	if err := c.opts.readLiving(ctx, c.opts.Client, sa); err != nil {
		return err
	}
	// The provider sees what was asked for, whatever kind of reader filled it in.
	sa.Name, sa.Namespace = c.opts.ServiceAccount.Name, c.opts.ServiceAccount.Namespace
	c.named = true
	return nil
}

// checkTokenRequest compares the ServiceAccount of a TokenRequest with the living one. The tokens of other sources prove it themselves.
func (c *call) checkTokenRequest(ctx context.Context) error {
	r, ok := c.opts.SubjectToken.(*TokenRequest)
	if !ok {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	living := &corev1.ServiceAccount{}
	if err := c.opts.readLiving(ctx, r.Client, living); err != nil {
		return err
	}
	for _, uid := range []types.UID{c.account.UID, r.ServiceAccount.UID} {
		if uid != "" && uid != living.UID {
			return denied("pass the ServiceAccount as it is now", "the ServiceAccount was re-created: its UID is %q instead of %q", living.UID, uid)
		}
	}
	c.account.UID = living.UID // in the key of tokens and credentials
	return nil
}

// readLiving reads the ServiceAccount that the options name.
func (o *Options) readLiving(ctx context.Context, c KubernetesClient, sa *corev1.ServiceAccount) error {
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

// inspectServiceAccount learns from the provider what the annotations ask for.
func (c *call) inspectServiceAccount(ctx context.Context) (err error) {
	if !c.hasSubject() {
		return nil
	}
	c.overlayAnnotations()
	c.inspected = true
	if c.identity, err = c.provider.GetIdentity(&c.account, &c.opts.Options); err != nil {
		return err
	}
	c.opts.Identity = c.identity
	if c.audiences = c.opts.Audiences; len(c.audiences) == 0 {
		if c.audiences, err = c.provider.GetAudiences(ctx, &c.account, &c.opts.Options); err != nil {
			return err
		}
	}
	if err := c.opts.Policy.checkAudiences(c.audiences); err != nil {
		return err
	}
	if c.opts.SubjectSource != nil {
		return c.stateSubject()
	}
	c.lifetime = c.opts.TokenLifetime
	if p, ok := c.provider.(provider.TokenLifetimeProvider); ok && c.lifetime == 0 {
		if c.lifetime, err = p.GetTokenLifetime(&c.account, &c.opts.Options); err != nil {
			return err
		}
	}
	return checkLifetime(c.lifetime)
}

// overlayAnnotations never writes to the ServiceAccount's own map, which may be an informer's.
func (c *call) overlayAnnotations() {
	if len(c.opts.Annotations) == 0 {
		return
	}
	annotations := make(map[string]string, len(c.account.Annotations)+len(c.opts.Annotations))
	maps.Copy(annotations, c.account.Annotations)
	maps.Copy(annotations, c.opts.Annotations)
	c.account.Annotations = annotations
}

func (c *call) authorize(ctx context.Context) error {
	if c.opts.Policy.Authorize == nil {
		return nil
	}
	err := c.opts.Policy.Authorize(ctx, AuthorizeRequest{
		Provider:       c.provider.GetName(),
		Owner:          *c.opts.owner(),
		ServiceAccount: c.opts.subject(),
		Annotations:    c.opts.Annotations,
		Subject:        c.opts.TokenSubject, SubjectIdentity: c.subjectIdentity,
		Identity:  c.identity,
		Chain:     c.chain(),
		Audiences: c.audiences,
	})
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Reason: ErrDenied, Message: "the controller's policy refuses: " + redact.Text(err.Error()), Err: err}
}

// chain returns the identities after the first one, for the Policy.
func (c *call) chain() []string {
	if p, ok := c.provider.(provider.ChainedTokenProvider); ok {
		return p.GetChain(&c.opts.Options)
	}
	return nil
}

// isNil also finds a nil pointer in an interface, which providers return by mistake.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}
