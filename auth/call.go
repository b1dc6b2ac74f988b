package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/authcause"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/tracing"
	"github.com/workloadid/workloadid/internal/transport"
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

// call is one call of a Get function.
type call struct {
	request
	key keyBuilder
}

// request is what a call asks for: its options and what was found out about them. It has no pointer into itself, so a copy stands
// on its own.
type request struct {
	operation string
	provider  Provider
	opts      Options

	// The rest of this block serves credentials that are derived from access tokens.
	derivation derivation
	input      string              // from ParseArtifactRepository or ParseGitRepository, or provider.ClusterAccess.CacheKey
	lists      [][]provider.Option // one list for each access token
	source     *clusterSource      // keeps the credential if there is no cache

	// named reports whether there is a ServiceAccount; the fields below it are empty otherwise.
	named     bool
	account   corev1.ServiceAccount
	identity  string
	audiences []string
	lifetime  time.Duration

	// fresh marks a call for an access token that another credential is made of.
	fresh bool
	// inspected reports that the caller's annotations, if there are any, have been used.
	inspected bool
}

// serviceAccount returns nil for the controller's own identity.
func (r *request) serviceAccount() *corev1.ServiceAccount {
	if !r.named {
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

// scratch recycles calls, so that a hit allocates nothing. It holds no state: end clears each call.
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

// end completes the error and gives the call back. It turns a panic in code that a tenant's annotations reach into an error. The
// panic's value may hold anything, so the error names only its type.
func (c *call) end(token *Token, err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
	}
	if *err != nil {
		*token, *err = nil, c.nameCaller(c.describeAtLast(*err))
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
	if err := c.prepareDerived(); err != nil {
		return err
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
		e.Cause = authcause.ServiceAccountNotFound
		if d := o.defaulted; d.name != "" {
			e.Message = fmt.Sprintf("the controller's default ServiceAccount for %s: %s", d.purpose, e.Message)
			e.Remedy, e.Option = "create it, name another one in the object, or correct the default", d.option
		}
	}
	return e
}

// inspectServiceAccount learns from the provider what the annotations ask for.
func (c *call) inspectServiceAccount(ctx context.Context) (err error) {
	if !c.named {
		return nil
	}
	c.overlayAnnotations()
	c.inspected = true
	if c.identity, err = c.provider.GetIdentity(&c.account, &c.opts.Options); err != nil {
		return err
	}
	if c.audiences = c.opts.Audiences; len(c.audiences) == 0 {
		if c.audiences, err = c.provider.GetAudiences(ctx, &c.account, &c.opts.Options); err != nil {
			return err
		}
	}
	if err := c.opts.Policy.checkAudiences(c.audiences); err != nil {
		return err
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
		Identity:       c.identity,
		Chain:          c.chain(),
		Audiences:      c.audiences,
	})
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Reason: ErrDenied, Message: "the controller's policy refuses: " + redact.Text(err.Error()), Err: err}
}

// accessToken is steps 5 and 6 of GetAccessToken.
func (c *call) accessToken(ctx context.Context) (Token, error) {
	jwt, err := c.addAccessTokenKey(ctx)
	if err != nil {
		return nil, err
	}
	return c.cached(ctx, jwt)
}

// cached asks the cache with the key as it is now. On a miss it mints the access token, or the derived credential.
func (c *call) cached(ctx context.Context, jwt string) (Token, error) {
	key := c.key.sum()
	if token, ok := c.opts.Cache.Get(key, c.opts.InvolvedObject, c.opts.MinimumLifetime, c.opts.invalidBefore); ok {
		return token, nil
	}
	c.prepareChain()
	m := &minter{request: c.request, jwt: redact.New(jwt)}
	req := cache.Request{
		Key:      key,
		Object:   c.opts.InvolvedObject,
		Tenant:   c.tenant(),
		Provider: c.provider.GetName(),
		Group:    c.group(jwt),
		Fresh:    c.fresh,
		Patient:  c.opts.patient,
		Mint:     m.accessToken,
		Classify: m.classify,

		MinimumLifetime: c.opts.MinimumLifetime,
		InvalidBefore:   c.opts.invalidBefore,
	}
	if c.derivation != nil {
		req.Prepare, req.Mint = m.accessTokens, m.derived
	}
	if c.source != nil && !c.opts.Cache.Enabled() {
		return c.source.getOrSet(ctx, c, req)
	}
	token, _, err := c.opts.Cache.GetOrSet(ctx, req)
	var known *Error
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &known) {
		err = c.opts.hideProxy(clean(err, "")) // the caller gave up first
	}
	return token, err
}

// unverifiedToken is the tenant of all tokens in hand without an owner: a forged one could name any namespace and take its slots.
const unverifiedToken = "unverified token"

// tenant returns the tenant whose slots in the cache an exchange takes. A value with a blank is no namespace.
func (c *call) tenant() string {
	if id := c.opts.ClusterID; id != "" {
		return id + " " + c.tenantOfCluster()
	}
	return c.tenantOfCluster()
}

// tenantOfCluster prefers the owner's namespace for the controller's own identity, for a token in hand, and for an address that an
// object brings, which might hang.
func (c *call) tenantOfCluster() string {
	owner, own, inHand := c.opts.owner().Namespace, !c.named, c.opts.SubjectServiceAccount != nil
	switch {
	case owner != "" && (own || inHand || c.opts.STSEndpoint != "" || c.opts.ProxyURL != nil):
		return owner
	case inHand:
		return unverifiedToken
	case !own:
		return c.account.Namespace
	case c.opts.STSRegion != "":
		return "region " + c.opts.STSRegion
	}
	return ""
}

