package provider

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Options are the resolved options of one call, as far as providers read them.
// Package auth makes and checks them. A provider must neither change them nor
// keep them beyond the call. The With functions of package auth document the
// fields that have no comment here.
type Options struct {
	// Subject is the ServiceAccount that the credential is for. It is empty for
	// the controller's own identity.
	Subject client.ObjectKey
	// OnBehalf reports that the controller's own identity is used on behalf of
	// an object. A provider then sends no credential of the controller to a
	// service that only the object may have chosen.
	OnBehalf bool
	// Identity is the answer of Provider.GetIdentity in this call, as
	// Policy.Authorize saw it. It is empty for the controller's own identity.
	Identity string
	// TokenInHand reports that the caller holds the ServiceAccount's token
	// (auth.WithSubjectToken), so that only the service can verify it. A
	// provider that sends it to no service refuses the call.
	TokenInHand bool
	// TokenRepeats reports that the source of the subject token is an
	// auth.TokenRequest, which returns the same token until it renews it. A
	// provider whose service takes each token once refuses the call.
	TokenRepeats bool
	// TokenIssued reports that an auth.SubjectIssuer issues the subject token,
	// and not the API server.
	TokenIssued bool
	// TokenIssuer and TokenSubject are the claims iss and sub of the subject
	// token if an auth.SubjectIssuer issues it. They are empty otherwise.
	// SubjectClaim and IssuerName serve remedies.
	TokenIssuer, TokenSubject string

	// ClusterID names the cluster of the ServiceAccount (auth.WithClusterID). A
	// provider that proves the ServiceAccount to no service belongs to one
	// cluster, and compares it.
	ClusterID string

	Audiences   []string
	Scopes      []string
	STSRegion   string
	STSEndpoint string
	// ProxyURL and HTTPClient exclude each other. HTTPClients honours both.
	ProxyURL      *url.URL
	HTTPClient    *http.Client
	AllowShellOut bool

	// CAData, ClusterResource and ClusterAddress name a cluster. ClusterAddress
	// is canonical (ParseClusterAddress).
	CAData          string
	ClusterResource string
	ClusterAddress  string
	// ClusterAudience is ClusterAddress as the caller wrote it, because
	// administrators set a cluster's audiences by that form. A token with this
	// audience is of no use to another cluster. Empty if it is ClusterAddress.
	ClusterAudience string

	// Client, TokenLifetime and BoundObject serve a provider that requests a
	// ServiceAccount token of its own. TokenLifetime is zero for an hour, or
	// for the lifetime in the provider's annotation.
	Client        KubernetesClient
	TokenLifetime time.Duration
	BoundObject   *authenticationv1.BoundObjectReference

	// Policy decides about audiences and tokens. Nil refuses all of them.
	Policy AudiencePolicy

	own []providerOption
}

// Option changes the [Options] of an access token, from which another
// credential is made. Callers use auth.Option.
type Option func(*Options)

// AudiencePolicy is the part of auth.Policy that providers ask, through the
// methods of [Options].
type AudiencePolicy interface {
	CheckAudience(audience string) error
	CheckSubjectToken(token string, audiences []string) error
}

// KubernetesClient is the part of the client of controller-runtime that auth
// uses. Every [client.Client] is one. For a clientset of client-go, package
// auth/clientgo makes one.
type KubernetesClient interface {
	// Get reads ServiceAccounts, and ConfigMaps for
	// GetClusterConfigFromConfigMap. Auth writes to neither, so a cache may
	// share its memory.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	// SubResource returns the client of a sub-resource. Auth calls its Create,
	// for the sub-resource "token" of ServiceAccounts.
	SubResource(name string) client.SubResourceClient
}

type providerOption struct{ key, value any }

// WithOption sets an option of one provider, as auth.WithProviderOption does.
func WithOption(key, value any) Option {
	set := providerOption{key, value}
	return func(o *Options) { o.own = append(slices.Clip(o.own), set) } // copies of the Options share the array
}

// Value returns the last value of an option of the provider's own
// ([WithOption]) for key, or nil.
func (o *Options) Value(key any) any {
	for i := len(o.own) - 1; i >= 0; i-- {
		if o.own[i].key == key {
			return o.own[i].value
		}
	}
	return nil
}

