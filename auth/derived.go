package auth

import (
	"context"

	"github.com/workloadid/workloadid/auth/provider"
)

// derivation makes a kind of credential from access tokens. Implementations are empty structs: a call holds one without allocating.
type derivation interface {
	// prepare finds out, without the network, what the credential depends on, and the options of the access tokens.
	prepare(c *call) error
	// addKey adds to the key what the access tokens do not depend on.
	addKey(c *call)
	// derive makes the credential from m.tokens.
	derive(ctx context.Context, m *minter) (Token, error)
}

// getDerived is the part that the Get functions of all derived credentials share.
func getDerived(ctx context.Context, provider Provider, operation string, d derivation, input string, source *clusterSource,
	opts []Option) (token Token, err error) {
	c := beginCall(provider, operation, opts)
	defer c.end(&token, &err)
	c.derivation, c.input, c.source = d, input, source
	if d == (clusterDerivation{}) && c.opts.Usage == UsageAccess {
		c.opts.Usage = UsageKubeConfig
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	jwt, err := c.addAccessTokenKey(ctx)
	if err != nil {
		return nil, err
	}
	d.addKey(c)
	return c.cached(ctx, jwt) // no access token is needed if the credential is cached
}

// as asserts the type of a credential that the cache holds under a key that only one Get function makes.
func as[T Token](token Token, err error) (T, error) {
	t, ok := token.(T)
	if err == nil && !ok {
		err = unavailable("", "the token cache holds something else; this is a bug in auth")
	}
	return t, err
}

func (c *call) prepareDerived() error {
	if c.derivation == nil {
		return nil
	}
	if err := c.derivation.prepare(c); err != nil {
		return err
	}
	if len(c.lists) == 1 {
		// A single access token has all options of the call, which the provider validates next.
		c.opts.applyToAccessToken(c.lists[0])
		c.lists = nil
	}
	return nil
}

// dependOn records the input that a provider parsed, and applies the options of its access token.
func (c *call) dependOn(input string, err error, options func(string, *provider.Options) ([]provider.Option, error)) error {
	if err != nil {
		return err
	}
	if input == "" {
		return misconfigured("return the input from its Parse method", "the provider %q returned neither input nor error", c.provider.GetName())
	}
	list, err := options(input, &c.opts.Options)
	c.input = input
	c.opts.applyToAccessToken(list) // the provider validates them next
	return err
}

// accessTokens gets the tokens that the credential is made of, from the cache if they are there.
func (m *minter) accessTokens(ctx context.Context) error {
	lists := m.lists
	if len(lists) == 0 {
		lists = [][]provider.Option{nil}
	}
	if err := checkCAData(m.opts.CAData); err != nil {
		return m.describe(err)
	}
	for _, list := range lists {
		c := m.forAccessToken(list)
		if err := c.validateOptions(); err != nil {
			return m.describe(err)
		}
		token, err := c.accessToken(ctx)
		if err != nil {
			return m.describe(err)
		}
		m.tokens, m.previous = append(m.tokens, token), c.key.sum()
	}
	return nil
}

// forAccessToken returns the call that gets one of the access tokens.
func (m *minter) forAccessToken(list []provider.Option) *call {
	c := &call{request: m.request}
	c.derivation, c.input, c.source, c.lists, c.fresh = nil, "", nil, nil, true
	c.opts.applyToAccessToken(list)
	return c
}

// derived makes the credential. Its errors are complete, because the cache hands them to many callers.
func (m *minter) derived(ctx context.Context) (token Token, err error) {
	ctx, span := m.startSpan(ctx, "Derive")
	defer func() { endSpan(span, err) }()
	token, err = m.derivation.derive(ctx, m)
	return m.checked(token, err, m.jwt.Reveal())
}

// incapable is the error of a provider that lacks an optional interface.
func (r *request) incapable(of string) error {
	return misconfigured("use a provider that does", "the provider %q has no %s", r.provider.GetName(), of)
}

// chainDerivation exchanges the access token before the last one of a chain for the last one.
type chainDerivation struct{}

// chain returns the identities after the first one, for the Policy.
func (c *call) chain() []string {
	if p, ok := c.provider.(provider.ChainedTokenProvider); ok {
		return p.GetChain(&c.opts.Options)
	}
	return nil
}

// prepareChain derives the access token of a chain from the token before it. It runs after a miss of the cache.
func (c *call) prepareChain() {
	p, ok := c.provider.(provider.ChainedTokenProvider)
	if !ok || c.derivation != nil {
		return
	}
	if previous := p.GetAccessTokenOptionsForChain(&c.opts.Options); previous != nil {
		c.derivation, c.lists = chainDerivation{}, [][]provider.Option{previous}
	}
}

func (chainDerivation) prepare(*call) error { return nil } // prepareChain has done it
func (chainDerivation) addKey(*call)        {}

// derive also drops the previous token if the service refuses that one, since only a new one can help.
func (chainDerivation) derive(ctx context.Context, m *minter) (Token, error) {
	p, ok := m.provider.(provider.ChainedTokenProvider)
	if !ok {
		return nil, m.incapable("chain of access tokens")
	}
	token, err := p.NewChainedToken(ctx, m.tokens[0], &m.opts.Options)
	if err != nil && p.RefusesPrevious(err) {
		m.opts.Cache.Invalidate(m.previous)
	}
	return token, err
}
