package credentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// extras are the rare flags. Those of a provider's fields lead to the provider.
type extras struct {
	aws      aws.Provider
	azure    azure.Provider
	gcp      gcp.Provider
	exchange exchange.Provider

	allowShellOut bool
	tokenLifetime time.Duration
	boundObject   string

	assumeRoles       []string
	role              aws.AssumeRole // shapes the last of them
	sessionTags       []string
	sessionDuration   time.Duration
	sessionNamePrefix string

	delegates           []string
	accessTokenLifetime time.Duration
	idTokenAudience     string

	clientID, clientSecretFile string
}

// providers are all that the library has.
func (id *Identity) providers() []auth.Provider {
	// The flag asks for the longer lifetime explicitly, and the organization's policy still decides.
	id.gcp.AllowExtendedLifetime = true
	id.exchange.Client = id.exchangeClient()
	if len(id.audiences) == 1 {
		id.exchange.KubernetesAudience = id.audiences[0]
	}
	return []auth.Provider{&id.aws, &id.azure, &id.gcp, &token.Provider{}, &id.exchange}
}

func (id *Identity) exchangeClient() exchange.ClientAuthentication {
	switch {
	case id.clientID == "":
		return nil
	case id.clientSecretFile == "":
		return exchange.PublicClient(id.clientID)
	}
	return exchange.ClientSecretBasic(id.clientID, func(context.Context) (string, error) {
		content, err := id.clientSecret()
		return strings.TrimSpace(string(content)), err
	})
}

func providerNames() []string {
	return []string{aws.ProviderName, azure.ProviderName, gcp.ProviderName, token.ProviderName, exchange.ProviderName}
}

// Named returns the provider of --provider.
func (id *Identity) Named() (auth.Provider, error) {
	if id.Provider == "" {
		return nil, cli.Usagef("name the provider with --provider, one of: %s", strings.Join(providerNames(), ", "))
	}
	set, err := auth.NewProviderSet(id.providers()...)
	if err != nil {
		return nil, err
	}
	return set.Get(id.Provider)
}

// resolveNamed is resolve for commands whose provider is that of --provider, or the only cloud in the ServiceAccount's annotations.
func (id *Identity) resolveNamed(ctx context.Context) (*source, auth.Provider, error) {
	s, err := id.resolve(ctx)
	switch {
	case err != nil || id.Provider != "" || s.account == nil:
	case s.readErr != nil:
		err = cli.AnswerOf(s.readErr, fmt.Sprintf("read ServiceAccount %q", id.ServiceAccount))
	default:
		err = id.Detect(s.account)
	}
	if err != nil {
		return nil, nil, err
	}
	provider, err := id.Named()
	return s, provider, err
}

// Detect sets --provider from the annotations.
func (id *Identity) Detect(sa *corev1.ServiceAccount) error {
	found, name := CloudsOf(sa), client.ObjectKeyFromObject(sa).String()
	switch len(found) {
	case 0:
		return cli.Usagef("ServiceAccount %q has no annotation of a cloud, but %.500q: annotate it, or name the provider with --provider, one of: %s",
			name, slices.Sorted(maps.Keys(sa.Annotations)), strings.Join(providerNames(), ", "))
	case 1:
		if err := id.Flags.Set("provider", found[0]); err != nil {
			return err
		}
		return id.checkEffect()
	}
	return cli.Usagef("ServiceAccount %q has annotations of %s: pick one with --provider", name, strings.Join(found, " and "))
}

// CloudsOf returns the providers whose annotations the ServiceAccount has.
func CloudsOf(sa *corev1.ServiceAccount) (found []string) {
	for _, cloud := range [][]string{{aws.ProviderName, aws.RoleARNAnnotation}, {azure.ProviderName, azure.ClientIDAnnotation},
		{gcp.ProviderName, gcp.ServiceAccountAnnotation, gcp.WorkloadIdentityProviderAnnotation}} {
		if slices.ContainsFunc(cloud[1:], func(key string) bool { return sa.Annotations[key] != "" }) {
			found = append(found, cloud[0])
		}
	}
	return found
}

// errNotOurs is wrapped by errors for hosts of no known provider.
var errNotOurs = errors.New("the host belongs to no provider")

// at returns the provider of --provider, or the first one for which check does not return errNotOurs.
func (id *Identity) at(host string, check func(p auth.Provider, o *provider.Options) error) (auth.Provider, error) {
	if id.Provider != "" {
		return id.Named()
	}
	opts, err := id.Options()
	if err != nil {
		return nil, err
	}
	var o auth.Options
	for _, opt := range opts {
		opt(&o)
	}
	for _, p := range id.providers() {
		if err := check(p, &o.Options); !errors.Is(err, errNotOurs) {
			return p, err
		}
	}
	return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: errNotOurs, Message: fmt.Sprintf("%.300q is of no provider, so it gets no credential", host),
		Remedy: "set wid up for hosts of AWS, Azure and Google Cloud only"}
}

