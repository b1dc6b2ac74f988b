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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
)

// call is one call of a Get function.
type call struct {
	request
	key KeyBuilder
}

// request is what a call asks for: its options and what was found out about them. It has no pointer into itself, so a copy stands
// on its own.
type request struct {
	operation string
	provider  Provider
	opts      Options

	// The rest of this block is for credentials that are derived from access tokens.
	kind  derivedKind
	input string     // what ParseArtifactRepository or ParseGitRepository returned, or ClusterAccess.CacheKey
	lists [][]Option // for the access tokens, one list each
	// source is the config that the credential is for. It keeps the credential if there is no cache.
	source *clusterSource

	// named reports whether there is a ServiceAccount; the fields below it are for one only.
	named     bool
	account   corev1.ServiceAccount
	identity  string
	audiences []string
	lifetime  time.Duration

	// fresh is for access tokens that another credential is made of.
	fresh bool
}

// serviceAccount returns nil for the controller's own identity.
func (r *request) serviceAccount() *corev1.ServiceAccount {
	if !r.named {
		return nil
	}
	return &r.account
}

// scratch recycles calls, so that a hit allocates nothing. It holds no state: end clears each call.
var scratch = sync.Pool{New: func() any { return &call{key: KeyBuilder{buf: make([]byte, 0, 1024)}} }}

// maxScratch is what a call may keep for the next one, in bytes: a tenant's huge annotation is not to stay around.
const maxScratch = 8 << 10

func beginCall(provider Provider, operation string, opts []Option) *call {
	c, ok := scratch.Get().(*call)
	if !ok {
		c = &call{}
	}
	c.operation, c.provider = operation, provider
	for _, opt := range opts {
		if opt != nil {
			opt(&c.opts)
		}
	}
	return c
}

// prepare resolves what the call is about. Only its last part, reading the ServiceAccount, may use the network.
func (c *call) prepare(ctx context.Context) error {
	if c.provider == nil {
		return misconfigured("pass a provider, or pick one from a ProviderSet", "the provider is nil")
	}
	if err := c.opts.resolve(); err != nil {
		return err
	}
	if err := c.prepareDerived(); err != nil {
		return err
	}
	if v, ok := c.provider.(OptionsValidator); ok {
		if err := v.ValidateOptions(&c.opts); err != nil {
			return err
		}
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

// checkOwner skips callers that hold a token of the ServiceAccount themselves and act for no object.
func (c *call) checkOwner() error {
	owner := c.opts.owner()
	switch {
	case c.opts.ServiceAccount != nil:
		return c.opts.Policy.checkNamespace(owner, *c.opts.ServiceAccount)
	case c.opts.SubjectServiceAccount != nil && *owner != (cache.InvolvedObject{}):
		return c.opts.Policy.checkNamespace(owner, c.subject())
	}
	return nil
}

func (c *call) loadServiceAccount(ctx context.Context) error {
	if c.opts.SubjectServiceAccount != nil {
		c.named, c.account = true, *c.opts.SubjectServiceAccount
		return nil
	}
	if c.opts.ServiceAccount == nil {
		return nil
	}
	sa := &c.account
	if err := readServiceAccount(ctx, c.opts.Client, *c.opts.ServiceAccount, sa); err != nil {
		return readError(err, *c.opts.ServiceAccount)
	}
	if sa.DeletionTimestamp != nil {
		return misconfigured("create it again, or name another one", "it is being deleted")
	}
	// What the provider sees is what was asked for, whatever kind of reader filled it in.
	sa.Name, sa.Namespace = c.opts.ServiceAccount.Name, c.opts.ServiceAccount.Namespace
	c.named = true
	return nil
}

// readServiceAccount spares clients that have ServiceAccounts in memory the copy: nothing is written to it.
func readServiceAccount(ctx context.Context, c KubernetesClient, key client.ObjectKey, sa *corev1.ServiceAccount) error {
	shared, ok := c.(interface {
		GetShared(ctx context.Context, key client.ObjectKey, sa *corev1.ServiceAccount) error
	})
	if ok {
		return shared.GetShared(ctx, key, sa)
	}
	return c.Get(ctx, key, sa)
}

func readError(err error, sa client.ObjectKey) error {
	var known *Error
	if errors.As(err, &known) {
		return err // the client knows better what it lacks
	}
	e := kubernetesError(err, "read ServiceAccount")
	switch {
	case apierrors.IsForbidden(err):
		e.Remedy = fmt.Sprintf("grant the controller the verb get on serviceaccounts in namespace %q", sa.Namespace)
	case apierrors.IsNotFound(err):
		e.Remedy = "create it, or correct the name"
	}
	return e
}

// inspectServiceAccount learns from the provider what the annotations ask for.
func (c *call) inspectServiceAccount(ctx context.Context) (err error) {
	if !c.named {
		return nil
	}
	c.overlayAnnotations()
	if c.identity, err = c.provider.GetIdentity(&c.account, &c.opts); err != nil {
		return err
	}
	if c.audiences = c.opts.Audiences; len(c.audiences) == 0 {
		if c.audiences, err = c.provider.GetAudiences(ctx, &c.account, &c.opts); err != nil {
			return err
		}
	}
	if err := c.opts.Policy.checkAudiences(c.audiences); err != nil {
		return err
	}
	c.lifetime = c.opts.TokenLifetime
	if p, ok := c.provider.(TokenLifetimeProvider); ok && c.lifetime == 0 {
		if c.lifetime, err = p.GetTokenLifetime(&c.account, &c.opts); err != nil {
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
		ServiceAccount: c.subject(),
		Annotations:    c.opts.Annotations,
		Identity:       c.identity,
		Chain:          c.chain(),
		Audiences:      c.audiences,
	})
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
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

// cached asks the cache with the key as it is now. What is missing is minted: the access token, or what c.kind says.
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
		Mint:     m.accessToken,

		MinimumLifetime: c.opts.MinimumLifetime,
		InvalidBefore:   c.opts.invalidBefore,
	}
	if c.kind != notDerived {
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

// unverifiedToken is the tenant of all tokens in hand. A forged one names any namespace, whose slots it must not take.
const unverifiedToken = "unverified token"

// tenant returns the tenant whose slots in the cache an exchange takes. The namespace of the owner, where it is known, takes
// those with the controller's own identity, and those through an address that an object brings, which might hang. A blank
// marks what is no namespace.
func (c *call) tenant() string {
	if id := c.opts.ClusterID; id != "" {
		return id + " " + c.tenantOfCluster()
	}
	return c.tenantOfCluster()
}

func (c *call) tenantOfCluster() string {
	owner, own := c.opts.owner().Namespace, !c.named
	switch {
	case owner != "" && (own || c.opts.STSEndpoint != "" || c.opts.ProxyURL != nil):
		return owner
	case c.opts.SubjectServiceAccount != nil:
		return unverifiedToken
	case !own:
		return c.account.Namespace
	case c.opts.STSRegion != "":
		return "region " + c.opts.STSRegion
	}
	return ""
}

// isNil also finds a nil pointer in an interface, which providers return by mistake.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}
