package gcp

import "github.com/workloadid/workloadid/auth"

// TokenServiceURL returns the address that an exchange with these options asks for a federated token. It asks nobody itself.
func (p *Provider) TokenServiceURL(opts *auth.Options) (string, error) { return p.stsURL(opts) }
