package auth

import (
	"context"
	"fmt"
	"slices"
)

// derivedKind is a kind of credential that is made of access tokens.
type derivedKind int

const (
	notDerived derivedKind = iota
	registryKind
	clusterKind
	gitKind
	chainKind // an access token that is made of another one
)

// prepareDerived finds out what the credential depends on beyond the access tokens, and what these need. It uses no
// network.
func (c *call) prepareDerived() (err error) {
	switch c.kind {
	case registryKind:
		err = c.prepareRegistry()
	case clusterKind:
		err = c.prepareCluster()
	case gitKind:
		err = c.prepareGit()
	case notDerived, chainKind:
		return nil
	}
	if err == nil && len(c.lists) == 1 {
		// A single access token has all options of the call, which the provider validates next.
		for _, opt := range c.lists[0] {
			opt(&c.opts)
		}
		c.lists = nil
	}
	return err
}

// derivedCredential is GetAccessToken's last step for a credential that is made of access tokens. If it is cached, no access
// token is needed.
func (c *call) derivedCredential(ctx context.Context) (Token, error) {
	jwt, err := c.addAccessTokenKey(ctx)
	if err != nil {
		return nil, err
	}
	c.addDerivedKey()
	return c.cached(ctx, jwt)
}

// addDerivedKey adds what the access tokens do not depend on. The options of lists need no place in the key: providers
// make them of nothing but what is in it.
func (c *call) addDerivedKey() {
	k := &c.key
	switch c.kind {
	case registryKind:
		k.buf = appendInput(k.buf, inputRegistry, c.input)
	case gitKind:
		k.buf = appendInput(k.buf, inputGit, c.input)
	case clusterKind:
		// One of the first two is there, and no access token's key has such an input.
		b := appendInput(k.buf, inputCluster, c.opts.ClusterResource)
		b = appendInput(b, inputClusterAddress, c.opts.ClusterAddress)
		b = appendInput(b, inputClusterCA, c.opts.CAData)
		k.buf = appendInput(b, inputClusterOther, c.input)
	case notDerived, chainKind:
	}
}

// accessTokens gets the tokens that the credential is made of, from the cache if they are there.
func (m *minter) accessTokens(ctx context.Context) error {
	lists := m.lists
	if len(lists) == 0 {
		lists = [][]Option{nil}
	}
	if err := checkCAData(m.opts.CAData); m.kind == clusterKind && err != nil {
		return m.describe(err)
	}
	m.tokens = make([]Token, 0, len(lists))
	for _, list := range lists {
		c := m.forAccessToken(list)
		token, err := c.accessTokenOf(ctx)
		if err != nil {
			return m.describe(err)
		}
		m.tokens, m.previous = append(m.tokens, token), c.key.sum()
	}
	return nil
}

// forAccessToken returns the call that gets one of the access tokens.
func (m *minter) forAccessToken(list []Option) *call {
	c := &call{request: m.request}
	c.kind, c.input, c.source, c.lists, c.fresh = notDerived, "", nil, nil, true
	c.opts.providerOptions = slices.Clone(c.opts.providerOptions)
	for _, opt := range list {
		opt(&c.opts)
	}
	return c
}

// accessTokenOf is for options that the provider has added to: it validates them.
func (c *call) accessTokenOf(ctx context.Context) (Token, error) {
	if v, ok := c.provider.(OptionsValidator); ok {
		if err := v.ValidateOptions(&c.opts); err != nil {
			return nil, err
		}
	}
	return c.accessToken(ctx)
}

// derived makes the credential. Its errors are complete, because the cache hands them to many callers.
func (m *minter) derived(ctx context.Context) (Token, error) {
	var token Token
	var err error
	switch m.kind {
	case registryKind:
		token, err = m.newRegistryCredentials(ctx)
	case clusterKind:
		token, err = m.newRESTConfig(ctx)
	case gitKind:
		token, err = m.newGitCredentials(ctx)
	case chainKind:
		token, err = m.newChainedToken(ctx)
	case notDerived:
		err = fmt.Errorf("there is nothing to derive; this is a bug in auth")
	}
	return m.checked(token, err, m.jwt.Reveal())
}

// incapable is the error for a provider that lacks an optional interface.
func (r *request) incapable(of string) error {
	return misconfigured("use a provider that does", "the provider %q has no %s", r.provider.GetName(), of)
}
