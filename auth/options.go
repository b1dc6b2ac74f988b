package auth

import (
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache"
)

// Option sets one of the Options. Build options once and reuse them: they are safe for concurrent use.
type Option func(*Options)

// Options is what the options of one call add up to. Callers pass options, providers receive the result and must
// neither change it nor keep it beyond the call. Not all providers use all fields.
type Options struct {
	// Client reads the ServiceAccount and creates its tokens.
	Client client.Client
	// ServiceAccount is the identity to act as. Nil means the controller's own.
	ServiceAccount *client.ObjectKey
	// SubjectToken replaces Client as the source of the ServiceAccount's token.
	SubjectToken SubjectTokenSource
	// SubjectServiceAccount is the ServiceAccount that SubjectToken speaks for.
	SubjectServiceAccount *corev1.ServiceAccount
	// BoundObject binds the ServiceAccount's token to the life of an object.
	BoundObject *authenticationv1.BoundObjectReference
	// Annotations are laid over those of the ServiceAccount. Providers find the result on the ServiceAccount they get.
	Annotations map[string]string
	// TokenLifetime is the lifetime to ask of the ServiceAccount's token. Zero: an hour, or the provider's annotation.
	TokenLifetime time.Duration

	// Cache keeps credentials. Nil means none.
	Cache *cache.TokenCache
	// InvolvedObject is the object on whose behalf the credential is needed, for metrics and as owner.
	InvolvedObject cache.InvolvedObject
	// Owner takes the place of InvolvedObject in the Policy where its Name or Namespace is set.
	Owner cache.InvolvedObject
	// Policy is what the controller allows.
	Policy Policy
	// Settings are those of the whole controller. Nil means that nothing is switched off and there are no defaults.
	Settings *Settings
	// Usage picks the default ServiceAccount among those of Settings.
	Usage Usage

	// MinimumLifetime is how long a cached credential should still be valid.
	MinimumLifetime time.Duration

	// ClusterID tells the clusters apart that share a cache.
	ClusterID string

	// Audiences replace those of the provider.
	Audiences []string
	// Scopes are those of the access token.
	Scopes []string
	// STSRegion is the region of the provider's token service.
	STSRegion string
	// STSEndpoint is the address of the provider's token service.
	STSEndpoint string
	// ProxyURL is the proxy for https requests to the provider.
	ProxyURL *url.URL
	// HTTPClient makes the requests to the provider.
	HTTPClient *http.Client
	// CAData are PEM certificates for credentials that include a certificate authority.
	CAData string
	// ClusterResource is the full name of a cluster in the provider's API.
	ClusterResource string
	// ClusterAddress is the HTTPS address of a cluster's API server.
	ClusterAddress string
	// GitURL is the address of a Git repository.
	GitURL *url.URL
	// AllowShellOut lets the provider run command-line tools, and programs that configuration files name.
	AllowShellOut bool

	providerOptions []providerOption
	writtenAddress  string
	defaulted       defaultAccount // if ServiceAccount comes from the Settings
	invalidBefore   time.Time
}

type providerOption struct{ key, value any }

func (o *Options) apply(opts []Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
}

// ClusterAudience is for providers: ClusterAddress as the caller wrote it, which is what the administrators of a cluster
// have read when they set its audiences; "" if there is none. Only that very cluster ever gets to see the token, whoever
// chose the address.
func (o *Options) ClusterAudience() string {
	if _, ok := strings.CutPrefix(o.writtenAddress, "https://"); ok {
		return o.writtenAddress
	}
	return o.ClusterAddress
}

// ProviderOption returns what WithProviderOption has set for key, nil if it has not.
func (o *Options) ProviderOption(key any) any {
	for i := len(o.providerOptions) - 1; i >= 0; i-- {
		if o.providerOptions[i].key == key {
			return o.providerOptions[i].value
		}
	}
	return nil
}

// CheckSubjectToken is for providers that get a Kubernetes token themselves, for the controller's own identity: it refuses
// one that does not have exactly the given audiences, has expired, or could be used against the API server.
func (o *Options) CheckSubjectToken(token string, audiences []string) error {
	if err := o.Policy.checkAudiences(audiences); err != nil {
		return err
	}
	return checkSubjectToken(token, time.Now(), audiences, nil, &o.Policy)
}

// CheckAudience is for providers: it refuses an audience that a tenant chose (in an annotation, say) unless the
// controller's Policy lists it.
func (o *Options) CheckAudience(audience string) error {
	return o.Policy.checkAudience(audience)
}

// CallersIdentity is for providers, whose errors put it behind the name or the value of an annotation: it returns
// " of the caller's identity" if WithAnnotations has set the annotation, else "".
func (o *Options) CallersIdentity(annotation string) string {
	if _, ok := o.Annotations[annotation]; ok {
		return " of the caller's identity"
	}
	return ""
}

// ProviderOptions returns all values that WithProviderOption has set for key, in the order of the options.
func (o *Options) ProviderOptions(key any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range o.providerOptions {
			if o.providerOptions[i].key == key && !yield(o.providerOptions[i].value) {
				return
			}
		}
	}
}

