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
	// derive makes the credential from c.tokens.
	derive(ctx context.Context, c *call) (Token, error)
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

// getAccessTokens gets the tokens that the credential is made of, from the cache if they are there.
func (c *call) getAccessTokens(ctx context.Context) error {
	lists := c.lists
	if len(lists) == 0 {
		lists = [][]provider.Option{nil}
	}
	if err := checkCAData(c.opts.CAData); err != nil {
		return c.describe(err)
	}
	for _, list := range lists {
		of := &call{request: c.request, fresh: true}
		of.opts.applyToAccessToken(list)
		if err := of.validateOptions(); err != nil {
			return c.describe(err)
		}
		token, err := of.accessToken(ctx)
		if err != nil {
			return c.describe(err)
		}
		c.tokens, c.previous = append(c.tokens, c.inherit(token)), of.key.sum()
	}
	return nil
}

func (c *call) newDerived(ctx context.Context) (Token, error) {
	return c.checked(c.derivation.derive(ctx, c))
}

// incapable is the error of a provider that lacks an optional interface.
func (r *request) incapable(of string) error {
	return misconfigured("use a provider that does", "the provider %q has no %s", r.provider.GetName(), of)
}
