package auth

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Provider knows how one kind of credential is obtained. Implementations are safe for concurrent use, keep neither the
// Options nor the ServiceAccount they are handed beyond the call, and change neither of them. They answer with *Error
// where they know the Reason; any other error counts as Unavailable.
//
// ServiceAccounts are shared, with the memory of an informer for instance: writing to one would be a data race and would change
// what everybody else sees.
//
// authtest.RunConformance checks an implementation against this contract.
type Provider interface {
	// GetName returns the name by which users pick the provider, such as "aws". It never changes.
	GetName() string

	// NewControllerToken returns a credential for the controller's own identity, found where the provider's
	// libraries look for it: mounted files, environment variables, metadata services.
	NewControllerToken(ctx context.Context, opts *Options) (Token, error)

	// GetAudiences returns the audiences that a Kubernetes token must have to be exchanged by this provider. An
	// audience that a tenant can choose freely has to pass Options.CheckAudience first. It must not depend on
	// anything but its arguments and on what the provider has learned once about its surroundings.
	GetAudiences(ctx context.Context, serviceAccount *corev1.ServiceAccount, opts *Options) ([]string, error)

	// GetIdentity returns the identity that the ServiceAccount's annotations ask for, in the provider's own
	// notation (a role ARN, a client ID, an e-mail address), or "" where the provider needs none. It works without
	// network access and refuses malformed annotations with ErrMisconfigured.
	GetIdentity(serviceAccount *corev1.ServiceAccount, opts *Options) (string, error)

	// NewTokenForServiceAccount exchanges oidcToken, a token that the Kubernetes API server issued for the
	// ServiceAccount and that has the audiences of GetAudiences, for a credential of the provider.
	NewTokenForServiceAccount(ctx context.Context, oidcToken string, serviceAccount *corev1.ServiceAccount,
		opts *Options) (Token, error)
}

// OptionsValidator is implemented by providers that can refuse options before anything is asked of the network.
// It runs on every call, also when the credential is cached, so it has to be quick.
type OptionsValidator interface {
	ValidateOptions(opts *Options) error
}

// CacheKeyContributor is implemented by providers whose credentials depend on more than the Options, the identity and
// the audiences: on fields of the provider value, say, or on further annotations. Whatever shapes the credential must
// be added.
type CacheKeyContributor interface {
	// AddToCacheKey adds the provider's inputs. serviceAccount is nil for the controller's own identity, and otherwise
	// shared: it must not be written to.
	AddToCacheKey(key *KeyBuilder, serviceAccount *corev1.ServiceAccount, opts *Options)
}

// TokenLifetimeProvider is implemented by providers whose users set the lifetime of the Kubernetes token with an
// annotation. Zero means that nothing was set. Options.TokenLifetime, set by the controller, wins. The ServiceAccount is
// shared: it must not be written to.
type TokenLifetimeProvider interface {
	GetTokenLifetime(serviceAccount *corev1.ServiceAccount, opts *Options) (time.Duration, error)
}

// ChainedTokenProvider is implemented by providers that exchange one access token for the next, as AWS does with role
// chaining. The cache keeps every token of a chain, so chains that begin alike share the exchanges of their beginning.
type ChainedTokenProvider interface {
	// GetChain returns the identities after the first one, in order, for Policy.Authorize. Nil: there is no chain.
	GetChain(opts *Options) []string

	// GetAccessTokenOptionsForChain returns the options that the token before the last one needs in addition to the caller's:
	// with them, GetChain returns one identity less. Nil: there is no chain. It depends on nothing but its arguments.
	GetAccessTokenOptionsForChain(opts *Options) []Option

	// NewChainedToken exchanges previous, the token before the last one, for that of the last identity.
	NewChainedToken(ctx context.Context, previous Token, opts *Options) (Token, error)

	// RefusesPrevious reports whether an error of NewChainedToken says that the service does not accept previous, because its
	// identity was deleted, say. The next call replaces it then.
	RefusesPrevious(err error) bool
}

// ArtifactRegistryCredentialsProvider is implemented by providers whose cloud has artifact registries.
type ArtifactRegistryCredentialsProvider interface {
	Provider

	// ParseArtifactRepository makes sure that a repository, as RegistryHost accepts it, lies in a registry of this
	// provider, and returns what the credentials depend on: the registry's host or its region, say. That is part of the
	// cache key. It compares hosts whole, because the credentials are sent there. It runs on every call, also when the
	// credentials are cached, so it has to be quick.
	ParseArtifactRepository(artifactRepository string, opts *Options) (registryInput string, err error)

	// GetAccessTokenOptionsForArtifactRepository returns the options that the access token for the registry needs in
	// addition to the caller's, such as scopes. It depends on nothing but its arguments.
	GetAccessTokenOptionsForArtifactRepository(registryInput string, opts *Options) ([]Option, error)

	// NewArtifactRegistryCredentials turns an access token into credentials of the registry.
	NewArtifactRegistryCredentials(ctx context.Context, registryInput string, accessToken Token, opts *Options,
	) (*ArtifactRegistryCredentials, error)
}