func (id *Identity) atRegistry(host string) (auth.Provider, error) {
	return id.at(host, func(p auth.Provider, o *provider.Options) error {
		r, ok := p.(provider.ArtifactRegistryCredentialsProvider)
		if !ok {
			return errNotOurs
		}
		_, err := r.ParseArtifactRepository(host, o)
		if owner, ok := p.(provider.RegistryOwner); err != nil && (!ok || !owner.OwnsRegistry(host)) {
			return errNotOurs
		}
		return err
	})
}

func (id *Identity) atRepository(u *url.URL) (auth.Provider, error) {
	return id.at(u.Redacted(), func(p auth.Provider, o *provider.Options) error {
		g, ok := p.(provider.GitCredentialsProvider)
		if !ok || u.Scheme != "https" {
			return errNotOurs
		}
		if _, err := g.ParseGitRepository(u, o); err == nil || p == &id.aws && isCodeCommit(u.Host) { // the exchange explains a wrong path
			return nil
		}
		return errNotOurs
	})
}

// isCodeCommit reports whether the host is one of CodeCommit, whose credentials are for one repository each.
func isCodeCommit(host string) bool {
	_, err := (&aws.Provider{}).ParseGitRepository(&url.URL{Host: host, Path: "/v1/repos/any"}, &provider.Options{})
	return err == nil
}

// Options are those that do not depend on the identity. Providers ignore the options of others. Audiences are the caller's own
// choice here, annotations are not.
func (id *Identity) Options() ([]auth.Option, error) {
	opts, err := id.assumedRoles()
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(id.proxyURL)
	if err != nil {
		return nil, cli.Usagef("--proxy-url is not a URL")
	}
	bound, err := parseBoundObject(id.boundObject)
	if err != nil {
		return nil, err
	}
	policy := auth.Policy{Audiences: slices.Concat(id.audiences, []string{id.idTokenAudience}), APIServerAudiences: id.apiServerAudiences}
	opts = append(opts, auth.WithPolicy(policy), auth.WithAudiences(id.audiences...), auth.WithScopes(id.scopes...),
		auth.WithSTSRegion(id.region), auth.WithSTSEndpoint(id.stsEndpoint), auth.WithHTTPClient(id.HTTPClient), gcp.WithDelegates(id.delegates...))
	for _, o := range []struct {
		isSet  bool
		option auth.Option
	}{
		{id.proxyURL != "", auth.WithProxyURL(*proxy)},
		{id.allowShellOut, auth.WithAllowShellOut()},
		{id.boundObject != "", auth.WithBoundObject(bound)},
		{id.changed("token-lifetime"), auth.WithTokenLifetime(id.tokenLifetime)},
		{id.changed("session-duration"), aws.WithSessionDuration(id.sessionDuration)},
		{id.changed("session-name-prefix"), aws.WithSessionNamePrefix(id.sessionNamePrefix)},
		{id.changed("access-token-lifetime"), gcp.WithLifetime(id.accessTokenLifetime)},
		{id.idTokenAudience != "", gcp.WithIDTokenAudience(id.idTokenAudience)},
	} {
		if o.isSet {
			opts = append(opts, o.option)
		}
	}
	return opts, nil
}

// parseBoundObject wants the UID: a token that is kept must not outlive the object for another one of that name.
func parseBoundObject(s string) (ref authenticationv1.BoundObjectReference, err error) {
	parts := strings.Split(s, "/")
	switch {
	case s == "":
	case len(parts) != 3 || !slices.Contains([]string{"Pod", "Secret", "Node"}, parts[0]), slices.Contains(parts, ""):
		err = cli.Usagef("--bound-object is Pod/<name>/<UID>, or the same of a Secret or a Node, not %.300q", s)
	default:
		ref = authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: parts[0], Name: parts[1], UID: types.UID(parts[2])}
	}
	return ref, err
}

// assumedRoles is the chain of roles, the last one with all that shapes it.
func (id *Identity) assumedRoles() (opts []auth.Option, err error) {
	last := id.role
	if last.Tags, err = Pairs("session-tag", id.sessionTags); err != nil {
		return nil, err
	}
	for n, arn := range id.assumeRoles {
		role := aws.AssumeRole{}
		if n == len(id.assumeRoles)-1 {
			role = last
		}
		role.RoleARN = arn
		opts = append(opts, aws.WithAssumeRole(role))
	}
	return opts, nil
}
