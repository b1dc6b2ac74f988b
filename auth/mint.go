package auth

import (
	"context"
	"errors"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/tracing"
)

// step says what an exchange makes.
type step int

const (
	// stepToken makes an access token, of a ServiceAccount's token or of the controller's own identity.
	stepToken step = iota
	// stepChain makes the next access token of a chain, of the one before it.
	stepChain
	// stepDerive makes another credential, of access tokens.
	stepDerive
)

// exchange holds the fields that the exchange of a call writes.
type exchange struct {
	begun    bool
	step     step
	jwt      redact.Secret // of the ServiceAccount
	tokens   []Token       // the access tokens of which the next one or the credential is made
	previous cache.Key     // of the last of them
	failed   bool          // the provider returned the error
	until    time.Time     // when the credential leaves the cache at the latest, if it is not zero
}

// cached asks the cache with the key as it is now. On a miss it begins the exchange.
func (c *call) cached(ctx context.Context, jwt string) (Token, error) {
	key := c.key.sum()
	if token, ok := c.opts.Cache.Get(key, c.opts.InvolvedObject, c.opts.MinimumLifetime, c.opts.invalidBefore); ok {
		return token, nil
	}
	c.beginExchange(jwt)
	req := cache.Request{
		Key:      key,
		Object:   c.opts.InvolvedObject,
		Tenant:   c.tenant(),
		Provider: c.provider.GetName(),
		Group:    c.group(jwt),
		Fresh:    c.fresh,
		Patient:  c.opts.patient,
		Mint:     c.mint,
		Classify: c.classify,

		MinimumLifetime: c.opts.MinimumLifetime,
		InvalidBefore:   c.opts.invalidBefore,
	}
	if c.step != stepToken {
		req.Prepare = c.getAccessTokens
	}
	if c.source != nil && !c.opts.Cache.Enabled() {
		return c.source.getOrSet(ctx, c, req)
	}
	token, _, err := c.opts.Cache.GetOrSet(ctx, req)
	if _, held := err.(*cache.BackoffError); held { //nolint:errorlint // deeper, it is that of an exchange that may go on
		c.begun = false // no exchange keeps the call
	}
	var known *Error
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &known) {
		err = c.opts.hideProxy(clean(err, "")) // the caller gave up first
	}
	return token, err
}

func (c *call) beginExchange(jwt string) {
	c.begun, c.jwt = true, redact.New(jwt)
	if c.derivation != nil {
		c.step = stepDerive
		return
	}
	if p, ok := c.provider.(provider.ChainedTokenProvider); ok {
		if previous := p.GetAccessTokenOptionsForChain(&c.opts.Options); previous != nil {
			c.step, c.lists = stepChain, [][]provider.Option{previous}
		}
	}
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

// mint makes the credential. Its errors are complete, because the cache hands them to many callers.
func (c *call) mint(ctx context.Context) (Token, error) {
	switch c.step {
	case stepChain:
		return c.bind(traced(ctx, c, "Derive", c.newChainedToken))
	case stepDerive:
		return c.bind(traced(ctx, c, "Derive", c.newDerived))
	}
	return c.bind(traced(ctx, c, "Exchange", c.newAccessToken))
}

func (c *call) newAccessToken(ctx context.Context) (Token, error) {
	if !c.hasSubject() {
		return c.checked(c.provider.NewControllerToken(ctx, &c.opts.Options))
	}
	if err := c.getSubjectToken(ctx); err != nil {
		return nil, c.describe(err)
	}
	return c.checked(c.provider.NewTokenForServiceAccount(ctx, c.jwt.Reveal(), c.account.DeepCopy(), &c.opts.Options))
}

// getSubjectToken gets a token of the ServiceAccount that may be sent out.
func (c *call) getSubjectToken(ctx context.Context) error {
	if c.opts.SubjectSource != nil {
		return c.issueSubjectToken(ctx)
	}
	if c.jwt.Reveal() == "" {
		source := TokenRequest{Client: c.opts.Client, ServiceAccount: &c.account, Lifetime: c.lifetime, BoundObject: c.opts.BoundObject}
		jwt, err := traced(ctx, c, "TokenRequest", func(ctx context.Context) (string, error) {
			jwt, _, err := source.request(ctx, c.audiences)
			return jwt, err
		})
		if err != nil {
			return err
		}
		c.jwt = redact.New(jwt)
	}
	return checkSubjectToken(c.jwt.Reveal(), time.Now(), c.audiences, claimsOf(&c.account), c.opts.Policy)
}

// newChainedToken also drops the previous token if the service refuses that one, since only a new one can help.
func (c *call) newChainedToken(ctx context.Context) (Token, error) {
	p, ok := c.provider.(provider.ChainedTokenProvider)
	if !ok {
		return nil, c.incapable("chain of access tokens")
	}
	token, err := p.NewChainedToken(ctx, c.tokens[0], &c.opts.Options)
	if err != nil && p.RefusesPrevious(err) {
		c.opts.Cache.Invalidate(c.previous)
	}
	return c.checked(token, err)
}

func (c *call) checked(token Token, err error) (Token, error) {
	switch {
	case err != nil:
		c.failed = true
		return nil, c.describe(c.opts.hideProxy(clean(err, c.jwt.Reveal())))
	case isNil(token):
		return nil, c.describe(unavailable("", "the provider returned no token and no error"))
	case token.GetDuration() <= 0:
		return nil, c.describe(unavailable("check that the clocks agree", "the provider returned a token that has expired"))
	}
	return token, nil
}

// bounded is a token that leaves the cache when its subject token expires. Only the cache and credentials made of it
// see it.
type bounded struct {
	Token
	until time.Time
}

// GetDuration implements Token.
func (b *bounded) GetDuration() time.Duration { return min(b.Token.GetDuration(), time.Until(b.until)) }

// inherit returns the token that a provider made. The credential that is made of it gets its bound.
func (e *exchange) inherit(token Token) Token {
	b, ok := token.(*bounded)
	if !ok {
		return token
	}
	if e.until.IsZero() || b.until.Before(e.until) {
		e.until = b.until
	}
	return b.Token
}

// bind adds the bound, if there is one.
func (e *exchange) bind(token Token, err error) (Token, error) {
	if err != nil || e.until.IsZero() {
		return token, err
	}
	return &bounded{token, e.until}, nil
}

// traced calls f, in a span if there is a TracerProvider. The identity may be a role that does not exist, but is no secret.
func traced[T any](ctx context.Context, c *call, name string, f func(context.Context) (T, error)) (result T, err error) {
	if c.opts.TracerProvider == nil {
		return f(ctx)
	}
	account := c.opts.subject()
	ctx, span := tracing.Start(ctx, c.opts.TracerProvider, "auth", name, tracing.Provider.String(c.provider.GetName()), tracing.Operation.String(c.operation),
		tracing.Namespace.String(account.Namespace), tracing.ServiceAccount.String(account.Name), tracing.Identity.String(c.identity))
	defer func() {
		reason := ErrUnavailable
		if known := (*Error)(nil); errors.As(err, &known) {
			reason = reasonOf(known)
		}
		tracing.End(span, err, string(reason))
	}()
	return f(ctx)
}