// LendsOwnIdentity is for providers: it reports whether the controller's own identity is used on behalf of an object. Such a call
// sends no credential of the controller to a service that only the object may have chosen.
func (o *Options) LendsOwnIdentity() bool {
	return o.ServiceAccount == nil && o.SubjectServiceAccount == nil && *o.owner() != (cache.InvolvedObject{})
}

// owner is the object that the Policy judges.
func (o *Options) owner() *cache.InvolvedObject {
	if o.Owner.Name != "" || o.Owner.Namespace != "" {
		return &o.Owner
	}
	return &o.InvolvedObject
}

// WithServiceAccount sets the ServiceAccount to act as, and the client that reads it and creates its tokens. The client
// needs the verbs get on serviceaccounts (list and watch too if it reads through a cache) and create on
// serviceaccounts/token. From then on nothing falls back to the controller's own identity.
func WithServiceAccount(serviceAccount client.ObjectKey, c client.Client) Option {
	return func(o *Options) {
		o.ServiceAccount = &serviceAccount
		o.Client = c
	}
}

// WithClient sets the client for the default ServiceAccount of the Settings, for calls that name none themselves.
func WithClient(c client.Client) Option { return func(o *Options) { o.Client = c } }

// WithSubjectToken sets a source of tokens that speaks for serviceAccount, for callers that hold a token already and
// have no Kubernetes client, such as plugins of the kubelet and of kubectl. Namespace, name and the annotations that the
// provider reads have to be filled in; the UID is compared with the token's if it is.
func WithSubjectToken(source SubjectTokenSource, serviceAccount corev1.ServiceAccount) Option {
	own := serviceAccount.DeepCopy() // what is in the key must not change
	return func(o *Options) {
		o.SubjectToken = source
		o.SubjectServiceAccount = own
	}
}

// WithAnnotations sets the caller's identity: annotations laid over those of the ServiceAccount, where the caller's win. It
// serves APIs whose spec names the role, the client ID or the e-mail address. The provider checks the values as it checks
// those of the ServiceAccount, and Policy.Authorize sees them. A token is still requested for the ServiceAccount, so the
// cloud has to trust that ServiceAccount for this identity. Without a ServiceAccount the call is refused.
//
// The map is cloned. An empty map sets nothing, and an empty value counts as absent: it neither sets nor removes an annotation,
// so that optional fields of a spec can be passed as they are. Of several WithAnnotations the last one counts.
func WithAnnotations(annotations map[string]string) Option {
	annotations = maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return func(o *Options) { o.Annotations = annotations }
}

// WithBoundObject binds the ServiceAccount's token to a Pod, Secret or Node: it ends with that object.
func WithBoundObject(ref authenticationv1.BoundObjectReference) Option {
	return func(o *Options) { o.BoundObject = &ref }
}

// WithTokenLifetime sets the lifetime to ask of the ServiceAccount's token, at least 10 minutes. The API server may
// grant another one.
func WithTokenLifetime(d time.Duration) Option { return func(o *Options) { o.TokenLifetime = d } }

// WithCache sets the cache for credentials, and the object on whose behalf they are needed: it labels the cache's
// metrics and is the owner for the Policy. A nil cache means none; the object still counts as the owner. A controller that
// reads ServiceAccounts of several clusters passes WithClusterID too. Without it, ServiceAccounts of the same name and UID in
// two clusters share credentials; a restored backup of etcd has the same UIDs.
func WithCache(c *cache.TokenCache, involvedObject cache.InvolvedObject) Option {
	return func(o *Options) {
		o.Cache = c
		o.InvolvedObject = involvedObject
	}
}

// WithMinimumLifetime sets how long a cached credential should still be valid. Use it for a credential that is used for some
// time or handed on. If less than d is left, the call waits for a renewal. If the renewal fails for now (ErrUnavailable,
// ErrThrottled), the call returns the cached credential while it is valid.
//
// Three quarters of a credential's lifetime are the most that d can ask for, so that a short-lived credential does not cause
// an exchange for every call. Registry, Git and cluster credentials pass d on to the access tokens that they are made of. The
// option renews earlier; it does not make the provider issue longer credentials.
func WithMinimumLifetime(d time.Duration) Option { return func(o *Options) { o.MinimumLifetime = d } }

// WithClusterID names the cluster that the ServiceAccounts are read from, with any text that no other cluster of the same cache
// has: the UID of the namespace kube-system, say. It is part of the cache key, so that no two clusters share credentials.
func WithClusterID(id string) Option { return func(o *Options) { o.ClusterID = id } }

// WithOwner sets the object on whose behalf the credential is needed, where it is not the involved object of
// WithCache. The ServiceAccount has to lie in its namespace unless the Policy allows otherwise.
func WithOwner(owner cache.InvolvedObject) Option { return func(o *Options) { o.Owner = owner } }