// Values returns all values of an option of the provider's own ([WithOption])
// for key, in the order of the options.
func (o *Options) Values(key any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range o.own {
			if o.own[i].key == key && !yield(o.own[i].value) {
				return
			}
		}
	}
}

// IsOwnIdentity reports whether the credential is for the controller's own
// identity.
func (o *Options) IsOwnIdentity() bool { return o.Subject == client.ObjectKey{} }

// SubjectClaim returns the claim sub of the subject token, which a service has
// to trust.
func (o *Options) SubjectClaim(serviceAccount *corev1.ServiceAccount) string {
	if o.TokenSubject != "" {
		return o.TokenSubject
	}
	return "system:serviceaccount:" + serviceAccount.Namespace + ":" + serviceAccount.Name
}

// IssuerName names the issuer of the subject token in the middle of a sentence.
func (o *Options) IssuerName() string {
	switch {
	case o.TokenIssuer != "":
		return fmt.Sprintf("the issuer %q", o.TokenIssuer)
	case o.TokenSubject != "":
		return "the issuer of the token"
	}
	return "the cluster's issuer"
}

// CheckAudience refuses an audience that a tenant chose, in an annotation for
// example, unless auth.Policy lists it.
func (o *Options) CheckAudience(audience string) error {
	if o.Policy == nil {
		return noPolicy()
	}
	return o.Policy.CheckAudience(audience)
}

// CheckSubjectToken refuses a Kubernetes token that does not have exactly the
// given audiences, has expired, or could be used against the API server. It
// serves providers that read the controller's own token.
func (o *Options) CheckSubjectToken(token string, audiences []string) error {
	if o.Policy == nil {
		return noPolicy()
	}
	return o.Policy.CheckSubjectToken(token, audiences)
}

func noPolicy() error {
	return &Error{Reason: ErrDenied, Message: "there is no policy for audiences",
		Remedy: "call the Get functions of package auth"}
}

// KeyBuilder collects the inputs of a credential for its key in the cache. No
// two different inputs give the same key. An empty input is left out. A
// KeyBuilder is not safe for concurrent use.
type KeyBuilder interface {
	// Add adds an input.
	Add(name, value string)
	// AddList adds an input that has several values, whose order counts.
	AddList(name string, values []string)
	// AddVariation adds an input that shapes the credential, but hardly ever
	// decides whether the exchange succeeds, such as the pod of a session. Keys
	// that differ only in variations back off together after failures. An input
	// that a tenant can easily get wrong for one object alone is not a
	// variation.
	AddVariation(name string, values []string)
}

// HTTPClients makes the HTTP clients of a [Provider]. Keep one HTTPClients in
// the Provider's value: it shares connections between calls, one set for each
// proxy. The zero value is ready for use. It is safe for concurrent use.
type HTTPClients struct{ pool transport.Pool }

// For returns the client for a call: [Options.HTTPClient], else one that uses
// [Options.ProxyURL], else one that uses the proxies of the environment.
//
// The client is safe to send a credential with. It refuses redirects, because
// another host must not get the credential. It reads at most 1 MiB of an
// answer, 64 KiB of one with a status from 400 on, and fails with
// [*http.MaxBytesError] beyond that. A request takes at most 20 seconds with
// its answer, unless the client of Options.HTTPClient has a time-out of its
// own. Options.ProxyURL carries https only, and never a request to the metadata
// service of the machine. Send credentials to https addresses only: the
// environment's HTTP_PROXY sees plain http.
func (c *HTTPClients) For(opts *Options) *http.Client {
	return c.pool.For(opts.HTTPClient, opts.ProxyURL)
}

// ForTokens returns the client of For for answers that hold only a token. It
// reads at most 64 KiB of each answer.
func (c *HTTPClients) ForTokens(opts *Options) *http.Client { return transport.ForTokens(c.For(opts)) }

// Redact makes a text that a service sent fit for [Error.Message], [Error.Code]
// or [Error.RequestID]. It returns one printable line of at most 300 bytes.
//
// The line holds none of the secrets, whether raw, URL-escaped or in base64, no
// JWT, and no value after "Bearer" or "Basic". Pass every secret that the
// request carried: services quote requests. Secrets of fewer than 8 bytes stay,
// and no other encoding is undone.
func Redact(text string, secrets ...string) string { return redact.Text(text, secrets...) }
