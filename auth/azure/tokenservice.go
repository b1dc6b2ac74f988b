package azure

import "github.com/workloadid/workloadid/auth"

// TokenServiceURL returns the address of the authority that an exchange with these options asks. It asks nobody itself.
func (p *Provider) TokenServiceURL(opts *auth.Options) (string, error) {
	_, host, err := p.environmentOf(opts)
	if err != nil {
		return "", err
	}
	return "https://" + host, nil
}
