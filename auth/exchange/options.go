package exchange

import (
	"slices"

	"github.com/workloadid/workloadid/auth"
)

type (
	audienceKey struct{}
	resourceKey struct{}
)

// WithAudience sets the audience of the issued token for one call, instead of Provider.Audience. It has to be that or one of
// Provider.AllowedAudiences.
func WithAudience(audience string) auth.Option {
	return auth.WithProviderOption(audienceKey{}, audience)
}

// WithResource sets the resource of the issued token for one call, instead of Provider.Resource. It has to be that or one of
// Provider.AllowedResources.
func WithResource(resource string) auth.Option {
	return auth.WithProviderOption(resourceKey{}, resource)
}

func (p *Provider) audience(opts *auth.Options) string {
	if chosen, ok := opts.ProviderOption(audienceKey{}).(string); ok {
		return chosen
	}
	return p.Audience
}

func (p *Provider) resource(opts *auth.Options) string {
	if chosen, ok := opts.ProviderOption(resourceKey{}).(string); ok {
		return chosen
	}
	return p.Resource
}

// checkTargets compares whole: what an issued token is good for is the controller's decision.
func (p *Provider) checkTargets(opts *auth.Options) error {
	if a := p.audience(opts); a != p.Audience && !slices.Contains(p.AllowedAudiences, a) {
		return self.Denied("add it to the provider's AllowedAudiences if callers may choose it",
			"the audience %.300q is not one that the provider allows for issued tokens", a)
	}
	if r := p.resource(opts); r != p.Resource && !slices.Contains(p.AllowedResources, r) {
		return self.Denied("add it to the provider's AllowedResources if callers may choose it",
			"the resource %.300q is not one that the provider allows for issued tokens", r)
	}
	return nil
}
