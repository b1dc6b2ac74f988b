package azure

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

// ProviderName is the name by which users pick this provider.
const ProviderName = "azure"

const self = provider.Name(ProviderName)

// Annotations of the ServiceAccount. They are those of Microsoft Entra Workload ID.
const (
	// ClientIDAnnotation names the application or the managed identity by its client ID, a GUID. Required.
	ClientIDAnnotation = annotation.AzureClientID
	// TenantIDAnnotation names the tenant that it lies in, a GUID or a domain. Default: AZURE_TENANT_ID.
	TenantIDAnnotation = annotation.AzureTenantID
	// TokenExpirationAnnotation is the lifetime of the ServiceAccount's token in seconds, at least 600.
	TokenExpirationAnnotation = annotation.AzureTokenExpiration
)

// DefaultAudience is the audience that federated credentials have unless told otherwise.
const DefaultAudience = azurename.FederatedAudience

// Provider implements auth.Provider for Azure. The zero value is ready for use. It keeps connections and what it has
// learned about its surroundings, so share one in the whole controller. It is safe for concurrent use if its fields are
// not changed any more.
type Provider struct {
	// AuthorityHost is the authority of calls that name none, such as https://login.microsoftonline.us. Empty: that of
	// the environment variable AZURE_AUTHORITY_HOST, else the public one.
	AuthorityHost string
	// PrivateClouds are clouds besides Microsoft's own. Their authorities may be named with WithAuthorityHost.
	PrivateClouds []Cloud
	// Audience replaces DefaultAudience, for clouds whose federated credentials have another one.
	Audience string

	transports transport.Pool
	chains     chains

	once    sync.Once
	learned surroundings
}

var (
	_ auth.Provider                            = (*Provider)(nil)
	_ auth.OptionsValidator                    = (*Provider)(nil)
	_ auth.CacheKeyContributor                 = (*Provider)(nil)
	_ auth.TokenLifetimeProvider               = (*Provider)(nil)
	_ auth.ArtifactRegistryCredentialsProvider = (*Provider)(nil)
	_ auth.RESTConfigProvider                  = (*Provider)(nil)
	_ auth.GitCredentialsProvider              = (*Provider)(nil)
)

// GetName returns ProviderName.
func (*Provider) GetName() string { return ProviderName }

// ValidateOptions refuses an authority that is not one.
func (p *Provider) ValidateOptions(opts *auth.Options) error {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return err
	}
	if opts.LendsOwnIdentity() && e != p.learn().standard {
		return self.Denied("name a ServiceAccount",
			"objects may not use the controller's own identity at the authority %.300q, which is not in the controller's cloud", authority)
	}
	if opts.ServiceAccount != nil || opts.SubjectServiceAccount != nil {
		return nil // GetIdentity knows the tenant
	}
	return checkTenant(p.learn().tenant, opts)
}

// AddToCacheKey implements auth.CacheKeyContributor.
func (p *Provider) AddToCacheKey(key *auth.KeyBuilder, _ *corev1.ServiceAccount, opts *auth.Options) {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return // ValidateOptions has refused the call
	}
	key.Add("azureAuthority", authority)
	if len(opts.Scopes) == 0 {
		key.AddList("azureScopes", e.defaultScopes)
	}
	key.Add("azureClaims", claimsOf(opts))
	if opts.ClusterResource != "" {
		key.Add("azureManagement", e.management)
	}
}

// GetAudiences returns DefaultAudience, or the Audience of the Provider.
func (p *Provider) GetAudiences(context.Context, *corev1.ServiceAccount, *auth.Options) ([]string, error) {
	s := p.learn()
	return s.audiences[:], nil
}

// GetIdentity returns "<tenant>/<client ID>".
func (p *Provider) GetIdentity(sa *corev1.ServiceAccount, opts *auth.Options) (string, error) {
	tenant, client, err := p.identity(sa, opts)
	if err != nil {
		return "", err
	}
	return tenant + "/" + client, nil
}

func (p *Provider) identity(sa *corev1.ServiceAccount, opts *auth.Options) (tenant, client string, err error) {
	client, ok := sa.Annotations[ClientIDAnnotation]
	if !ok {
		return "", "", self.Malformed(auth.CauseIdentityMissing, "set it to the client ID of an application or a managed identity",
			"the annotation %q is missing", ClientIDAnnotation)
	}
	if !azurename.ValidGUID(client) {
		return "", "", self.Malformed(auth.CauseIdentityMalformed, "set it to the client ID, not to the name or the resource ID of the identity",
			"the annotation %q%s is not a GUID: %.100q", ClientIDAnnotation, opts.CallersIdentity(ClientIDAnnotation), client)
	}
	tenant, ok = sa.Annotations[TenantIDAnnotation]
	if !ok {
		if tenant = p.learn().tenant; tenant == "" {
			return "", "", self.Malformed(auth.CauseIdentityMissing, "set it, or the environment variable AZURE_TENANT_ID",
				"the annotation %q is missing", TenantIDAnnotation)
		}
	}
	if !azurename.ValidTenant(tenant) {
		return "", "", self.Malformed(auth.CauseTargetMalformed, "set it to the GUID or to a domain of the tenant",
			"the tenant of the annotation %q%s or of AZURE_TENANT_ID is neither a GUID nor a domain: %.100q",
			TenantIDAnnotation, opts.CallersIdentity(TenantIDAnnotation), tenant)
	}
	return tenant, client, checkTenant(tenant, opts)
}

// GetTokenLifetime returns what TokenExpirationAnnotation says.
func (*Provider) GetTokenLifetime(sa *corev1.ServiceAccount, opts *auth.Options) (time.Duration, error) {
	return self.TokenLifetime(TokenExpirationAnnotation, sa, opts)
}
