package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/token"
)

// providers are all that the library has; exchange only if the flags say where.
func (id *identity) providers() (*auth.ProviderSet, error) {
	list := []auth.Provider{id.awsProvider(), &azure.Provider{AuthorityHost: id.authorityHost}, id.gcpProvider(),
		&token.Provider{}}
	if id.exchange.Endpoint != "" || id.exchange.IssuerURL != "" {
		list = append(list, id.exchangeProvider())
	} else if id.provider == exchange.ProviderName {
		return nil, usagef("--provider exchange needs --exchange-endpoint or --exchange-issuer")
	}
	return auth.NewProviderSet(list...)
}

// named returns the provider of --provider.
func (id *identity) named() (auth.Provider, error) {
	all := strings.Join(providerNames(), ", ") // a set has exchange only if it is asked for
	switch {
	case id.provider == "":
		return nil, usagef("name the provider with --provider, one of: %s", all)
	case !slices.Contains(providerNames(), id.provider):
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("there is no provider %.100q", id.provider),
			Remedy: "use one of: " + all}
	}
	set, err := id.providers()
	if err != nil {
		return nil, err
	}
	return set.Get(id.provider)
}

// at returns the provider of --provider, or the one whose host it is. knows returns an error for a host that is a provider's
// but cannot be used.
func (id *identity) at(what string, host string, knows func(p auth.Provider, o *auth.Options) (bool, error),
) (auth.Provider, error) {
	if id.provider != "" {
		return id.named()
	}
	set, err := id.providers()
	if err != nil {
		return nil, err
	}
	opts, err := id.options()
	if err != nil {
		return nil, err
	}
	var o auth.Options
	for _, opt := range opts {
		opt(&o)
	}
	for _, name := range set.Names() {
		p, err := set.Get(name)
		if err != nil {
			return nil, err
		}
		if ours, err := knows(p, &o); ours || err != nil {
			return p, err
		}
	}
	return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: errNotOurs,
		Message: fmt.Sprintf("%.300q is not %s of any provider, so it gets no credential", host, what),
		Remedy:  "set wid up for hosts of AWS, Azure and Google Cloud only"}
}

// errNotOurs is below the error for hosts that belong to nobody here.
var errNotOurs = errors.New("the host belongs to no provider")

func (id *identity) atRegistry(repository string) (auth.Provider, error) {
	return id.at("a registry", repository, func(p auth.Provider, o *auth.Options) (bool, error) {
		r, ok := p.(auth.ArtifactRegistryCredentialsProvider)
		if !ok {
			return false, nil
		}
		_, err := r.ParseArtifactRepository(repository, o)
		if err == nil {
			return true, nil
		}
		host, hostErr := auth.RegistryHost(repository)
		if owner, ok := p.(auth.RegistryOwner); ok && hostErr == nil && owner.OwnsRegistry(host) {
			return false, err
		}
		return false, nil
	})
}

func (id *identity) atRepository(u *url.URL) (auth.Provider, error) {
	return id.at("a Git repository", u.Redacted(), func(p auth.Provider, o *auth.Options) (bool, error) {
		g, ok := p.(auth.GitCredentialsProvider)
		if !ok || u.Scheme != "https" || u.User != nil {
			return false, nil
		}
		_, err := g.ParseGitRepository(u, o)
		return err == nil, nil
	})
}
