package cloudtest

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// Azure is the Microsoft side of a [Cloud]: Microsoft Entra ID with tenants and
// their applications, container registries, Azure Resource Manager with
// clusters, Git repositories of Azure DevOps, containers of Blob storage, and
// the metadata service of a machine. Tenants belong to the public cloud unless
// [Azure.AddTenant] names another.
//
// It does not imitate: users and consent; discovery of instances; roles other
// than the lists of client IDs in its parameters; shared keys and signatures of
// Blob storage, its blobs other than block blobs, blocks, leases and ranges;
// eventual consistency; conditional access, apart from [AzureIdentity.Claims].
// It does not sign access tokens: tokens for Azure Resource Manager and
// Microsoft Graph have claims, the others are opaque. Managed identities and
// applications are alike. The real answer to a wrong signature with a published
// key is not known for sure.
type Azure struct {
	cloud *Cloud

	mu           sync.Mutex
	environments []azurename.Cloud
	tenants      map[string]*azureTenant // by lower-case GUID or domain
	issuers      map[string]*oidcProvider
	registries   map[string]AzureRegistry // by host
	clusters     map[string]AzureCluster  // by lower-case path
	repositories map[string][]string      // client IDs by path
	machine      *azureTenantClient
	tokens       map[string]AzureIdentity
	storage      map[string]map[string]*azureContainer // by account and name
}

type azureTenant struct {
	name      string // as it was added first
	authority string // the first host of its cloud
	apps      map[string]*azureApp
	resources []string // that AddResource registered
}

type azureApp struct {
	clientID, objectID string
	federated          []FederatedCredential
	secret             string
	certificate        *x509.Certificate
}

type azureTenantClient struct{ tenant, clientID string }

// FederatedCredential makes an application trust tokens of an issuer.
type FederatedCredential struct {
	// Issuer, Subject and Audience are compared exactly.
	Issuer, Subject, Audience string
	// Fetch gets the issuer's documents, see AWS.AddOIDCProvider.
	Fetch *http.Client
}

// AzureRegistry is a container registry.
type AzureRegistry struct {
	// Tenant issues the tokens that the registry accepts.
	Tenant string
	// Pull lists the client IDs of the identities that may pull.
	Pull []string
	// Handler serves authorized requests for /v2/ and below. Nil: an empty
	// registry.
	Handler http.Handler
}

// AzureCluster is an AKS cluster.
type AzureCluster struct {
	// Tenant is the tenant of its subscription.
	Tenant string
	// Users lists the client IDs of the identities that may read the cluster
	// and list its user credential.
	Users []string
	// Addresses are the servers of its kubeconfigs, one in each.
	Addresses []string
	// FQDN and PrivateFQDN are its names. If FQDN is empty, it is the host of
	// the first address. If PrivateFQDN is empty, the cluster has no private
	// name.
	FQDN, PrivateFQDN string
	// CA is its CA in PEM.
	CA []byte
	// WithoutEntra turns the integration with Microsoft Entra ID off.
	WithoutEntra bool
	// ProvisioningState is "Succeeded" if empty. A cluster in state "Creating"
	// has no names and no kubeconfigs.
	ProvisioningState string
}

func newAzure(c *Cloud) *Azure {
	return &Azure{cloud: c, environments: azurename.Clouds(), tenants: map[string]*azureTenant{},
		issuers:    map[string]*oidcProvider{},
		registries: map[string]AzureRegistry{}, clusters: map[string]AzureCluster{},
		repositories: map[string][]string{}, tokens: map[string]AzureIdentity{},
		storage: map[string]map[string]*azureContainer{}}
}

func (a *Azure) services() []service {
	return []service{
		{a.isAuthority, a.serveEntra},
		{a.isRegistry, a.serveRegistry},
		{a.isManager, a.serveManager},
		{azurename.IsDevOps, a.serveDevOps},
		{a.isStorage, a.serveBlobs},
	}
}

// AddCloud adds a private cloud with two host names and the domain of its
// registries, without a leading dot. An empty domain means no registries.
func (a *Azure) AddCloud(authorityHost, resourceManagerHost, registrySuffix string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.environments = append(a.environments, azurename.Cloud{Name: authorityHost, Authorities: []string{authorityHost},
		ManagementHost: resourceManagerHost, ManagementAudience: "https://" + resourceManagerHost,
		RegistrySuffix: registrySuffix})
}

// AddTenant adds a tenant to the cloud of an authority host. All names identify
// the tenant: a GUID and domains.
func (a *Azure) AddTenant(authorityHost string, names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.at(authorityHost); e != nil {
		authorityHost = e.Authorities[0]
	}
	t := &azureTenant{name: names[0], authority: authorityHost, apps: map[string]*azureApp{}}
	for _, name := range names {
		a.tenants[strings.ToLower(name)] = t
	}
}

