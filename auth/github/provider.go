package github

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

// ProviderName is the name by which users pick this provider, unless
// [Provider.Name] says otherwise.
const ProviderName = "github"

// self is nameless: auth fills in what GetName returns.
const self = provider.Name("")

// Values of auth.Error.Option.
const (
	optionAppID   = "github.Provider.AppID"
	optionCluster = "github.Provider.ClusterID"
	optionGrant   = "github.Provider.Grant"
	optionSign    = "github.Provider.Sign"
	optionURL     = "github.Provider.URL"
)

// Provider implements [auth.Provider] with GitHub Apps. Sign and Grant are
// required; without them every call fails with [auth.ErrMisconfigured]. All
// fields belong to the controller: never fill them in from what a tenant
// writes. Share one Provider for each cluster in the whole controller. It is
// safe for concurrent use, as long as its fields stay unchanged.
type Provider struct {
	// Name distinguishes several providers of this kind. Empty: ProviderName.
	Name string
	// URL is the base of the API: https://<host>/api/v3 for GitHub Enterprise
	// Server, https://api.<subdomain>.ghe.com for data residency. Empty:
	// https://api.github.com.
	URL string
	// AppID is the client ID of the App, or its numeric ID. Grants can name
	// another one.
	AppID string
	// Sign signs the JWTs of the Apps, one for each exchange. The cache key
	// does not contain it, so all keys of an App share cached tokens. A
	// signature is valid for every installation of the App, so tenants that
	// share an App must not supply its key.
	Sign SignFunc
	// Grant returns the grant of a ServiceAccount. The ServiceAccount has its
	// namespace, name and UID, and nothing that a tenant chooses. A zero Grant
	// refuses it with ErrDenied. An error also means ErrDenied, unless it is an
	// auth.Error with another Reason.
	//
	// Each call asks Grant, concurrently and without a context, so it answers
	// from memory. The answer must not be changed later.
	Grant func(serviceAccount *corev1.ServiceAccount) (Grant, error)
	// ClusterID names the cluster whose ServiceAccounts Grant knows, with the
	// text of auth.WithClusterID. The provider refuses a call for a
	// ServiceAccount whose text differs. If ClusterID is empty, it refuses
	// every such text.
	ClusterID string
	// OwnGrant applies to calls that name no ServiceAccount. A zero OwnGrant
	// refuses them with ErrMisconfigured.
	OwnGrant Grant

	clients provider.HTTPClients
	once    sync.Once
	config  config
}

var (
	_ auth.Provider                = (*Provider)(nil)
	_ provider.OptionsValidator    = (*Provider)(nil)
	_ provider.CacheKeyContributor = (*Provider)(nil)
)

// GetName returns Name, or [ProviderName].
func (p *Provider) GetName() string { return cmp.Or(p.Name, ProviderName) }

// GetAudiences returns the URL of the API. GitHub never receives the token.
func (p *Provider) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return p.learn().api[:], nil
}

// GetIdentity returns the narrowed grant, such as "app=1234 installation=42
// repositories=app,infra permissions=contents:read,issues:write". A * stands
// for all repositories.
func (p *Provider) GetIdentity(serviceAccount *corev1.ServiceAccount, opts *provider.Options) (string, error) {
	g, err := p.granted(subjectOf(serviceAccount), opts)
	return g.identity(), err
}

// AddToCacheKey implements [provider.CacheKeyContributor]. The key contains the
// grant of a ServiceAccount as its identity.
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, sa *corev1.ServiceAccount, opts *provider.Options) {
	key.Add("githubURL", p.learn().api[0])
	if sa == nil {
		g, _ := p.granted(nil, opts) // an error means no token
		key.Add("githubGrant", g.identity())
	}
}

// ValidateOptions refuses a [Provider] with malformed fields, and options that
// do not apply to GitHub.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	switch c := p.learn(); {
	case c.err != nil:
		return c.err
	case opts.STSEndpoint != "":
		return self.Misconfigured("leave it out; the controller sets the URL of the API", "the STS endpoint %q is refused",
			redact.URL(opts.STSEndpoint)).About("auth.WithSTSEndpoint")
	case len(opts.Scopes) > 0:
		return self.Misconfigured("narrow the permissions instead", "a GitHub App has no scopes, got %s", brief(opts.Scopes)).
			About("auth.WithScopes", "github.WithPermissions")
	case !opts.IsOwnIdentity() && opts.ClusterID != p.ClusterID:
		return self.Misconfigured("use a provider of that cluster",
			"the call is for the cluster %.300q, the provider's grants are for %.300q",
			opts.ClusterID, p.ClusterID).About(optionCluster, "auth.WithClusterID")
	case opts.TokenInHand || opts.TokenIssued:
		return self.Misconfigured("name the ServiceAccount and a Kubernetes client instead",
			"GitHub sees no subject token, so a token in hand and one of another issuer prove nothing").
			About("auth.WithServiceAccount", "auth.WithSubjectToken", "auth.WithSubjectIssuer")
	}
	return nil
}

// subjectOf drops everything that a tenant chooses.
func subjectOf(sa *corev1.ServiceAccount) *corev1.ServiceAccount {
	subject := &corev1.ServiceAccount{}
	subject.Namespace, subject.Name, subject.UID = sa.Namespace, sa.Name, sa.UID
	return subject
}

// config follows from a Provider's fields. It is computed once, because every
// hit of the cache needs it.
type config struct {
	err     error
	api     [1]string // the URL, without a slash at its end
	gitHost string    // canonical, of the repositories behind the API
}

func (p *Provider) learn() *config {
	p.once.Do(func() {
		p.config.api[0] = strings.TrimSuffix(cmp.Or(p.URL, "https://api.github.com"), "/")
		p.config.gitHost, p.config.err = p.check(p.config.api[0])
	})
	return &p.config
}

func (p *Provider) check(api string) (gitHost string, err error) {
	const remedy = "use https://<host>/api/v3, https://api.<subdomain>.ghe.com, or leave it out for github.com"
	u, err := address.Parse("URL of the API", api, address.Path)
	switch {
	case p.Sign == nil || p.Grant == nil:
		return "", self.Misconfigured("set both", "no function signs for the App, or none grants").
			About(optionSign, optionGrant)
	case err != nil:
		return "", self.Misconfigured(remedy, "%v", err).About(optionURL)
	}
	if gitHost = gitHostOf(u); gitHost == "" {
		return "", self.Misconfigured(remedy, "%q is not an API of GitHub", redact.URL(api)).About(optionURL)
	}
	return gitHost, nil
}

func gitHostOf(api *url.URL) string {
	host, _ := address.Canonical(api)
	own, isAPI := strings.CutPrefix(host, "api.")
	switch {
	case api.Path == "/api/v3":
		return host
	case isAPI && api.Path == "" && (own == "github.com:443" || strings.HasSuffix(own, ".ghe.com:443")):
		return own
	}
	return ""
}
