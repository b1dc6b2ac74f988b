package auth

import "github.com/workloadid/workloadid/auth/provider"

// These types are declared in package provider, because providers make their
// values.
type (
	// Token is a short-lived credential. Its content differs from provider to
	// provider: the adapters and the function FromToken of each provider give
	// access to it. It is immutable, is shared between callers, and prints as a
	// redacted summary.
	//
	//	GetDuration() time.Duration // how long the credential is still valid, approximately from now
	Token = provider.Token
	// ArtifactRegistryCredentials are a Token and an authn.Authenticator of
	// go-containerregistry.
	ArtifactRegistryCredentials = provider.ArtifactRegistryCredentials
	// GitCredentials are a Token with the methods Username and Password, or
	// BearerToken.
	GitCredentials = provider.GitCredentials
	// RESTConfig is a Token with the methods Host, BearerToken and CAData.
	RESTConfig = provider.RESTConfig
	// Provider obtains one kind of credential, such as *aws.Provider. Package
	// provider says how to write one.
	Provider = provider.Provider
	// KubernetesClient is the part of the client of controller-runtime that
	// auth uses. Every client.Client is one. For a clientset of client-go,
	// package auth/clientgo makes one.
	KubernetesClient = provider.KubernetesClient
	// Error reports why a credential cannot be obtained, in the fields
	// Provider, ServiceAccount, Reason, Message, Remedy and others. Its text
	// holds no secret and is stable from one try to the next.
	Error = provider.Error
)

// The Reasons of an Error say what to do next. Each is a target for errors.Is.
const (
	// ErrMisconfigured means that a retry is pointless until an object or a
	// setting is edited.
	ErrMisconfigured = provider.ErrMisconfigured
	// ErrDenied means that a policy, Kubernetes or the provider refused. A
	// cached credential is dropped at the second refusal, at least half a
	// minute after the first, unless the controller lacks an RBAC rule.
	ErrDenied = provider.ErrDenied
	// ErrThrottled means that the service asks to slow down, or that a limit of
	// the token cache kept the exchange from starting (a *cache.LimitError). A
	// cached credential is kept while it is valid.
	ErrThrottled = provider.ErrThrottled
	// ErrUnavailable means that the service could not be reached, gave no
	// usable answer, or takes longer than the patience of the token cache (a
	// *cache.PendingError). A cached credential is kept while it is valid.
	ErrUnavailable = provider.ErrUnavailable
)

// as asserts the type of a credential that the cache holds under a key that
// only one Get function makes.
func as[T Token](token Token, err error) (T, error) {
	t, ok := token.(T)
	if err == nil && !ok {
		err = unavailable("", "the token cache holds something else; this is a bug in auth")
	}
	return t, err
}
