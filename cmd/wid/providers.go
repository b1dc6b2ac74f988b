package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
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

func providerNames() []string {
	return []string{aws.ProviderName, azure.ProviderName, gcp.ProviderName, token.ProviderName, exchange.ProviderName}
}

// checkProvider accepts the name of a provider in any case.
func (id *identity) checkProvider() error {
	id.provider = strings.ToLower(id.provider)
	if id.provider != "" && !slices.Contains(providerNames(), id.provider) {
		return &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("there is no provider %.100q", id.provider),
			Remedy: "use one of: " + strings.Join(providerNames(), ", ")}
	}
	return nil
}

// named returns the provider of --provider.
func (id *identity) named() (auth.Provider, error) {
	if id.provider == "" {
		return nil, usagef("name the provider with --provider, one of: %s", strings.Join(providerNames(), ", "))
	}
	set, err := id.providers()
	if err != nil {
		return nil, err
	}
	return set.Get(id.provider)
}

// resolveNamed is resolve for commands whose provider is that of --provider, or the only cloud in the ServiceAccount's annotations.
func (id *identity) resolveNamed(ctx context.Context, cmd *cobra.Command) (*source, auth.Provider, error) {
	if id.provider != "" || id.serviceAccount == "" && !id.hasToken() {
		if _, err := id.named(); err != nil { // before any request
			return nil, nil, err
		}
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, nil, err
	}
	if id.provider == "" {
		if err := id.detect(s); err != nil {
			return nil, nil, err
		}
	}
	provider, err := id.named()
	return s, provider, err
}

// detect sets --provider from the annotations.
func (id *identity) detect(s *source) error {
	if s.readErr != nil {
		return answerOf(s.readErr, fmt.Sprintf("read ServiceAccount %q", id.serviceAccount))
	}
	var found []string
	for _, cloud := range [][]string{{aws.ProviderName, aws.RoleARNAnnotation}, {azure.ProviderName, azure.ClientIDAnnotation},
		{gcp.ProviderName, gcp.ServiceAccountAnnotation, gcp.WorkloadIdentityProviderAnnotation}} {
		if slices.ContainsFunc(cloud[1:], func(key string) bool { return s.serviceAccount.Annotations[key] != "" }) {
			found = append(found, cloud[0])
		}
	}
	name := client.ObjectKeyFromObject(s.serviceAccount).String()
	switch len(found) {
	case 0:
		return usagef("ServiceAccount %q has no annotation of a cloud: annotate it, or name the provider with --provider, one of: %s", name, strings.Join(providerNames(), ", "))
	case 1:
		if err := id.flags.Set("provider", found[0]); err != nil {
			return err
		}
		return id.checkGiven(id.provider)
	}
	return usagef("ServiceAccount %q has annotations of %s: pick one with --provider", name, strings.Join(found, " and "))
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

// errNotOurs is wrapped by errors for hosts of no known provider.
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
