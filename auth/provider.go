package auth

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Provider knows how one kind of credential is obtained. Implementations are safe for concurrent use, keep neither the
// Options nor the ServiceAccount they are handed beyond the call, and change neither of them. They answer with *Error
// where they know the Reason; any other error counts as Unavailable.
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
	GetAudiences(ctx context.Context, serviceAccount corev1.ServiceAccount, opts *Options) ([]string, error)

	// GetIdentity returns the identity that the ServiceAccount's annotations ask for, in the provider's own
	// notation (a role ARN, a client ID, an e-mail address), or "" where the provider needs none. It works without
	// network access and refuses malformed annotations with ErrMisconfigured.
	GetIdentity(serviceAccount corev1.ServiceAccount, opts *Options) (string, error)

	// NewTokenForServiceAccount exchanges oidcToken, a token that the Kubernetes API server issued for the
	// ServiceAccount and that has the audiences of GetAudiences, for a credential of the provider.
	NewTokenForServiceAccount(ctx context.Context, oidcToken string, serviceAccount corev1.ServiceAccount,
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
	// AddToCacheKey adds the provider's inputs. serviceAccount is nil for the controller's own identity.
	AddToCacheKey(key *KeyBuilder, serviceAccount *corev1.ServiceAccount, opts *Options)
}

// TokenLifetimeProvider is implemented by providers whose users set the lifetime of the Kubernetes token with an
// annotation. Zero means that nothing was set. Options.TokenLifetime, set by the controller, wins.
type TokenLifetimeProvider interface {
	GetTokenLifetime(serviceAccount corev1.ServiceAccount, opts *Options) (time.Duration, error)
}
