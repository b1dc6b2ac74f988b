package auth

import (
	"context"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/workloadid/workloadid/auth/provider"
)

const opRegistry = "get artifact registry credentials"

// GetArtifactRegistryCredentials returns credentials for the registry of an
// artifact repository, such as
// "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app". The provider refuses
// registries that are not its own, with [ErrMisconfigured]: no other registry
// receives the credentials. [NewKeychain] picks the provider by the registry.
//
// Policy, cache and errors work as in [GetAccessToken]. Cached credentials cost
// one lookup and need no access token. It is safe for concurrent use.
func GetArtifactRegistryCredentials(ctx context.Context, provider Provider, artifactRepository string, opts ...Option,
) (*ArtifactRegistryCredentials, error) {
	return as[*ArtifactRegistryCredentials](get(ctx, provider, opRegistry, opts, registryOf(artifactRepository)))
}

func registryOf(artifactRepository string) derivation {
	return func(p Provider, o *Options) (*product, error) {
		r, ok := p.(provider.ArtifactRegistryCredentialsProvider)
		if !ok {
			return nil, incapable(p, "artifact registries")
		}
		input, err := r.ParseArtifactRepository(artifactRepository, &o.Options)
		return newProduct("registry", p, o, input, err, r.GetAccessTokenOptionsForArtifactRepository,
			r.NewArtifactRegistryCredentials)
	}
}

// Keychain is a keychain of go-containerregistry for the registries of its
// providers. It is safe for concurrent use.
type Keychain struct {
	// Strict makes Resolve fail for a registry that no provider knows, instead
	// of anonymous access. Set it before the first use.
	Strict bool

	providers *ProviderSet
	adapter   *adapter // without a provider
}

var (
	_ authn.Keychain        = (*Keychain)(nil)
	_ authn.ContextKeychain = (*Keychain)(nil)
)

// NewKeychain returns a keychain that gets the credentials of a registry with
// [GetArtifactRegistryCredentials] and the given options. The registry's host
// selects the provider. All other registries get anonymous access, or with
// Strict an error. Combine it with others by authn.NewMultiKeychain. Where an
// object names the provider, use [NewRegistryAuthenticator].
//
//	keychain := auth.NewKeychain(providers, auth.WithServiceAccount(sa, kubeClient), auth.WithCache(tokenCache, object))
//	image, err := remote.Image(ref, remote.WithAuthFromKeychain(keychain), remote.WithContext(ctx))
func NewKeychain(providers *ProviderSet, opts ...Option) *Keychain {
	return &Keychain{providers: providers, adapter: newAdapter(nil, opts)}
}

// Invalidate replaces the credentials of all registries, as [WithInvalidBefore]
// of this moment does. Call it when a registry has refused one.
func (k *Keychain) Invalidate() { k.adapter.invalidate(time.Now()) }

// resolveTimeout bounds the two methods without a context.
const resolveTimeout = time.Minute

// Resolve implements authn.Keychain. It gives up after a minute.
func (k *Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return k.ResolveContext(ctx, target)
}

// ResolveContext implements authn.ContextKeychain. If a provider's credentials
// cannot be obtained, it returns an error, never anonymous access. The result
// asks the cache again at each use, so that a pull may take longer than the
// lifetime of a credential.
func (k *Keychain) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	o := &Options{}
	o.apply(k.adapter.opts)
	provider, err := k.providerOf(target.RegistryStr(), o)
	switch {
	case err != nil:
		return nil, err
	case provider == nil && k.Strict:
		err := misconfigured("use a registry of one of them, or no provider for this one",
			"the registry %.300q belongs to none of the providers %q", target.RegistryStr(), k.providers.Names())
		return nil, describe(err, "", opRegistry, o.subject())
	case provider == nil:
		return authn.Anonymous, nil
	}
	a := &RegistryAuthenticator{provider: provider, registry: target.RegistryStr(), adapter: k.adapter}
	if _, err := a.credentials(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// providerOf returns the provider of a registry, nil if no provider knows it.
func (k *Keychain) providerOf(registry string, o *Options) (Provider, error) {
	host, err := provider.RegistryHost(registry)
	if err != nil {
		return nil, nil //nolint:nilerr // a malformed host belongs to no provider
	}
	for _, p := range k.providers.providers {
		r, ok := p.(provider.ArtifactRegistryCredentialsProvider)
		if !ok {
			continue
		}
		_, err := r.ParseArtifactRepository(registry, &o.Options)
		if err == nil {
			return p, nil
		}
		if owner, ok := p.(provider.RegistryOwner); ok && owner.OwnsRegistry(host) {
			return nil, describe(err, p.GetName(), opRegistry, o.subject())
		}
	}
	return nil, nil
}

// RegistryAuthenticator gets the credentials of one registry with
// [GetArtifactRegistryCredentials], at each use. It is safe for concurrent use.
type RegistryAuthenticator struct {
	provider Provider
	registry string
	adapter  *adapter
	ofCall   []Option
}

var _ authn.ContextAuthenticator = (*RegistryAuthenticator)(nil)

// NewRegistryAuthenticator returns an authenticator of go-containerregistry for
// the registry of an artifact repository and the provider that an object names.
// The authenticator fails with [ErrMisconfigured] when it is used if the
// registry is not the provider's. It waits no longer than
// [GetArtifactRegistryCredentials] does for a service that hangs; a Keychain
// waits for as long as the context allows.
//
//	image, err := remote.Image(ref, remote.WithAuth(auth.NewRegistryAuthenticator(provider, ref.Context().Name(), opts...)), remote.WithContext(ctx))
func NewRegistryAuthenticator(provider Provider, artifactRepository string, opts ...Option) *RegistryAuthenticator {
	// A reconciler tries a pull again, so a service that hangs holds none of
	// its workers.
	return &RegistryAuthenticator{provider: provider, registry: artifactRepository,
		adapter: newAdapter(provider, opts), ofCall: []Option{impatient}}
}

// Invalidate replaces the credentials, as [WithInvalidBefore] of this moment
// does. Call it when the registry has refused one.
func (a *RegistryAuthenticator) Invalidate() { a.adapter.invalidate(time.Now()) }

func (a *RegistryAuthenticator) credentials(ctx context.Context) (*ArtifactRegistryCredentials, error) {
	return GetArtifactRegistryCredentials(ctx, a.provider, a.registry, a.adapter.options(a.ofCall...)...)
}

// Authorization implements authn.Authenticator.
func (a *RegistryAuthenticator) Authorization() (*authn.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return a.AuthorizationContext(ctx)
}

// AuthorizationContext implements authn.ContextAuthenticator.
func (a *RegistryAuthenticator) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	credentials, err := a.credentials(ctx)
	if err != nil {
		return nil, err
	}
	return credentials.Authorization()
}