// WithPolicy sets what the controller allows its tenants.
func WithPolicy(p Policy) Option { return func(o *Options) { o.Policy = p } }

// WithSettings sets the controller-wide settings. They must not change any more.
func WithSettings(s *Settings) Option { return func(o *Options) { o.Settings = s } }

// WithUsage says what the credential is for, which picks the default ServiceAccount among those of the Settings.
func WithUsage(u Usage) Option { return func(o *Options) { o.Usage = u } }

// WithAudiences sets the audiences of the ServiceAccount's token instead of the provider's. Each has to be listed in
// Policy.Audiences.
func WithAudiences(audiences ...string) Option {
	audiences = slices.Clone(audiences) // what is in the key must not change
	return func(o *Options) { o.Audiences = audiences }
}

// WithScopes sets the scopes of the access token.
func WithScopes(scopes ...string) Option {
	scopes = slices.Clone(scopes) // what is in the key must not change
	return func(o *Options) { o.Scopes = scopes }
}

// WithSTSRegion sets the region of the token service, for providers that have regions.
func WithSTSRegion(region string) Option { return func(o *Options) { o.STSRegion = region } }

// WithSTSEndpoint sets the address of the token service. The provider accepts only addresses that belong to its cloud
// or that the controller has allowed.
func WithSTSEndpoint(endpoint string) Option { return func(o *Options) { o.STSEndpoint = endpoint } }

// WithProxyURL sets the proxy (http, https or socks5) for requests to the provider. Without it the environment's
// proxy settings apply. Only https goes through this proxy: plain http, which metadata services speak, is dialled directly.
//
// Objects may choose the proxy as far as Policy.AllowProxy lets them. All failures to get an answer through it have the same
// text, so that it is no way to explore the controller's network. The time that they take still differs, and errors.As reaches
// the cause: do not show that to tenants.
func WithProxyURL(proxy url.URL) Option { return func(o *Options) { o.ProxyURL = &proxy } }

// WithHTTPClient sets the client for requests to the provider, instead of the shared transports of the provider value.
// It belongs to the controller and is not part of the cache key: do not choose it by tenant. It excludes WithProxyURL.
func WithHTTPClient(c *http.Client) Option { return func(o *Options) { o.HTTPClient = c } }

// WithCAData sets PEM certificates, at most 64 KiB, for credentials that include a certificate authority.
func WithCAData(pem string) Option { return func(o *Options) { o.CAData = pem } }

// WithClusterResource sets the full name of the cluster in the provider's API.
func WithClusterResource(name string) Option { return func(o *Options) { o.ClusterResource = name } }

// WithClusterAddress sets the HTTPS address of the cluster's API server.
func WithClusterAddress(address string) Option {
	return func(o *Options) { o.ClusterAddress = address }
}

// WithGitURL sets the address of the Git repository for GetGitCredentials. A bare user name in it is ignored, as in the clone URLs of
// Azure DevOps. A password is refused.
func WithGitURL(gitURL url.URL) Option {
	if _, password := gitURL.User.Password(); !password {
		gitURL.User = nil
	}
	return func(o *Options) { o.GitURL = &gitURL }
}

// WithProviderOption is for packages of providers, to make options that only they know: the key is of a type of their own,
// as with context.WithValue. The value must not change any more. A provider whose credential depends on it adds it to
// the cache key (CacheKeyContributor).
func WithProviderOption(key, value any) Option {
	set := providerOption{key, value}
	return func(o *Options) { o.providerOptions = append(o.providerOptions, set) }
}

// WithInvalidBefore makes credentials invalid that the cache got at this time or before, and the access tokens that they were
// made of, because a service has refused one that should still be valid. Pass the time of the refusal, or the time at which the
// call obtained the refused credential, which spares a newer one.
//
// A credential that is younger than ten seconds is returned all the same: a service that refuses everything must not cause an
// exchange for every request. Calls at the same time share the exchange. Calls without this option keep the old credential until
// there is a new one. Adapters and the Keychain have a method Invalidate instead, and GetClusterConfig needs neither.
func WithInvalidBefore(t time.Time) Option { return func(o *Options) { o.invalidBefore = t } }

// WithAllowShellOut lets the provider run command-line tools, and programs that configuration files name, to find the
// controller's own identity. Only for programs that a person runs.
func WithAllowShellOut() Option { return func(o *Options) { o.AllowShellOut = true } }

// invalidation is the time at which a service last refused a credential of one adapter. The zero value is ready for use.
type invalidation struct{ at atomic.Pointer[time.Time] }

func (i *invalidation) set(t time.Time) { i.at.Store(&t) }

func (i *invalidation) time() (t time.Time) {
	if at := i.at.Load(); at != nil {
		t = *at
	}
	return t
}

// observedBy returns options that end with the time, as it is when they are resolved.
func (i *invalidation) observedBy(opts []Option) []Option {
	return slices.Clip(append(slices.Clone(opts), func(o *Options) {
		if t := i.time(); !t.IsZero() {
			o.invalidBefore = t
		}
	}))
}
