package provider

import (
	"context"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Provider obtains one kind of credential. Implementations are safe for
// concurrent use, and neither change nor keep the [Options] and the
// ServiceAccount beyond the call. They return an [*Error] if they know the
// [Reason]; any other error counts as Unavailable.
//
// ServiceAccounts are shared, with the memory of an informer for instance:
// writing to one would be a data race.
//
// authtest.RunConformance checks an implementation against this contract.
type Provider interface {
	// GetName returns the name by which users pick the provider, such as "aws".
	// It never changes.
	GetName() string

	// NewControllerToken returns a credential for the controller's own
	// identity, found where the provider's libraries look for it: mounted
	// files, environment variables, metadata services.
	NewControllerToken(ctx context.Context, opts *Options) (Token, error)

	// GetAudiences returns the audiences that a Kubernetes token must have to
	// be exchanged by this provider. An audience that a tenant can choose
	// freely has to pass Options.CheckAudience first. The result depends only
	// on the arguments and on what the provider has learned once about its
	// environment.
	GetAudiences(ctx context.Context, serviceAccount *corev1.ServiceAccount, opts *Options) ([]string, error)

	// GetIdentity returns the identity that the ServiceAccount's annotations
	// request, in the provider's own notation: a role ARN, a client ID, an
	// e-mail address. It returns "" if the provider needs none. It works
	// without network access and refuses malformed annotations with
	// ErrMisconfigured.
	GetIdentity(serviceAccount *corev1.ServiceAccount, opts *Options) (string, error)

	// NewTokenForServiceAccount exchanges oidcToken for a credential of the
	// provider. The Kubernetes API server issued oidcToken for the
	// ServiceAccount, with the audiences of GetAudiences.
	//
	// An auth.SubjectIssuer may have issued the token instead: see
	// Options.SubjectClaim. For the controller's own identity, serviceAccount
	// then has neither namespace nor name, and its annotations are the
	// controller's.
	NewTokenForServiceAccount(ctx context.Context, oidcToken string, serviceAccount *corev1.ServiceAccount,
		opts *Options) (Token, error)
}

// OptionsValidator is implemented by providers that can refuse options before
// anything is asked of the network. It runs on every call, also when the
// credential is cached, so it has to be quick.
type OptionsValidator interface {
	ValidateOptions(opts *Options) error
}

// CacheKeyContributor is implemented by providers whose credentials depend on
// more than the [Options], the identity and the audiences. Other inputs are
// fields of the provider value or further annotations, for example. Every such
// input must be added.
type CacheKeyContributor interface {
	// AddToCacheKey adds the provider's inputs. serviceAccount is nil for the
	// controller's own identity, and otherwise shared: it must not be written
	// to.
	AddToCacheKey(key KeyBuilder, serviceAccount *corev1.ServiceAccount, opts *Options)
}

// AnnotationReader is implemented by providers that read annotations of
// ServiceAccounts. auth.ServiceAccountTransform keeps no other.
type AnnotationReader interface {
	// GetAnnotations returns the name of every annotation that the provider
	// reads. It depends on nothing but the fields of the provider.
	GetAnnotations() []string
}

// TokenLifetimeProvider is implemented by providers whose users set the
// lifetime of the Kubernetes token with an annotation. Zero means that nothing
// was set. [Options.TokenLifetime], set by the controller, wins. The
// ServiceAccount is shared: it must not be written to.
type TokenLifetimeProvider interface {
	GetTokenLifetime(serviceAccount *corev1.ServiceAccount, opts *Options) (time.Duration, error)
}

// ChainedTokenProvider is implemented by providers that exchange one access
// token for the next, as AWS does with role chaining. The cache keeps every
// token of a chain, so chains that begin alike share the exchanges of their
// beginning.
type ChainedTokenProvider interface {
	// GetChain returns the identities after the first one, in order, for
	// Policy.Authorize. Nil means that the call has no chain.
	GetChain(opts *Options) []string

	// GetAccessTokenOptionsForChain returns the options that the token before
	// the last one needs in addition to the caller's. With them, GetChain
	// returns one identity less. Nil means that the call has no chain. The
	// result depends only on the arguments.
	GetAccessTokenOptionsForChain(opts *Options) []Option

	// NewChainedToken exchanges previous, the token before the last one, for
	// the last identity's token.
	NewChainedToken(ctx context.Context, previous Token, opts *Options) (Token, error)

	// RefusesPrevious reports whether an error of NewChainedToken means that
	// the service does not accept previous, for example because its identity
	// was deleted. The next call then replaces it.
	RefusesPrevious(err error) bool
}

// ArtifactRegistryCredentialsProvider is implemented by providers whose cloud
// has artifact registries.
type ArtifactRegistryCredentialsProvider interface {
	Provider

	// ParseArtifactRepository refuses a repository, as RegistryHost accepts it,
	// outside of this provider's registries. It returns the input of the
	// credentials, such as the registry's host or region, which becomes part of
	// the cache key. It compares whole hosts, because the credentials are sent
	// there. It runs on every call, also on cache hits, so it has to be quick.
	ParseArtifactRepository(artifactRepository string, opts *Options) (registryInput string, err error)

	// GetAccessTokenOptionsForArtifactRepository returns the options that the
	// access token for the registry needs in addition to the caller's, such as
	// scopes. It depends on nothing but its arguments.
	GetAccessTokenOptionsForArtifactRepository(registryInput string, opts *Options) ([]Option, error)

	// NewArtifactRegistryCredentials turns an access token into credentials of
	// the registry.
	NewArtifactRegistryCredentials(ctx context.Context, registryInput string, accessToken Token, opts *Options,
	) (*ArtifactRegistryCredentials, error)
}

// RegistryOwner is implemented by providers that refuse some of their own
// registries because of the options, such as registries of another of their
// clouds. A Keychain then returns the error instead of anonymous access.
type RegistryOwner interface {
	// OwnsRegistry reports whether host, as RegistryHost returns it, is a
	// registry of the provider.
	OwnsRegistry(host string) bool
}

// RESTConfigProvider is implemented by providers that give access to Kubernetes
// clusters.
type RESTConfigProvider interface {
	Provider

	// GetAccessTokenOptionsForCluster describes access to the cluster. It
	// depends on nothing but its arguments and refuses a malformed
	// ClusterResource. It runs on every call, also on cache hits, so it has to
	// be quick.
	GetAccessTokenOptionsForCluster(opts *Options) (ClusterAccess, error)

	// NewRESTConfig returns access to the cluster that opts names. accessTokens
	// are in the order of ClusterAccess.AccessTokens. In opts, ClusterAddress
	// is canonical (ParseClusterAddress) and CAData holds certificates, if they
	// are set at all; which of the two and of ClusterResource may be set
	// together has been checked.
	//
	// If the address was given along with the cluster, it is one of the
	// cluster's own, unless CAData was given too (ClusterAccess.TakesAll). If
	// CAData was given, it wins.
	NewRESTConfig(ctx context.Context, accessTokens []Token, opts *Options) (*RESTConfig, error)
}

// ClusterAccess describes what access to a cluster needs and depends on.
// AccessTokens is required.
type ClusterAccess struct {
	// AccessTokens are the options that the access tokens need in addition to
	// the caller's, one list for each token: for example one to ask the cloud
	// about the cluster, and one for the cluster itself.
	AccessTokens [][]Option
	// CacheKey is the input of the access beyond the Options and the access
	// tokens, such as an option of the provider's own.
	CacheKey string
	// OneCluster reports that only this cluster accepts the access tokens,
	// because their audience is its address for example. Objects may then use
	// the controller's own identity without Policy.AllowCluster.
	OneCluster bool
	// TakesAll reports that the credential needs ClusterResource even if
	// ClusterAddress and CAData are known. The provider then takes all three
	// together, and address and CA as given. Otherwise GetRESTConfig refuses
	// the third.
	TakesAll bool
}

// GitCredentialsProvider is implemented by providers whose cloud has Git
// repositories.
type GitCredentialsProvider interface {
	Provider

	// ParseGitRepository refuses the URL of a repository that is not the
	// provider's. It returns the input of the credentials, which becomes part
	// of the cache key. It compares whole hosts, because the credentials are
	// sent there. The URL has scheme https and neither user, query nor
	// fragment. It runs on every call.
	ParseGitRepository(gitURL *url.URL, opts *Options) (gitInput string, err error)

	// GetAccessTokenOptionsForGitRepository returns the options that the access
	// token needs in addition to the caller's. It depends on nothing but its
	// arguments.
	GetAccessTokenOptionsForGitRepository(gitInput string, opts *Options) ([]Option, error)

	// NewGitCredentials turns an access token into credentials for the
	// repository.
	NewGitCredentials(ctx context.Context, gitInput string, accessToken Token, opts *Options) (*GitCredentials, error)
}
