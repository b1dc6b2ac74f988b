package auth

import (
	"slices"
	"strings"
)

// ProviderSet picks providers by name, as users write it in their objects. It
// holds the values it was given and nothing else, and is safe for concurrent
// use.
type ProviderSet struct {
	providers []Provider
}

// NewProviderSet returns the set of the given providers. Their names must be
// different and not empty.
func NewProviderSet(providers ...Provider) (*ProviderSet, error) {
	set := &ProviderSet{}
	for _, p := range providers {
		if p == nil {
			return nil, misconfigured("leave it out", "a provider is nil")
		}
		name := p.GetName()
		if name == "" {
			return nil, misconfigured("return a constant from GetName", "a provider (%T) has no name", p)
		}
		if slices.Contains(set.Names(), name) {
			return nil, misconfigured("configure one of them", "two providers are called %q", name)
		}
		set.providers = append(set.providers, p)
	}
	return set, nil
}

// Get returns the provider of that name. An unknown name fails with
// [ErrMisconfigured]. There is no default.
func (s *ProviderSet) Get(name string) (Provider, error) {
	for _, p := range s.providers {
		if p.GetName() == name {
			return p, nil
		}
	}
	return nil, misconfigured("use one of: "+strings.Join(s.Names(), ", "), "there is no provider %q", name)
}

// Names returns the names of all providers, in the order they were given.
func (s *ProviderSet) Names() []string {
	names := make([]string, 0, len(s.providers))
	for _, p := range s.providers {
		names = append(names, p.GetName())
	}
	return names
}
