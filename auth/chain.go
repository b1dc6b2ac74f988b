package auth

import "context"

// chain returns the identities after the first one, for the Policy.
func (c *call) chain() []string {
	if p, ok := c.provider.(ChainedTokenProvider); ok {
		return p.GetChain(&c.opts)
	}
	return nil
}

// prepareChain derives the access token of a chain from the token before it. Only a miss of the cache comes here.
func (c *call) prepareChain() {
	p, ok := c.provider.(ChainedTokenProvider)
	if !ok || c.kind != notDerived {
		return
	}
	if previous := p.GetAccessTokenOptionsForChain(&c.opts); previous != nil {
		c.kind, c.lists = chainKind, [][]Option{previous}
	}
}

// newChainedToken also drops the token before if the service refuses that one, since only a new one can help.
func (m *minter) newChainedToken(ctx context.Context) (Token, error) {
	p, ok := m.provider.(ChainedTokenProvider)
	if !ok {
		return nil, m.incapable("chain of access tokens")
	}
	token, err := p.NewChainedToken(ctx, m.tokens[0], &m.opts)
	if err != nil && p.RefusesPrevious(err) {
		m.opts.Cache.Invalidate(m.previous)
	}
	return token, err
}
