package auth

import (
	"context"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Keychain is a keychain of go-containerregistry that knows the registries of its providers. It is safe for concurrent use.
type Keychain struct {
	providers   *ProviderSet
	opts        []Option
	invalidated invalidation
}

var (
	_ authn.Keychain        = (*Keychain)(nil)
	_ authn.ContextKeychain = (*Keychain)(nil)
)

// NewKeychain returns a keychain that gets the credentials of a registry with GetArtifactRegistryCredentials and the given
// options, from the provider that knows the registry by its host. For all other registries it is anonymous: they never get
// to see a credential. Combine it with others by authn.NewMultiKeychain.
//
//	keychain := auth.NewKeychain(providers, auth.WithServiceAccount(sa, kubeClient), auth.WithCache(tokenCache, object))
//	image, err := remote.Image(ref, remote.WithAuthFromKeychain(keychain), remote.WithContext(ctx))
func NewKeychain(providers *ProviderSet, opts ...Option) *Keychain {
	k := &Keychain{providers: providers}
	k.opts = k.invalidated.observedBy(opts)
	return k
}

// Invalidate has the credentials of all registries replaced, as WithInvalidBefore of this moment does, because a registry has
// refused one.
func (k *Keychain) Invalidate() { k.invalidated.set(time.Now()) }

// resolveTimeout bounds what the two methods without a context do.
const resolveTimeout = time.Minute

// Resolve implements authn.Keychain. It gives up after a minute.
func (k *Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return k.ResolveContext(ctx, target)
}

// ResolveContext implements authn.ContextKeychain. Credentials that cannot be had are an error, never anonymous access. The
// result asks the cache again whenever it is used, so that a pull may take longer than a credential lives.
func (k *Keychain) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	provider, err := k.providerOf(target.RegistryStr())
	if err != nil {
		return nil, err
	}
	if provider == nil {
		return authn.Anonymous, nil
	}
	credentials, err := GetArtifactRegistryCredentials(ctx, provider, target.RegistryStr(), k.opts...)
	if err != nil {
		return nil, err
	}
	a := &registryAuthenticator{keychain: k, provider: provider, registry: target.RegistryStr()}
	if !a.cached() {
		return credentials, nil
	}
	return a, nil
}

// providerOf returns the provider of a registry, nil for a stranger's.
func (k *Keychain) providerOf(registry string) (Provider, error) {
	host, err := RegistryHost(registry)
	if err != nil {
		return nil, nil //nolint:nilerr // what is no host is nobody's
	}
	o := k.options()
	for _, p := range k.providers.providers {
		r, ok := p.(ArtifactRegistryCredentialsProvider)
		if !ok {
			continue
		}
		_, err := r.ParseArtifactRepository(registry, o)
		if err == nil {
			return p, nil
		}
		if owner, ok := p.(RegistryOwner); ok && owner.OwnsRegistry(host) {
			return nil, describe(err, p.GetName(), opRegistry, (&request{opts: *o}).subject())
		}
	}
	return nil, nil
}

func (k *Keychain) options() *Options {
	o := &Options{}
	for _, opt := range k.opts {
		if opt != nil {
			opt(o)
		}
	}
	return o
}

// registryAuthenticator gets the credentials of one registry whenever they are needed.
type registryAuthenticator struct {
	keychain *Keychain
	provider Provider
	registry string
}

var _ authn.ContextAuthenticator = (*registryAuthenticator)(nil)

func (a *registryAuthenticator) cached() bool { return a.keychain.options().Cache.Enabled() }

// Authorization implements authn.Authenticator.
func (a *registryAuthenticator) Authorization() (*authn.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return a.AuthorizationContext(ctx)
}

// AuthorizationContext implements authn.ContextAuthenticator.
func (a *registryAuthenticator) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	credentials, err := GetArtifactRegistryCredentials(ctx, a.provider, a.registry, a.keychain.opts...)
	if err != nil {
		return nil, err
	}
	return credentials.Authorization()
}