// RegistryOwner is implemented by providers that know registries of theirs that they refuse as the options are, such as
// those of another of their clouds: a Keychain tells that then, instead of being anonymous.
type RegistryOwner interface {
	// OwnsRegistry reports whether host, as RegistryHost returns it, is a registry of the provider's.
	OwnsRegistry(host string) bool
}

// RESTConfigProvider is implemented by providers that give access to Kubernetes clusters.
type RESTConfigProvider interface {
	Provider

	// GetAccessTokenOptionsForCluster describes access to the cluster. It depends on nothing but its arguments and refuses a
	// ClusterResource that is malformed. It runs on every call, also when the access is cached, so it has to be quick.
	GetAccessTokenOptionsForCluster(opts *Options) (ClusterAccess, error)

	// NewRESTConfig returns access to the cluster that opts names. accessTokens are in the order of
	// ClusterAccess.AccessTokens. In opts, ClusterAddress is canonical (ParseClusterAddress) and CAData holds
	// certificates, if they are set at all; which of the two and of ClusterResource may be set together has been checked.
	//
	// If the address was given along with the cluster, it is one of the cluster's own, unless CAData was given too
	// (ClusterAccess.TakesAll). If CAData was given, it wins.
	NewRESTConfig(ctx context.Context, accessTokens []Token, opts *Options) (*RESTConfig, error)
}

// ClusterAccess describes what access to a cluster needs and depends on. AccessTokens is required.
type ClusterAccess struct {
	// AccessTokens are the options that the access tokens need in addition to the caller's, one list for each token: one to ask
	// the cloud about the cluster, say, and one for the cluster itself.
	AccessTokens [][]Option
	// CacheKey is what the access depends on beyond the Options and the access tokens: an option of the provider's own, say,
	// which then needs no place in the access tokens' key.
	CacheKey string
	// OneCluster says that the access tokens are of no use anywhere but in this cluster, because their audience is its address,
	// say. Objects may then use the controller's own identity without Policy.AllowCluster.
	OneCluster bool
	// TakesAll says that the credential needs ClusterResource even if ClusterAddress and CAData are known. The provider takes all
	// three together then, and address and CA as given. Otherwise GetRESTConfig refuses the third.
	TakesAll bool
}

// GitCredentialsProvider is implemented by providers whose cloud has Git repositories.
type GitCredentialsProvider interface {
	Provider

	// ParseGitRepository makes sure that the URL is that of a repository of this provider, and returns what the
	// credentials depend on. That is part of the cache key. It compares hosts whole, because the credentials are sent
	// there; scheme https, user, query and fragment have been checked already. It runs on every call.
	ParseGitRepository(gitURL *url.URL, opts *Options) (gitInput string, err error)

	// GetAccessTokenOptionsForGitRepository returns the options that the access token needs in addition to the caller's.
	// It depends on nothing but its arguments.
	GetAccessTokenOptionsForGitRepository(gitInput string, opts *Options) ([]Option, error)

	// NewGitCredentials turns an access token into credentials for the repository.
	NewGitCredentials(ctx context.Context, gitInput string, accessToken Token, opts *Options) (*GitCredentials, error)
}

// ProviderSet picks providers by name, as users write it in their objects. It holds the values it was given and
// nothing else, and is safe for concurrent use.
type ProviderSet struct {
	providers []Provider
}

// NewProviderSet returns the set of the given providers. Their names must be different and not empty.
func NewProviderSet(providers ...Provider) (*ProviderSet, error) {
	set := &ProviderSet{}
	for _, p := range providers {
		if p == nil {
			return nil, misconfigured("leave it out", "a provider is nil")
		}
		name := p.GetName()
		if name == "" {
			return nil, misconfigured("have GetName return a constant", "a provider (%T) has no name", p)
		}
		if slices.Contains(set.Names(), name) {
			return nil, misconfigured("configure one of them", "two providers are called %q", name)
		}
		set.providers = append(set.providers, p)
	}
	return set, nil
}

// Get returns the provider of that name. An unknown name is ErrMisconfigured, there is no default.
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
