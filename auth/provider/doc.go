// Package provider defines the interface between package auth and the issuer of
// a credential: a cloud, a vault, a token service. Authors of providers import
// it. Controllers import package auth and a provider such as auth/aws instead.
//
// A [Provider] knows annotations and an exchange. Package auth reads the
// ServiceAccount, checks the policy, requests the token, caches the result and
// limits the load.
//
// The example of the package shows how a provider checks an annotation and the
// answer of its service, and which errors it returns.
// docs/writing-a-provider.md shows a whole provider, and
// authtest.RunConformance checks one.
//
// # Optional interfaces
//
// Package auth looks for further methods. [OptionsValidator] refuses options
// early, [CacheKeyContributor] adds inputs of the key, [TokenLifetimeProvider]
// reads a lifetime, [ChainedTokenProvider] exchanges one access token for the
// next. A provider makes derived credentials by
// [ArtifactRegistryCredentialsProvider] (and [RegistryOwner]),
// [RESTConfigProvider] and [GitCredentialsProvider].
//
// # Options of its own
//
// A provider builds options for callers with auth.WithProviderOption and reads
// them with [Options.Value]. For the access token of a derived credential it
// returns an [Option] itself: func(o *provider.Options) { o.Scopes = scopes },
// or [WithOption].
//
// # Errors
//
// A provider returns an [*Error] with a [Reason], which the methods of [Name]
// make. Any other error counts as [ErrUnavailable]. Package auth adds provider,
// ServiceAccount and operation, removes the subject token from the text, and
// names the annotations that the caller set.
package provider
