package auth

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// Option sets one of the Options. Build options once and reuse them: they are
// safe for concurrent use.
type Option func(*Options)

// Options are the options of one call. Callers pass them with the With
// functions, which document the fields. The options that providers see are
// embedded.
type Options struct {
	provider.Options

	ServiceAccount        *client.ObjectKey // nil for the controller's own identity
	SubjectToken          SubjectTokenSource
	SubjectServiceAccount *corev1.ServiceAccount
	SubjectIssuer         SubjectIssuer // nil for the API server
	// Annotations win over the ServiceAccount's. Providers find the result on
	// the ServiceAccount that they get.
	Annotations map[string]string
	// ControllerAnnotations belong to the controller's own identity and go with
	// SubjectIssuer.
	ControllerAnnotations map[string]string

	Cache          *cache.TokenCache    // nil for none
	InvolvedObject cache.InvolvedObject // from WithCache
	// Owner comes from WithOwner. Without Name and Namespace, InvolvedObject is
	// the owner.
	Owner    cache.InvolvedObject
	Policy   *Policy   // nil is the zero Policy
	Settings *Settings // nil switches nothing off
	Usage    Usage

	MinimumLifetime time.Duration
	GitURL          *url.URL
	TracerProvider  trace.TracerProvider // nil for no spans

	defaulted     defaultAccount // if ServiceAccount comes from the Settings
	invalidBefore time.Time
	patient       bool // as cache.Request.Patient
	private       bool // Cache belongs to an adapter
	renews        bool // asks again before each use
}

func (o *Options) apply(opts []Option) {
	if o.Policy == nil {
		o.setPolicy(strictest)
	}
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
}

func (o *Options) setPolicy(p *Policy) { o.Policy, o.Options.Policy = p, (*audiencePolicy)(p) }

// applyToAccessToken adds the provider's options for an access token.
func (o *Options) applyToAccessToken(opts []provider.Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(&o.Options)
		}
	}
}

// owner returns the object that the Policy checks.
func (o *Options) owner() *cache.InvolvedObject {
	if o.Owner.Name != "" || o.Owner.Namespace != "" {
		return &o.Owner
	}
	return &o.InvolvedObject
}

// WithServiceAccount sets the ServiceAccount to act as, and the client that
// reads it and creates its tokens. The client needs the verbs get on
// serviceaccounts (list and watch too if it reads through a cache) and create
// on serviceaccounts/token. Nothing falls back to the controller's own identity
// then.
func WithServiceAccount(serviceAccount client.ObjectKey, c KubernetesClient) Option {
	return func(o *Options) {
		o.ServiceAccount = &serviceAccount
		o.Client = c
	}
}

// WithClient sets the client for the default ServiceAccount of the Settings,
// for calls that name none themselves.
func WithClient(c KubernetesClient) Option { return func(o *Options) { o.Client = c } }

// WithSubjectToken sets a source of tokens of serviceAccount. It serves callers
// that already hold a token and have no Kubernetes client, such as plugins of
// the kubelet and of kubectl. Namespace, name and the annotations that the
// provider reads are required. The UID, if set, has to be the token's.
func WithSubjectToken(source SubjectTokenSource, serviceAccount corev1.ServiceAccount) Option {
	own := serviceAccount.DeepCopy() // inputs of the key must not change
	return func(o *Options) {
		o.SubjectToken = source
		o.SubjectServiceAccount = own
	}
}

// WithAnnotations sets annotations of the call, which win over the
// ServiceAccount's. It serves APIs whose spec names the role, the client ID or
// the e-mail address. The provider checks the values like the ServiceAccount's,
// and [Policy.Authorize] sees them. The token is still the ServiceAccount's, so
// the cloud has to trust that ServiceAccount for this identity. Without a
// ServiceAccount the call is refused.
//
// The map is cloned. An empty value neither sets nor removes an annotation, so
// that optional fields of a spec can be passed as they are. Of several
// WithAnnotations the last one counts.
func WithAnnotations(annotations map[string]string) Option {
	annotations = maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return func(o *Options) { o.Annotations = annotations }
}

