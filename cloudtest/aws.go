package cloudtest

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

// AWS is the Amazon side of a [Cloud]: accounts with their OIDC providers,
// roles and users, STS, IAM, ECR with its registries, EKS, S3 and CodeCommit.
// The package documentation lists its limits.
//
// Deny takes permissions away. IAM, EKS and AssumeRole also evaluate the inline
// policies of the caller's role, if it has any. Without a policy, a role that
// was created through the API of IAM has no permissions. Users may do
// everything.
type AWS struct {
	cloud *Cloud

	mu        sync.Mutex
	stsHosts  map[string]bool              // of services other than AWS
	providers map[string]*oidcProvider     // by account and issuer
	roles     map[string]*role             // by ARN
	keys      map[string]*accessKey        // by access key ID
	denied    map[string]map[string]bool   // by the ARN of a role or user, and action
	passwords map[string]*registryPassword // by password
	registry  http.Handler
	clusters  map[string]EKSCluster              // by ARN
	entries   map[string]map[string]*accessEntry // by the ARNs of cluster and role
	authMaps  map[string]func() (string, error)  // by the ARN of the cluster
	git       http.Handler
	buckets   map[string]*s3Bucket       // by name
	outbound  map[string]*outboundIssuer // by account

	delay        time.Duration
	delayedCalls int
}

// Trust is the trust policy of a role.
type Trust struct {
	// Issuer is the issuer of an OIDC provider in the role's account.
	Issuer string
	// Subjects are the sub claims that may assume the role, compared exactly
	// (StringEquals).
	Subjects []string
	// SubjectPatterns are patterns of sub claims in which * stands for any text
	// (StringLike).
	SubjectPatterns []string
	// Audiences are the aud claims that may assume the role. Empty means the
	// audiences of the OIDC provider.
	Audiences []string
	// Principals are ARNs of roles, sessions and users that may assume the role
	// with AssumeRole. An account's root, arn:aws:iam::<account>:root, stands
	// for all of its principals.
	Principals []string
	// ExternalID is the external ID that AssumeRole requires. Empty: none.
	ExternalID string
	// TagSession lets AssumeRole set session tags. SetSourceIdentity lets it
	// set a source identity.
	TagSession, SetSourceIdentity bool
	// MaxSession is the role's MaxSessionDuration. 0: an hour.
	MaxSession time.Duration
}

// Identity is the identity behind an access key.
type Identity struct {
	// ARN is the ARN of the session or the user.
	ARN string
	// RoleARN and SessionName are empty for a user.
	RoleARN, SessionName string
	// Subject is the sub claim of the exchanged token. It is empty for
	// AssumeRole and for users.
	Subject string
	// Tags are the session tags. The next role in a chain inherits the tags in
	// TransitiveTagKeys.
	Tags              map[string]string
	TransitiveTagKeys []string
	// SourceIdentity is the source identity that AssumeRole set.
	SourceIdentity string
	// Expiration is zero for a user.
	Expiration time.Time
}

type accessKey struct {
	Identity
	id, secret, sessionToken string
	account                  string
	userID                   string
}

func newAWS(c *Cloud) *AWS {
	return &AWS{cloud: c, stsHosts: map[string]bool{}, providers: map[string]*oidcProvider{}, roles: map[string]*role{},
		keys:   map[string]*accessKey{},
		denied: map[string]map[string]bool{}, passwords: map[string]*registryPassword{}, clusters: map[string]EKSCluster{},
		entries:  map[string]map[string]*accessEntry{},
		authMaps: map[string]func() (string, error){}, buckets: map[string]*s3Bucket{},
		outbound: map[string]*outboundIssuer{}}
}

func (a *AWS) services() []service {
	return append(a.ecrServices(), []service{
		{a.isS3Host, a.serveS3},
		{a.isSTSHost, a.serveSTS},
		a.registryService(),
		{isEKSHost, a.serveEKS},
		{isIAMHost, a.serveIAM},
		{isGitHost, a.serveGit},
		{isOutboundHost, a.serveOutbound},
	}...)
}

// AddSTSHost serves the STS of an S3-compatible service at a host. Its roles
// have names like arn:minio:iam:::role/<name>, of any partition and without an
// account. Their OIDC providers have the account "" ([AWS.AddOIDCProvider]). As
// with MinIO, the answer to AssumeRoleWithWebIdentity names no role. A session
// without DurationSeconds expires with the token.
func (a *AWS) AddSTSHost(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stsHosts[strings.ToLower(host)] = true
}

