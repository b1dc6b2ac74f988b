package cloudtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// OAuth is an OAuth 2.0 authorization server with token exchange (RFC 8693),
// assertions (RFC 7523) and federated clients, at https://oauth.example. It
// serves its metadata (RFC 8414, and OpenID Connect Discovery), its keys, the
// token endpoint, and /userinfo for its tokens.
//
// It verifies subject and actor tokens against the issuers that it trusts
// ([OAuth.AddIssuer]), clients by their method of authentication
// ([OAuth.SetClient]), and requests against its grants ([OAuth.AddGrant]).
// Without a grant, it refuses every request.
//
// It does not imitate: other grants, refresh tokens, subject tokens that it
// issued itself or that are not JWTs, token types other than access tokens,
// JWTs and ID tokens, several resources or audiences at once, the may_act
// claim, registration, revocation and introspection of tokens (see
// [OAuth.Identity]), and TLS client certificates. Real servers differ in the
// texts of their errors, so it has its own.
type OAuth struct {
	cloud *Cloud

	mu      sync.Mutex
	config  OAuthConfig
	issuers map[string]*oidcProvider
	clients map[string]OAuthClient
	grants  []OAuthGrant
	issued  map[string]OAuthIdentity
	key     *ecdsa.PrivateKey
}

// OAuthConfig configures an OAuth. The zero value is ready for use.
type OAuthConfig struct {
	// Host is the server's host name. Empty: oauth.example.
	Host string
	// Path follows the host in the issuer identifier, such as /realms/one.
	// Optional.
	Path string
	// RequireClient refuses exchanges without client authentication.
	RequireClient bool
	// OpaqueTokens issues opaque tokens instead of JWTs.
	OpaqueTokens bool
	// Lifetime is the lifetime of issued tokens. 0: an hour.
	Lifetime time.Duration
	// OpenIDOnly serves the metadata of OpenID Connect only, without RFC 8414.
	OpenIDOnly bool
}

// OAuthClient is a client of an OAuth.
type OAuthClient struct {
	// ID is the client_id.
	ID string
	// Method is its method of authentication: "none", "client_secret_basic" or
	// "client_assertion", a ServiceAccount's token.
	Method string
	// Secret is the secret for client_secret_basic.
	Secret string
	// Issuer and Subject are the claims of the ServiceAccount's token for
	// client_assertion. The server must trust the issuer.
	Issuer, Subject string
}

// OAuthGrant lets some subjects exchange their tokens.
type OAuthGrant struct {
	// Issuer and Subjects are claims of the subject token, compared exactly.
	Issuer   string
	Subjects []string
	// Clients lists the IDs of the clients that may request the exchange.
	// Empty: all clients.
	Clients []string
	// Audiences, Resources and Scopes are the values that requests may name. A
	// request that names none is always allowed.
	Audiences, Resources, Scopes []string
}

// OAuthIdentity is the identity behind a token, and the targets of the token.
type OAuthIdentity struct {
	// Issuer and Subject are claims of the subject token.
	Issuer, Subject string
	// Actor is the subject of the actor token, or "" without one.
	Actor string
	// ClientID is the client of the request, or "" if the request named none.
	ClientID string
	// Audience, Resource and Scopes come from the request.
	Audience, Resource string
	Scopes             []string
	// TokenType is the URN of the kind of token.
	TokenType string
	// Expiration is the expiry of the token.
	Expiration time.Time
}

func newOAuth(c *Cloud) *OAuth {
	return &OAuth{cloud: c, issuers: map[string]*oidcProvider{}, clients: map[string]OAuthClient{},
		issued: map[string]OAuthIdentity{}}
}

func (o *OAuth) services() []service {
	return []service{{at: func(host string) bool { return host == o.settings().Host }, serve: o.serve}}
}

func (o *OAuth) settings() OAuthConfig {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.config
	if c.Host == "" {
		c.Host = "oauth.example"
	}
	if c.Lifetime == 0 {
		c.Lifetime = time.Hour
	}
	return c
}

// Configure replaces the server's configuration. Issuers, clients, grants and
// issued tokens stay.
func (o *OAuth) Configure(config OAuthConfig) {
	o.mu.Lock()
	defer o.mu.Unlock()
	config.Host = strings.ToLower(config.Host)
	o.config = config
}

// URL returns the issuer identifier.
func (o *OAuth) URL() string {
	c := o.settings()
	return "https://" + c.Host + c.Path
}

// TokenEndpoint returns the URL of the token endpoint.
func (o *OAuth) TokenEndpoint() string { return o.URL() + "/token" }

// AddIssuer makes the server trust the tokens of an issuer that have one of the
// audiences. fetch gets the issuer's documents: [Issuer.HTTPClient], or a
// client that trusts the certificate of a real issuer.
func (o *OAuth) AddIssuer(issuer string, fetch *http.Client, audiences ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.issuers[issuer] = &oidcProvider{issuer: issuer, fetch: fetch, clientIDs: slices.Clone(audiences)}
}

// SetClient registers a client, or replaces it.
func (o *OAuth) SetClient(client OAuthClient) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clients[client.ID] = client
}

// AddGrant adds a grant.
func (o *OAuth) AddGrant(grant OAuthGrant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.grants = append(o.grants, grant)
}

// Identity returns the identity behind a token. It returns false for a token
// that the server did not issue, or that has expired.
func (o *OAuth) Identity(token string) (OAuthIdentity, bool) {
	now := o.cloud.time()
	o.mu.Lock()
	defer o.mu.Unlock()
	id, ok := o.issued[token]
	if !ok || !now.Before(id.Expiration) {
		return OAuthIdentity{}, false
	}
	id.Scopes = slices.Clone(id.Scopes)
	return id, true
}

func (o *OAuth) issuer(name string) *oidcProvider {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.issuers[name]
}

func (o *OAuth) client(id string) (OAuthClient, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.clients[id]
	return c, ok
}

// signingKey makes the key on first use, because most tests never need it.
func (o *OAuth) signingKey() *ecdsa.PrivateKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err) // the curve is a constant
		}
		o.key = key
	}
	return o.key
}

const oauthKeyID = "oauth-1"

func (o *OAuth) keys() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &o.signingKey().PublicKey, KeyID: oauthKeyID, Algorithm: string(jose.ES256), Use: "sig"}}}
}
