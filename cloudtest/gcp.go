package cloudtest

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/workloadid/workloadid/internal/gcpname"
)

// GCP is the Google side of a [Cloud]: workload identity pools, service
// accounts, the metadata server, and the services that accept access tokens. In
// Calls its services are gcp-sts (action token), iamcredentials
// (generateAccessToken, generateIdToken), container (clusters.get),
// artifactregistry (token, pull), sourcemanager (info/refs), gcp-iam
// (workloadIdentityPools.get, providers.get, providers.patch,
// providers.operations.get, serviceAccounts.getIamPolicy), google-oauth (token,
// tokeninfo), gcp-metadata (the path) and accounts.google.com (its path).
//
// Permissions name principals like the members of IAM policies, such as
//
//	principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/subject/system:serviceaccount:ns:name
//	principalSet://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/*
//	serviceAccount:project.svc.id.goog[ns/name]
//	serviceAccount:name@project.iam.gserviceaccount.com
//
// It does not imitate: management, except for reading ([GCP.SetIAMViewers]) and
// uploaded keys ([WorkloadIdentityProvider.Admins]), roles and their
// permissions, conditions other than [WorkloadIdentityProvider.Condition],
// attribute mappings other than google.subject=assertion.sub, AWS and SAML
// providers, workforce pools, quota projects, organization policies other than
// [GCPServiceAccount.ExtendedLifetime], propagation delays. Access tokens are
// opaque, as the real ones are; see [GCP.Identity].
type GCP struct {
	cloud *Cloud

	mu          sync.Mutex
	universe    string
	providers   map[string]*poolProvider // by the audience of the exchange
	accounts    map[string]GCPServiceAccount
	tokens      map[string]GCPIdentity // by access token
	clusters    map[string]GKECluster  // by name
	projects    map[string]string      // ID to number
	memberships map[string]FleetMembership
	readers     map[string][]string // of repositories of artifacts and of Git, by host and path
	registry    http.Handler
	metadata    *GCPMetadata
	googleSign  *Issuer
	iamViewers  []string
	operations  map[string]bool   // by name
	users       map[string]string // e-mail addresses by refresh token
}

// GCPServiceAccount is a service account of Google Cloud.
type GCPServiceAccount struct {
	// WorkloadIdentityUsers are the members with the role
	// roles/iam.workloadIdentityUser on it.
	WorkloadIdentityUsers []string
	// TokenCreators are the members with roles/iam.serviceAccountTokenCreator,
	// such as the previous one in a chain of delegates.
	TokenCreators []string
	// ExtendedLifetime raises the longest lifetime of its tokens from one hour
	// to twelve.
	ExtendedLifetime bool
}

// GCPIdentity is the identity behind an access token.
type GCPIdentity struct {
	// Members are all names of the identity in IAM policies.
	Members []string
	// Email is the address of the service account. It is empty for a federated
	// identity.
	Email string
	// Subject is the sub claim of the token that was exchanged; empty for a
	// service account.
	Subject string
	// Scopes are the scopes of the token.
	Scopes []string
	// Expiration is the expiry of the token.
	Expiration time.Time
}

func newGCP(c *Cloud) *GCP {
	return &GCP{cloud: c, universe: gcpname.DefaultUniverse, providers: map[string]*poolProvider{},
		accounts: map[string]GCPServiceAccount{}, tokens: map[string]GCPIdentity{}, clusters: map[string]GKECluster{},
		projects: map[string]string{}, memberships: map[string]FleetMembership{},
		readers: map[string][]string{}, users: map[string]string{},
		operations: map[string]bool{}}
}

func (g *GCP) services() []service {
	return []service{
		{g.at("sts"), g.serveSTS},
		{g.at("iamcredentials"), g.serveIAMCredentials},
		{g.at("iam"), g.serveIAM},
		{g.at("oauth2"), g.serveOAuth},
		{g.at("container"), g.serveContainer},
		{g.at("gkehub"), g.serveHub},
		{g.at("cloudresourcemanager"), g.serveResourceManager},
		{func(host string) bool { return gcpname.RegistryUniverse(host) != "" }, g.serveRegistry},
		{gcpname.IsGitHost, g.serveGit},
		{func(host string) bool { return host == googleAccounts }, g.serveAccounts},
	}
}

// at returns a function that recognizes the host of a service in the universe.
func (g *GCP) at(service string) func(host string) bool {
	return func(host string) bool {
		universe := g.universeDomain()
		return host == service+"."+universe || service == "sts" && gcpname.IsSTSHost(host, universe)
	}
}

func (g *GCP) universeDomain() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.universe
}

// SetUniverseDomain moves the services to another universe. Call it before
// anything else.
func (g *GCP) SetUniverseDomain(domain string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.universe = domain
}

// SetServiceAccount creates a service account, or replaces its policy.
func (g *GCP) SetServiceAccount(email string, account GCPServiceAccount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accounts[email] = account
}

// RemoveServiceAccount removes a service account. Its tokens stay valid, as
// they do at Google for a while.
func (g *GCP) RemoveServiceAccount(email string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.accounts, email)
}

// Identity returns the identity behind an access token. It returns false for a
// token that the cloud did not issue, or that has expired.
func (g *GCP) Identity(accessToken string) (GCPIdentity, bool) {
	now := g.cloud.time()
	g.mu.Lock()
	defer g.mu.Unlock()
	id, ok := g.tokens[accessToken]
	return id, ok && now.Before(id.Expiration)
}

// IssueAccessToken returns an access token of a service account. It is valid
// for an hour. The default scope is cloud-platform.
func (g *GCP) IssueAccessToken(email string, scopes ...string) string {
	if len(scopes) == 0 {
		scopes = []string{cloudPlatform}
	}
	return g.issue("ya29.c.", g.serviceAccountIdentity(email, scopes, time.Hour))
}

func (g *GCP) serviceAccountIdentity(email string, scopes []string, lifetime time.Duration) GCPIdentity {
	return GCPIdentity{Members: []string{"serviceAccount:" + email}, Email: email, Scopes: scopes,
		Expiration: g.cloud.time().Add(lifetime).UTC().Truncate(time.Second)}
}

func (g *GCP) issue(prefix string, id GCPIdentity) string {
	token := prefix + strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(randomSecret(90))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens[token] = id
	return token
}

const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// bearer authenticates a request to one of Google's APIs.
func (g *GCP) bearer(r *http.Request, scopes ...string) (GCPIdentity, *googleError) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	id, ok := g.Identity(token)
	if !strings.EqualFold(scheme, "Bearer") || !ok {
		return id, &googleError{status: http.StatusUnauthorized, message: "Request had invalid authentication credentials. " +
			"Expected OAuth 2 access token, login cookie or other valid authentication credential. " +
			"See https://developers.google.com/identity/sign-in/web/devconsole-project."}
	}
	if !id.hasScope(scopes...) {
		return id, &googleError{status: http.StatusForbidden, message: "Request had insufficient authentication scopes.",
			reason: "ACCESS_TOKEN_SCOPE_INSUFFICIENT", domain: "googleapis.com"}
	}
	return id, nil
}

func (id GCPIdentity) hasScope(scopes ...string) bool {
	return slices.Contains(id.Scopes, cloudPlatform) ||
		slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(id.Scopes, s) })
}

// isOneOf reports whether a list of members includes the identity.
func (id GCPIdentity) isOneOf(members []string) bool {
	return slices.ContainsFunc(members, func(m string) bool {
		return m == "allUsers" || m == "allAuthenticatedUsers" || slices.Contains(id.Members, m)
	})
}
