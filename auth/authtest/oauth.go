package authtest

// OAuth is an OAuth 2.0 authorization server with token exchange (RFC 8693).
type OAuth struct {
	cloud *Cloud
}

func newOAuth(c *Cloud) *OAuth { return &OAuth{cloud: c} }

func (*OAuth) services() []service { return nil }