// WithBoundObject binds the ServiceAccount's token to a Pod, Secret or Node:
// the token expires with that object.
func WithBoundObject(ref authenticationv1.BoundObjectReference) Option {
	return func(o *Options) { o.BoundObject = &ref }
}

// WithTokenLifetime sets the lifetime to request for the ServiceAccount's
// token, at least 10 minutes. The API server may grant another one.
func WithTokenLifetime(d time.Duration) Option { return func(o *Options) { o.TokenLifetime = d } }

// WithCache sets the cache, nil for none, and the object that labels its
// metrics. The object is the owner of the call unless [WithOwner] names another
// one.
//
// A controller that reads ServiceAccounts of several clusters passes
// [WithClusterID] too. Without it, ServiceAccounts of the same name and UID in
// two clusters share credentials; a restored backup of etcd has the same UIDs.
func WithCache(c *cache.TokenCache, involvedObject cache.InvolvedObject) Option {
	return func(o *Options) {
		o.Cache = c
		o.InvolvedObject = involvedObject
	}
}

// WithMinimumLifetime sets how long a cached credential should still be valid,
// for a credential that is used for some time or handed on. If less than d is
// left, the call waits for a renewal. If the renewal fails for now
// (ErrUnavailable, [ErrThrottled]), the call returns the cached credential
// while it is valid.
//
// At most three quarters of a credential's lifetime apply, so that a
// short-lived credential does not cause an exchange for every call. Registry,
// Git and cluster credentials pass d on to their access tokens. The option
// renews earlier; it does not make the provider issue longer credentials.
func WithMinimumLifetime(d time.Duration) Option { return func(o *Options) { o.MinimumLifetime = d } }

// WithClusterID names the cluster that the ServiceAccounts are read from. No
// other cluster of the same cache may have this ID; the UID of the namespace
// kube-system serves well. It is part of the cache key, so that no two clusters
// share credentials.
func WithClusterID(id string) Option { return func(o *Options) { o.ClusterID = id } }

// WithOwner names the owner of the call: the object on whose behalf the
// credential is needed. Without it, the object of [WithCache] is the owner. The
// ServiceAccount has to lie in the owner's namespace unless the Policy allows
// otherwise.
func WithOwner(owner cache.InvolvedObject) Option { return func(o *Options) { o.Owner = owner } }

// WithPolicy sets what the controller allows its tenants.
func WithPolicy(p Policy) Option { return func(o *Options) { o.setPolicy(&p) } }

// WithSettings sets the controller-wide settings. They must not change after
// that.
func WithSettings(s *Settings) Option { return func(o *Options) { o.Settings = s } }

// WithUsage sets the purpose of the credential, which picks the default
// ServiceAccount of the Settings.
func WithUsage(u Usage) Option { return func(o *Options) { o.Usage = u } }

// WithAudiences sets the audiences of the ServiceAccount's token instead of the
// provider's. Each has to be listed in [Policy.Audiences].
func WithAudiences(audiences ...string) Option {
	audiences = slices.Clip(slices.Clone(audiences)) // inputs of the key must not change, and calls share the array
	return func(o *Options) { o.Audiences = audiences }
}

// WithScopes sets the scopes of the access token.
func WithScopes(scopes ...string) Option {
	scopes = slices.Clip(slices.Clone(scopes)) // inputs of the key must not change, and calls share the array
	return func(o *Options) { o.Scopes = scopes }
}

// WithSTSRegion sets the region of the token service, for providers that have
// regions. Others ignore it.
func WithSTSRegion(region string) Option { return func(o *Options) { o.STSRegion = region } }

// WithSTSEndpoint sets the address of the token service. The provider accepts
// only addresses of its cloud and those that the controller has allowed. A
// provider without [provider.OptionsValidator] accepts none.
func WithSTSEndpoint(endpoint string) Option { return func(o *Options) { o.STSEndpoint = endpoint } }

