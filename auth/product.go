package auth

import (
	"context"

	"github.com/workloadid/workloadid/auth/provider"
)

// derivation resolves one kind of credential that is made of access tokens. It
// uses no network.
type derivation func(p Provider, o *Options) (*product, error)

// product is a credential that is made of access tokens.
type product struct {
	inputs [][2]string         // of the key, besides an access token's; at least one
	lists  [][]provider.Option // further options of the access tokens, a list for each
	make   func(ctx context.Context, tokens []Token, opts *provider.Options) (Token, error)
}

// newProduct returns the product for a repository. input and err are the
// results of the provider's Parse method.
func newProduct[T Token](kind string, p Provider, o *Options, input string, err error,
	options func(string, *provider.Options) ([]provider.Option, error),
	combine func(context.Context, string, Token, *provider.Options) (T, error)) (*product, error) {
	if err != nil {
		return nil, err
	}
	if input == "" {
		return nil, misconfigured("return the input from its Parse method",
			"the provider %q returned neither input nor error", p.GetName())
	}
	list, err := options(input, &o.Options)
	return &product{inputs: [][2]string{{kind, input}}, lists: [][]provider.Option{list},
		make: func(ctx context.Context, tokens []Token, opts *provider.Options) (Token, error) {
			return combine(ctx, input, tokens[0], opts)
		}}, err
}

// incapable is the error of a provider that lacks an optional interface.
func incapable(p Provider, of string) error {
	return misconfigured("use a provider that does", "the provider %q has no %s", p.GetName(), of)
}
