package azure

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/azurename"
)

// ProviderName is the name by which users pick this provider.
const ProviderName = "azure"

const self = provider.Name(ProviderName)

// Annotations of the ServiceAccount, as in Microsoft Entra Workload ID.
const (
	// ClientIDAnnotation names the application or the managed identity by its
	// client ID, a GUID. Required.
	ClientIDAnnotation = annotation.AzureClientID
	// TenantIDAnnotation names the tenant that it lies in, a GUID or a domain.
	// Default: AZURE_TENANT_ID.
	TenantIDAnnotation = annotation.AzureTenantID
	// TokenExpirationAnnotation is the lifetime of the ServiceAccount's token
	// in seconds, at least 600.
	TokenExpirationAnnotation = annotation.AzureTokenExpiration
)

// DefaultAudience is the default audience of federated credentials in the
// public cloud. Azure China has DefaultAudience+"China", Azure US Government
// DefaultAudience+"USGov", and a private cloud [Cloud.Audience].
const DefaultAudience = azurename.FederatedAudience

// IdentityBindingAudience is the audience of ServiceAccount tokens for
// [Provider.IdentityBindings].
const IdentityBindingAudience = "api://AKSIdentityBinding"

// Provider implements [auth.Provider] for Azure. The zero value is ready for
// use. It keeps connections and reads the environment once, so share one in the
// whole controller. It is safe for concurrent use, as long as its fields stay
// unchanged.
type Provider struct {
	// AuthorityHost is the authority of calls that name none, such as
	// https://login.microsoftonline.us. Empty: the environment variable
	// AZURE_AUTHORITY_HOST, else the public authority.
	AuthorityHost string
	// PrivateClouds are clouds besides Microsoft's own. WithAuthorityHost
	// accepts their authorities.
	PrivateClouds []Cloud
	// Audience replaces the audience of ServiceAccount tokens for the cloud of
	// AuthorityHost. Calls that name the authority of another cloud keep the
	// audience of that cloud.
	Audience string
	// IdentityBindings sends the token requests of ServiceAccounts, and of the
	// controller's own workload identity, to the token proxy of the
	// controller's AKS cluster; the section Identity bindings says how it is
	// found. It excludes Audience, auth.WithHTTPClient, auth.WithProxyURL and
	// authorities of other clouds. Default: false, which ignores the proxy.
	IdentityBindings bool

	clients provider.HTTPClients

	once    sync.Once
	learned surroundings
}

var (
	_ auth.Provider                                = (*Provider)(nil)
	_ provider.OptionsValidator                    = (*Provider)(nil)
	_ provider.AnnotationReader                    = (*Provider)(nil)
	_ provider.CacheKeyContributor                 = (*Provider)(nil)
	_ provider.TokenLifetimeProvider               = (*Provider)(nil)
	_ provider.ArtifactRegistryCredentialsProvider = (*Provider)(nil)
	_ provider.RESTConfigProvider                  = (*Provider)(nil)
	_ provider.GitCredentialsProvider              = (*Provider)(nil)
)

// GetName returns [ProviderName].
func (*Provider) GetName() string { return ProviderName }

// ValidateOptions refuses an unknown authority, and what excludes
// IdentityBindings.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return err
	}
	if err := p.checkBinding(e, opts); err != nil {
		return err
	}
	if opts.OnBehalf && e != p.learn().standard {
		return self.Denied("name a ServiceAccount",
			"objects may not use the controller's own identity at the authority %.300q, which is not in the controller's cloud",
			authority)
	}
	if !opts.IsOwnIdentity() {
		return nil // GetIdentity knows the tenant
	}
	return checkTenant(p.learn().tenant, opts)
}

// GetAnnotations implements [provider.AnnotationReader].
func (*Provider) GetAnnotations() []string {
	return []string{ClientIDAnnotation, TenantIDAnnotation, TokenExpirationAnnotation}
}

// AddToCacheKey implements [provider.CacheKeyContributor].
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, opts *provider.Options) {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return // ValidateOptions has refused the call
	}
	key.Add("azureAuthority", authority)
	if len(opts.Scopes) == 0 {
		key.AddList("azureScopes", e.defaultScopes)
	}
	key.Add("azureClaims", claimsOf(opts))
	if proxy := p.learn().proxy; proxy != nil {
		key.AddList("azureTokenProxy", proxy.key)
	}
	if opts.ClusterResource != "" {
		key.Add("azureManagement", e.management)
	}
}

// GetAudiences returns the audience of the call's cloud, see [DefaultAudience]
// and the fields Audience. With IdentityBindings it is
// [IdentityBindingAudience].
func (p *Provider) GetAudiences(_ context.Context, _ *corev1.ServiceAccount, opts *provider.Options) ([]string, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	return e.audiences[:], nil
}

// GetIdentity returns "<tenant>/<client ID>".
func (p *Provider) GetIdentity(sa *corev1.ServiceAccount, opts *provider.Options) (string, error) {
	client, ok := sa.Annotations[ClientIDAnnotation]
	if !ok {
		return "", self.MisconfiguredAs(provider.CauseIdentityMissing,
			"set it to the client ID of an application or a managed identity",
			"the annotation %q is missing", ClientIDAnnotation)
	}
	if !azurename.ValidGUID(client) {
		return "", self.MisconfiguredAs(provider.CauseIdentityMalformed,
			"set it to the client ID, not to the name or the resource ID of the identity",
			"the annotation %q is not a GUID: %.100q", ClientIDAnnotation, client)
	}
	tenant, ok := sa.Annotations[TenantIDAnnotation]
	if !ok {
		if tenant = p.learn().tenant; tenant == "" {
			return "", self.MisconfiguredAs(provider.CauseIdentityMissing, "set it, or the environment variable AZURE_TENANT_ID",
				"the annotation %q is missing", TenantIDAnnotation)
		}
	}
	if !azurename.ValidTenant(tenant) {
		return "", self.MisconfiguredAs(provider.CauseTargetMalformed, "set it to the GUID or to a domain of the tenant",
			"the tenant of the annotation %q or of AZURE_TENANT_ID is neither a GUID nor a domain: %.100q",
			TenantIDAnnotation, tenant)
	}
	if err := checkTenant(tenant, opts); err != nil {
		return "", err
	}
	return tenant + "/" + client, nil
}

// GetTokenLifetime returns what [TokenExpirationAnnotation] says.
func (*Provider) GetTokenLifetime(sa *corev1.ServiceAccount, _ *provider.Options) (time.Duration, error) {
	return self.TokenLifetime(TokenExpirationAnnotation, sa)
}