// minter makes the credential of one call. It may outlive the call, since exchanges are shared.
type minter struct {
	request
	jwt    redact.Secret
	tokens []Token // the access tokens that a credential is derived from

	previous cache.Key // of the last of them

	exchangeFailed bool // the provider returned the error
}

// accessToken makes a new access token. Its errors are complete, because the cache hands them to many callers.
func (m *minter) accessToken(ctx context.Context) (token Token, err error) {
	ctx, span := m.startSpan(ctx, "Exchange")
	defer func() { endSpan(span, err) }()
	if !m.named {
		token, err := m.provider.NewControllerToken(ctx, &m.opts.Options)
		return m.checked(token, err, "")
	}
	jwt, err := m.subjectToken(ctx)
	if err != nil {
		return nil, m.describe(err)
	}
	token, err = m.provider.NewTokenForServiceAccount(ctx, jwt, m.account.DeepCopy(), &m.opts.Options)
	return m.checked(token, err, jwt)
}

// subjectToken returns a token of the ServiceAccount that may be sent out.
func (m *minter) subjectToken(ctx context.Context) (jwt string, err error) {
	if jwt = m.jwt.Reveal(); jwt == "" {
		source := TokenRequest{Client: m.opts.Client, ServiceAccount: &m.account,
			Lifetime: m.lifetime, BoundObject: m.opts.BoundObject}
		requesting, span := m.startSpan(ctx, "TokenRequest")
		jwt, _, err = source.request(requesting, m.audiences)
		endSpan(span, err)
		if err != nil {
			return "", err
		}
	}
	return jwt, checkSubjectToken(jwt, time.Now(), m.audiences, &m.account, m.opts.Policy)
}

func (m *minter) checked(token Token, err error, jwt string) (Token, error) {
	switch {
	case err != nil:
		m.exchangeFailed = true
		return nil, m.describe(m.opts.hideProxy(clean(err, jwt)))
	case isNil(token):
		return nil, m.describe(unavailable("", "the provider returned no token and no error"))
	case token.GetDuration() <= 0:
		return nil, m.describe(unavailable("check that the clocks agree", "the provider returned a token that has expired"))
	}
	return token, nil
}

// startSpan starts a span with the options' TracerProvider. The identity may be a role that does not exist, but is no secret.
func (m *minter) startSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	if m.opts.TracerProvider == nil {
		return tracing.Start(ctx, nil, "", "")
	}
	account := m.opts.subject()
	return tracing.Start(ctx, m.opts.TracerProvider, "auth", name, tracing.Provider.String(m.provider.GetName()), tracing.Operation.String(m.operation),
		tracing.Namespace.String(account.Namespace), tracing.ServiceAccount.String(account.Name), tracing.Identity.String(m.identity))
}

func endSpan(span trace.Span, err error) {
	reason := ErrUnavailable
	if known := (*Error)(nil); errors.As(err, &known) {
		reason = reasonOf(known)
	}
	tracing.End(span, err, string(reason))
}

// nameCaller completes an error that the caller's annotations can have caused. The cache hands an error to several callers, of which each
// has annotations of its own. Errors of TokenRequests have other causes.
func (c *call) nameCaller(err error) error {
	if !c.inspected || len(c.opts.Annotations) == 0 {
		return err
	}
	var known *Error // allocates
	if !errors.As(err, &known) || !isRefusal(known) || known.Operation == opCreateToken {
		return err
	}
	named := *known
	named.CallersAnnotations, named.Err = slices.Sorted(maps.Keys(c.opts.Annotations)), err
	return &named
}

// hideProxy replaces the description of a request that got no answer through the proxy of the call. A tenant may have chosen
// the proxy, and would learn from the details, the failed operation among them, which hosts the controller's network has and
// what listens there.
func (o *Options) hideProxy(err *Error) *Error {
	if o.ProxyURL == nil || !transport.Unanswered(err.Err) {
		return err
	}
	hidden := unavailable("check the proxy's address, and that it connects to the provider's hosts",
		"no answer through the proxy %.300q", o.ProxyURL.Host)
	hidden.Err = err.Err
	return hidden
}

// clean removes the subject token from an error's text, in case a provider or a server quoted it.
func clean(err error, jwt string) *Error {
	var known *Error
	if !errors.As(err, &known) {
		return &Error{Reason: ErrUnavailable, Message: foreignMessage(err, jwt), Err: err}
	}
	cleaned := *known
	cleaned.Message = redact.Line(known.Message, jwt)
	cleaned.Remedy = redact.Line(known.Remedy, jwt)
	cleaned.Option = redact.Text(known.Option, jwt)
	cleaned.Code = redact.Text(known.Code, jwt)
	cleaned.RequestID = redact.Text(known.RequestID, jwt)
	return &cleaned
}

// panicked is the error for a value that a deferred function has recovered.
func panicked(value any) error {
	return &cache.PanicError{Type: fmt.Sprintf("%T", value), Stack: string(debug.Stack())}
}

// isNil also finds a nil pointer in an interface, which providers return by mistake.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}