// AddResource registers resources in a tenant, which it creates if needed. A
// resource is another service of Azure, such as https://database.windows.net,
// or an API of the consumer, by its application ID URI or GUID. Entra refuses
// tokens for a resource that its tenant lacks (AADSTS500011). Every tenant has
// Azure Resource Manager, Microsoft Graph, container registries, AKS, Azure
// DevOps, Storage and Key Vault.
func (a *Azure) AddResource(tenant string, identifiers ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenant(tenant)
	for _, id := range identifiers {
		t.resources = append(t.resources, strings.TrimSuffix(id, "/"))
	}
}

// AddFederatedCredential adds a federated credential to an application or a
// managed identity. It creates the identity and its tenant if needed.
func (a *Azure) AddFederatedCredential(tenant, clientID string, credential FederatedCredential) {
	a.mu.Lock()
	defer a.mu.Unlock()
	app := a.app(tenant, clientID)
	app.federated = append(app.federated, credential)
	if a.issuers[credential.Issuer] == nil && credential.Fetch != nil {
		a.issuers[credential.Issuer] = &oidcProvider{issuer: credential.Issuer, fetch: credential.Fetch}
	}
}

// RemoveFederatedCredentials removes all federated credentials from an
// identity, or creates an identity without any.
func (a *Azure) RemoveFederatedCredentials(tenant, clientID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app(tenant, clientID).federated = nil
}

// SetClientSecret sets the secret of an application, which it creates if
// needed.
func (a *Azure) SetClientSecret(tenant, clientID, secret string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app(tenant, clientID).secret = secret
}

// SetClientCertificate registers a certificate with an RSA key for an
// application, which it creates if needed.
func (a *Azure) SetClientCertificate(tenant, clientID string, certificate *x509.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app(tenant, clientID).certificate = certificate
}

// SetManagedIdentity sets the identity of the machine, for which the metadata
// service issues tokens. Without an identity, the service refuses.
func (a *Azure) SetManagedIdentity(tenant, clientID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app(tenant, clientID)
	a.machine = &azureTenantClient{tenant, clientID}
}

// SetRegistry creates or replaces the registry at a login server, such as
// example.azurecr.io.
func (a *Azure) SetRegistry(host string, registry AzureRegistry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registries[strings.ToLower(host)] = registry
}

// SetCluster creates or replaces the cluster with a resource ID.
func (a *Azure) SetCluster(id string, cluster AzureCluster) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clusters[strings.ToLower(id)] = cluster
}

// SetGitRepository creates or replaces a repository,
// <organization>/<project>/_git/<name>, that the identities with the given
// client IDs may read.
func (a *Azure) SetGitRepository(path string, readers ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.repositories[path] = slices.Clone(readers)
}

// Identity returns the identity behind an access token, or behind a registry's
// refresh token. It returns false for a token that the cloud did not issue, or
// that has expired.
func (a *Azure) Identity(token string) (AzureIdentity, bool) {
	now := a.cloud.time()
	a.mu.Lock()
	defer a.mu.Unlock()
	identity, ok := a.tokens[token]
	return identity, ok && now.Before(identity.Expiration)
}

// tenant creates the tenant if needed. The caller holds the lock.
func (a *Azure) tenant(name string) *azureTenant {
	t := a.tenants[strings.ToLower(name)]
	if t == nil {
		t = &azureTenant{name: name, authority: a.environments[0].Authorities[0], apps: map[string]*azureApp{}}
		a.tenants[strings.ToLower(name)] = t
	}
	return t
}

// app creates the application and its tenant if needed. The caller holds the
// lock.
func (a *Azure) app(tenant, clientID string) *azureApp {
	t := a.tenant(tenant)
	app := t.apps[strings.ToLower(clientID)]
	if app == nil {
		app = &azureApp{clientID: clientID, objectID: uuid.NewString()}
		t.apps[strings.ToLower(clientID)] = app
	}
	return app
}

// at returns the cloud of an authority. The caller holds the lock.
func (a *Azure) at(authority string) *azurename.Cloud {
	for i := range a.environments {
		if slices.Contains(a.environments[i].Authorities, authority) {
			return &a.environments[i]
		}
	}
	return nil
}

// has reports whether is accepts one of the clouds.
func (a *Azure) has(is func(azurename.Cloud) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.environments, is)
}

func (a *Azure) isAuthority(host string) bool {
	return a.has(func(c azurename.Cloud) bool { return slices.Contains(c.Authorities, host) })
}

func (a *Azure) isRegistry(host string) bool {
	return a.has(func(c azurename.Cloud) bool { return azurename.IsRegistry(host, c.RegistrySuffix) })
}

func (a *Azure) isManager(host string) bool {
	return a.has(func(c azurename.Cloud) bool { return c.ManagementHost != "" && c.ManagementHost == host })
}