// WithProxyURL sets the proxy (http, https or socks5) for requests to the
// provider. Without it the environment's proxy settings apply. Only https goes
// through this proxy: plain http, which metadata services speak, is dialled
// directly.
//
// Objects may choose the proxy as far as [Policy.AllowProxy] lets them. All
// failures to get an answer through it have the same text, so that tenants
// cannot explore the controller's network with it. The time still differs, and
// errors.As reaches the cause: do not show that to tenants.
func WithProxyURL(proxy url.URL) Option { return func(o *Options) { o.ProxyURL = &proxy } }

// WithHTTPClient sets the client for requests to the provider, instead of the
// shared transports of the provider value. It belongs to the controller and is
// not part of the cache key: do not choose it by tenant. It excludes
// [WithProxyURL].
func WithHTTPClient(c *http.Client) Option { return func(o *Options) { o.HTTPClient = c } }

// WithCAData sets PEM certificates, at most 64 KiB, for credentials that
// include CA certificates.
func WithCAData(pem string) Option { return func(o *Options) { o.CAData = pem } }

// WithClusterResource sets the full name of the cluster in the provider's API.
func WithClusterResource(name string) Option { return func(o *Options) { o.ClusterResource = name } }

// WithClusterAddress sets the HTTPS address of the cluster's API server.
func WithClusterAddress(address string) Option {
	return func(o *Options) { o.ClusterAddress = address }
}

// WithGitURL sets the address of the Git repository for [GetGitCredentials]. A
// bare user name in it is ignored, as in the clone URLs of Azure DevOps. A
// password is refused.
func WithGitURL(gitURL url.URL) Option {
	if _, password := gitURL.User.Password(); !password {
		gitURL.User = nil
	}
	return func(o *Options) { o.GitURL = &gitURL }
}

// WithProviderOption sets an option of one provider. Its package uses a key of
// an unexported type, as with context.WithValue. The value must not change
// after that. A provider whose credential depends on it adds it to the cache
// key (provider.CacheKeyContributor).
func WithProviderOption(key, value any) Option {
	set := provider.WithOption(key, value)
	return func(o *Options) { set(&o.Options) }
}

// WithInvalidBefore invalidates credentials that were cached at this time or
// before, and the access tokens that they were made of. Use it after a service
// has refused one. Pass the time of the refusal, or the time at which the call
// obtained the refused credential, which spares a newer one.
//
// A credential that is younger than ten seconds is returned nevertheless: a
// service that refuses everything must not cause an exchange for every request.
// Calls at the same time share the exchange. Calls without this option keep the
// old credential until there is a new one. A [TokenRequest] that
// [WithSubjectToken] has set replaces its token too. Adapters, TokenRequest and
// the Keychain have a method Invalidate instead, and [GetClusterConfig] needs
// neither.
func WithInvalidBefore(t time.Time) Option { return func(o *Options) { o.invalidateBefore(t) } }

// invalidateBefore keeps the latest time, because a call and its adapter may
// both know of a refusal.
func (o *Options) invalidateBefore(t time.Time) {
	if t.After(o.invalidBefore) {
		o.invalidBefore = t
	}
}

// WithAllowShellOut lets the provider run command-line tools, and programs that
// configuration files name, to find the controller's own identity. Use it only
// in programs that a person runs.
func WithAllowShellOut() Option { return func(o *Options) { o.AllowShellOut = true } }

// WithTracerProvider records OpenTelemetry spans of work that the cache does
// not save. "Exchange" obtains an access token. It contains "TokenRequest" for
// a ServiceAccount's token, or "SubjectToken" for a token of a [SubjectIssuer].
// "Derive" makes a registry, Git or cluster credential from access tokens. The
// parent is the span of the call that caused the exchange, which other calls
// may share. Attributes name the provider, the operation, the ServiceAccount
// and its identity in the cloud; error.type is the Reason. No span holds a
// secret. A call that finds its credential in the cache records nothing.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *Options) { o.TracerProvider = p }
}
