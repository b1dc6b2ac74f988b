package provider

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are the resolved options of one call, as far as providers read them. Package auth makes and checks them. A provider must
// neither change them nor keep them beyond the call. The With functions of package auth document the fields that have no comment here.
type Options struct {
	// Subject is the ServiceAccount that the credential is for. It is empty for the controller's own identity.
	Subject client.ObjectKey
	// OnBehalf reports that the controller's own identity is used on behalf of an object. A provider then sends no credential of the
	// controller to a service that only the object may have chosen.
	OnBehalf bool

	Audiences   []string
	Scopes      []string
	STSRegion   string
	STSEndpoint string
	// ProxyURL and HTTPClient exclude each other. HTTPClients honours both.
	ProxyURL      *url.URL
	HTTPClient    *http.Client
	AllowShellOut bool

	// CAData, ClusterResource and ClusterAddress name a cluster. ClusterAddress is canonical (ParseClusterAddress).
	CAData          string
	ClusterResource string
	ClusterAddress  string
	// ClusterAudience is ClusterAddress as the caller wrote it, because administrators set a cluster's audiences by that form. A token
	// with this audience is of no use to another cluster. Empty if it is ClusterAddress.
	ClusterAudience string

	// Client, TokenLifetime and BoundObject serve a provider that requests a ServiceAccount token of its own. TokenLifetime is zero for
	// an hour, or for the lifetime in the provider's annotation.
	Client        KubernetesClient
	TokenLifetime time.Duration
	BoundObject   *authenticationv1.BoundObjectReference

	// Policy decides about audiences and tokens. Nil refuses all of them.
	Policy AudiencePolicy

	own []providerOption
}

// Option changes the Options of an access token, from which another credential is made. Callers use auth.Option.
type Option func(*Options)

// AudiencePolicy is the part of auth.Policy that providers ask, through the methods of Options.
type AudiencePolicy interface {
	CheckAudience(audience string) error
	CheckSubjectToken(token string, audiences []string) error
}

// KubernetesClient is the part of the client of controller-runtime that auth uses. Every client.Client is one. For a clientset of
// client-go, package auth/clientgo makes one.
type KubernetesClient interface {
	// Get reads ServiceAccounts, and ConfigMaps for GetClusterConfigFromConfigMap. Auth writes to neither, so a cache may share its memory.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	// SubResource returns the client of a sub-resource. Auth calls its Create, for the sub-resource "token" of ServiceAccounts.
	SubResource(name string) client.SubResourceClient
}

type providerOption struct{ key, value any }

// WithOption sets an option of one provider, as auth.WithProviderOption does.
func WithOption(key, value any) Option {
	set := providerOption{key, value}
	return func(o *Options) { o.own = append(slices.Clip(o.own), set) } // copies of the Options share the array
}

// Value returns the last value of an option of the provider's own (WithOption) for key, or nil.
func (o *Options) Value(key any) any {
	for i := len(o.own) - 1; i >= 0; i-- {
		if o.own[i].key == key {
			return o.own[i].value
		}
	}
	return nil
}

// Values returns all values of an option of the provider's own (WithOption) for key, in the order of the options.
func (o *Options) Values(key any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range o.own {
			if o.own[i].key == key && !yield(o.own[i].value) {
				return
			}
		}
	}
}

// IsOwnIdentity reports whether the credential is for the controller's own identity.
func (o *Options) IsOwnIdentity() bool { return o.Subject == client.ObjectKey{} }

// CheckAudience refuses an audience that a tenant chose, in an annotation for example, unless auth.Policy lists it.
func (o *Options) CheckAudience(audience string) error {
	if o.Policy == nil {
		return noPolicy()
	}
	return o.Policy.CheckAudience(audience)
}

// CheckSubjectToken refuses a Kubernetes token that does not have exactly the given audiences, has expired, or could be used against
// the API server. It serves providers that read the controller's own token.
func (o *Options) CheckSubjectToken(token string, audiences []string) error {
	if o.Policy == nil {
		return noPolicy()
	}
	return o.Policy.CheckSubjectToken(token, audiences)
}

func noPolicy() error {
	return &Error{Reason: ErrDenied, Message: "there is no policy for audiences", Remedy: "call the Get functions of package auth"}
}
