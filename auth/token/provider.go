package token

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// ProviderName is the name by which users pick this provider.
const ProviderName = "generic"

const self = provider.Name(ProviderName)

// defaultTokenFile is where the kubelet mounts a pod's own ServiceAccount
// token.
//
//nolint:gosec // a path, not a credential
const defaultTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Provider implements [auth.Provider] with the ServiceAccount's own tokens. The
// zero value is ready for use. It is safe for concurrent use, as long as its
// fields stay unchanged.
type Provider struct {
	// TokenFile is the controller's own token, for calls that name no
	// ServiceAccount. Empty: where the kubelet mounts a pod's own. A token with
	// the requested audiences is handed out unchanged. Any other token only
	// names the controller's ServiceAccount, and the client of auth.WithClient
	// requests a new token of it.
	TokenFile string
	// Registries are the artifact registries that may receive tokens. If it is
	// empty, no registry receives one.
	Registries []Registry
}

var (
	_ auth.Provider                = (*Provider)(nil)
	_ provider.CacheKeyContributor = (*Provider)(nil)
	_ provider.RESTConfigProvider  = (*Provider)(nil)
)

// GetName returns [ProviderName].
func (*Provider) GetName() string { return ProviderName }

// GetIdentity returns "", because the ServiceAccount itself is the identity.
func (*Provider) GetIdentity(*corev1.ServiceAccount, *provider.Options) (string, error) {
	return "", nil
}

// AddToCacheKey implements [provider.CacheKeyContributor]: the controller's own
// token depends on the cluster's address.
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, sa *corev1.ServiceAccount, opts *provider.Options) {
	if sa != nil {
		return
	}
	key.Add("tokenFile", p.TokenFile)
	if len(opts.Audiences) == 0 {
		key.Add("clusterAudience", cmp.Or(opts.ClusterAudience, opts.ClusterAddress))
	}
}

// GetAudiences returns the cluster's address, for callers that set no
// audiences. Only the cluster itself receives the token, so even an address
// that a tenant chose is safe.
func (*Provider) GetAudiences(_ context.Context, _ *corev1.ServiceAccount, opts *provider.Options) ([]string, error) {
	return defaultAudiences(opts)
}

func defaultAudiences(opts *provider.Options) ([]string, error) {
	switch {
	case len(opts.Audiences) > 0:
		return opts.Audiences, nil
	case opts.ClusterAddress != "":
		return []string{cmp.Or(opts.ClusterAudience, opts.ClusterAddress)}, nil
	}
	return nil, self.Misconfigured("set the audience",
		"there is no audience for the ServiceAccount token").About("auth.WithAudiences")
}

// NewTokenForServiceAccount returns the token unchanged.
func (*Provider) NewTokenForServiceAccount(_ context.Context, oidcToken string, _ *corev1.ServiceAccount,
	_ *provider.Options,
) (auth.Token, error) {
	return newToken(oidcToken)
}

// NewControllerToken returns a token of the controller's own ServiceAccount.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	audiences, err := defaultAudiences(opts)
	if err != nil {
		return nil, err
	}
	own, _, err := auth.NewFileTokenSource(p.tokenFile()).Token(ctx, audiences)
	if err != nil {
		return nil, err
	}
	claims, err := jwt.Parse(own)
	if err != nil {
		return nil, p.unusable(err)
	}
	if subset(audiences, claims.Audience) && subset(claims.Audience, audiences) {
		return p.checked(own, audiences, opts)
	}
	namespace, name, ok := serviceAccountOf(claims.Subject)
	if !ok {
		return nil, p.unusable(fmt.Errorf("its subject is %q", claims.Subject))
	}
	if opts.Client == nil {
		return nil, self.Misconfigured("mount a token with these audiences, or pass a client that requests one",
			"the token file %q has the audiences %q instead of %q", p.tokenFile(), claims.Audience,
			audiences).About("auth.WithClient")
	}
	token, _, err := (&auth.TokenRequest{
		Client:         opts.Client,
		ServiceAccount: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		Lifetime:       opts.TokenLifetime,
		BoundObject:    opts.BoundObject,
	}).Token(ctx, audiences)
	if err != nil {
		return nil, err
	}
	return p.checked(token, audiences, opts)
}

// checked refuses a token that another service accepts.
func (*Provider) checked(token string, audiences []string, opts *provider.Options) (auth.Token, error) {
	if err := opts.CheckSubjectToken(token, audiences); err != nil {
		return nil, err
	}
	return newToken(token)
}

func (p *Provider) tokenFile() string { return cmp.Or(p.TokenFile, defaultTokenFile) }

func (p *Provider) unusable(err error) error {
	return &auth.Error{Provider: ProviderName, Reason: auth.ErrMisconfigured, Err: err,
		Message: fmt.Sprintf("the token file %q is not a ServiceAccount token: %v", p.tokenFile(), err),
		Remedy:  "name the file of a projected ServiceAccount token"}
}

// newToken takes the expiry from the token itself, because the answer to a
// TokenRequest may state an earlier one.
func newToken(token string) (auth.Token, error) {
	claims, err := jwt.Parse(token)
	if err != nil {
		return nil, &auth.Error{Provider: ProviderName, Reason: auth.ErrUnavailable, Err: err,
			Message: fmt.Sprintf("the ServiceAccount token cannot be used: %v", err)}
	}
	if !claims.Expiry.After(time.Now()) {
		return nil, self.Unavailable("", "check that the clocks agree",
			"the ServiceAccount token has expired, or has no usable expiry")
	}
	shown := "ServiceAccount token, redacted, expires " + claims.Expiry.UTC().Format(time.RFC3339)
	return &Token{summary(shown), redact.New(token), claims.Expiry.Time}, nil
}

func serviceAccountOf(subject string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(subject, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