func (a *AWS) isOtherSTS(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stsHosts[strings.ToLower(host)]
}

func (a *AWS) isSTSHost(host string) bool { return awsname.IsSTSHost(host) || a.isOtherSTS(host) }

// Deny takes permissions, such as "ecr:GetAuthorizationToken", away from a role
// or a user.
func (a *AWS) Deny(arn string, actions ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied[arn] == nil {
		a.denied[arn] = map[string]bool{}
	}
	for _, action := range actions {
		a.denied[arn][action] = true
	}
}

// Allow undoes Deny.
func (a *AWS) Allow(arn string, actions ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, action := range actions {
		delete(a.denied[arn], action)
	}
}

func (a *AWS) isDenied(id Identity, action string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.denied[firstOf(id.RoleARN, id.ARN)][action]
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// AddOIDCProvider makes an account trust an issuer. The client IDs are the
// audiences that the account accepts. fetch gets the issuer's documents:
// [Issuer.HTTPClient], or a client that trusts the certificate of a real
// issuer.
func (a *AWS) AddOIDCProvider(account, issuer string, fetch *http.Client, clientIDs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.providers[account+" "+issuer] = &oidcProvider{issuer: issuer, fetch: fetch, clientIDs: slices.Clone(clientIDs)}
}

// RemoveOIDCProvider undoes [AWS.AddOIDCProvider].
func (a *AWS) RemoveOIDCProvider(account, issuer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.providers, account+" "+issuer)
}

// AddUser creates a user with an access key. For an existing user it creates
// another access key.
func (a *AWS) AddUser(account, name string) (accessKeyID, secretAccessKey string) {
	k := &accessKey{id: "AKIA" + randomName(16), secret: randomSecret(30), account: account,
		userID: "AIDA" + randomName(17)}
	k.ARN = "arn:aws:iam::" + account + ":user/" + name
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, ok := a.principalID(k.ARN, time.Time{}); ok {
		k.userID = id
	}
	a.keys[k.id] = k
	return k.id, k.secret
}

// Identity returns the identity behind an access key ID, also for an expired
// session.
func (a *AWS) Identity(accessKeyID string) (Identity, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.keys[accessKeyID]
	if !ok {
		return Identity{}, false
	}
	return k.Identity, true
}

// newSession issues temporary credentials for the role that the identity names.
func (a *AWS) newSession(id Identity, of role, lifetime time.Duration) *accessKey {
	parts := strings.SplitN(id.RoleARN, ":", 6)
	k := &accessKey{
		id: "ASIA" + randomName(16), secret: randomSecret(30), sessionToken: randomSecret(180),
		account: parts[4], userID: of.id + ":" + id.SessionName,
	}
	k.Identity = id
	k.ARN = fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/%s", parts[1], parts[4], of.name(), id.SessionName)
	k.Expiration = a.cloud.time().Add(lifetime).UTC().Truncate(time.Second)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[k.id] = k
	return k
}

// assumable returns a role that is visible to STS.
func (a *AWS) assumable(arn string) (role, bool) {
	now := a.cloud.time()
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.roles[arn]
	if r == nil || !r.visible(now) {
		return role{}, false
	}
	return *r, true
}

func (a *AWS) provider(account, issuer string) *oidcProvider {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.providers[account+" "+issuer]
}

func (a *AWS) key(id string) (accessKey, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.keys[id]
	if !ok {
		return accessKey{}, false
	}
	return *k, true
}

func (t Trust) maxSession() time.Duration {
	if t.MaxSession == 0 {
		return time.Hour
	}
	return t.MaxSession
}

// like implements the operator StringLike: * matches any text, ? one character.
func like(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch pattern[0] {
	case '*':
		return like(pattern[1:], s) || s != "" && like(pattern, s[1:])
	case '?':
		return s != "" && like(pattern[1:], s[1:])
	}
	return s != "" && s[0] == pattern[0] && like(pattern[1:], s[1:])
}

func randomName(n int) string {
	return base32.StdEncoding.EncodeToString(random(n))[:n]
}

func randomSecret(n int) string { return base64.StdEncoding.EncodeToString(random(n)) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
