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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// providers are all that the library has.
func (id *Identity) providers() []auth.Provider {
	// The flag asks for the longer lifetime explicitly, and the organization's
	// policy still decides.
	id.gcp.AllowExtendedLifetime = true
	id.exchange.Client = id.exchangeClient()
	if len(id.audiences) == 1 {
		id.exchange.KubernetesAudience = id.audiences[0]
	}
	last := &id.exchange
	if id.service.service != "" {
		last = id.service.provider(id.exchange.KubernetesAudience)
	}
	return []auth.Provider{&id.aws, &id.azure, &id.gcp, &token.Provider{}, last}
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
	if err := id.service.check(); err != nil {
		return nil, err
	}
	set, err := auth.NewProviderSet(id.providers()...)
	if err != nil {
		return nil, err
	}
	if id.Provider == exchange.ProviderName && id.service.service != "" {
		return set.Get(id.service.service)
	}
	return set.Get(id.Provider)
}

// resolveNamed is resolve for commands whose provider comes from --provider, or
// is the only cloud in the ServiceAccount's annotations.
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
		has := "no annotations"
		if len(sa.Annotations) > 0 {
			has = fmt.Sprintf("no annotation of a cloud, but %.500q", slices.Sorted(maps.Keys(sa.Annotations)))
		}
		return cli.Usagef("ServiceAccount %q has %s: annotate it, or name the provider with --provider, one of: %s", name,
			has, strings.Join(providerNames(), ", "))
	case 1:
		if err := id.Flags.Set("provider", found[0]); err != nil {
			return err
		}
		return id.checkEffect()
	}
	return cli.Usagef("ServiceAccount %q has annotations of %s: pick one with --provider", name,
		strings.Join(found, " and "))
}

// CloudsOf returns the providers whose annotations the ServiceAccount has.
func CloudsOf(sa *corev1.ServiceAccount) (found []string) {
	for _, cloud := range [][]string{{aws.ProviderName, aws.RoleARNAnnotation},
		{azure.ProviderName, azure.ClientIDAnnotation},
		{gcp.ProviderName, gcp.ServiceAccountAnnotation, gcp.WorkloadIdentityProviderAnnotation}} {
		if slices.ContainsFunc(cloud[1:], func(key string) bool { return sa.Annotations[key] != "" }) {
			found = append(found, cloud[0])
		}
	}
	return found
}

// errNotOurs is wrapped by errors for hosts of no known provider.
var errNotOurs = errors.New("the host belongs to no provider")

// at returns the provider of --provider, or the first one for which check does
// not return errNotOurs.
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
	return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: errNotOurs,
		Message: fmt.Sprintf("%.300q is of no provider, so it gets no credential", host),
		Remedy:  "set wid up for hosts of AWS, Azure and Google Cloud only"}
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
		// the exchange explains a wrong path
		if _, err := g.ParseGitRepository(u, o); err == nil || p == &id.aws && isCodeCommit(u.Host) {
			return nil
		}
		return errNotOurs
	})
}

// isCodeCommit reports whether the host is one of CodeCommit, whose credentials
// are for one repository each.
func isCodeCommit(host string) bool {
	_, err := (&aws.Provider{}).ParseGitRepository(&url.URL{Host: host, Path: "/v1/repos/any"}, &provider.Options{})
	return err == nil
}

// Options are those that do not depend on the identity. Providers ignore the
// options of others. Audiences are the caller's own choice here, annotations
// are not.
func (id *Identity) Options() ([]auth.Option, error) {
	opts, err := id.assumedRoles()
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(id.proxyURL)
	if err != nil {
		return nil, cli.Usagef("--proxy-url is not a URL")
	}
	policy := auth.Policy{Audiences: slices.Concat(id.audiences, []string{id.idTokenAudience}),
		APIServerAudiences: id.apiServerAudiences}
	opts = append(opts, auth.WithPolicy(policy), auth.WithAudiences(id.audiences...), auth.WithScopes(id.scopes...),
		auth.WithSTSRegion(id.region), auth.WithSTSEndpoint(id.stsEndpoint), auth.WithHTTPClient(id.HTTPClient),
		gcp.WithDelegates(id.delegates...))
	for _, o := range []struct {
		isSet  bool
		option auth.Option
	}{
		{id.proxyURL != "", auth.WithProxyURL(*proxy)},
		{id.allowShellOut, auth.WithAllowShellOut()},
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

type request struct {
	kind     string
	provider auth.Provider
	// target is the registry, the repository or the cluster.
	target []string
	// mint gets the credential from the library.
	mint func(ctx context.Context, opts []auth.Option) (*credential, error)
}

func forAccess(p auth.Provider) request {
	return request{"access-token", p, nil, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		t, err := auth.GetAccessToken(ctx, p, opts...)
		if err != nil {
			return nil, err
		}
		return fromAccessToken(p, t)
	}}
}

func forRegistry(p auth.Provider, host string) request {
	return request{"registry", p, []string{host}, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		r, err := auth.GetArtifactRegistryCredentials(ctx, p, host, opts...)
		if err != nil {
			return nil, err
		}
		login, err := r.Authorization()
		if err != nil {
			return nil, err
		}
		return &credential{GitCredential: plugin.GitCredential{Username: login.Username, Password: login.Password,
			Expires: r.ExpiresAt()}}, nil
	}}
}

func forRepository(p auth.Provider, u *url.URL) request {
	return request{"git", p, []string{u.String()}, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		g, err := auth.GetGitCredentials(ctx, p, append(slices.Clip(opts), auth.WithGitURL(*u))...)
		if err != nil {
			return nil, err
		}
		return &credential{GitCredential: plugin.GitCredential{Username: g.Username(), Password: g.Password(),
			BearerToken: g.BearerToken(), Expires: g.ExpiresAt()}}, nil
	}}
}

func forCluster(p auth.Provider, t target, ca []byte) request {
	return request{"cluster", p, []string{t.resource, t.address, string(ca), t.name, string(t.presented)},
		func(ctx context.Context, opts []auth.Option) (*credential, error) {
			config, err := auth.GetRESTConfig(ctx, p, slices.Concat(opts, t.options(ca))...)
			if err != nil {
				return nil, err
			}
			if err := t.checkPresented(config.CAData()); err != nil {
				return nil, err
			}
			return bearer(config.BearerToken(), config.ExpiresAt()), nil
		}}
}

func bearer(token string, expires time.Time) *credential {
	return &credential{GitCredential: plugin.GitCredential{BearerToken: token, Expires: expires}}
}

func fromAccessToken(p auth.Provider, t auth.Token) (*credential, error) {
	switch t := t.(type) {
	case *aws.Token:
		k := t.Credentials()
		c := bearer("", t.ExpiresAt())
		c.Identity = t.AssumedRoleARN()
		c.Keys = plugin.ProcessCredentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey,
			SessionToken: k.SessionToken,
			AccountID:    t.AccountID(), Expires: t.ExpiresAt()}
		return c, nil
	case *azure.Token:
		return bearer(t.AccessToken().Token, t.ExpiresAt()), nil
	case *gcp.Token:
		return bearer(t.AccessToken(), t.ExpiresAt()), nil
	case *gcp.IDToken:
		c := bearer("", t.ExpiresAt())
		c.IDToken = t.Value()
		return c, nil
	case *token.Token:
		return bearer(t.Reveal(), t.ExpiresAt()), nil
	case *exchange.Token:
		return bearer(t.Reveal(), t.ExpiresAt()), nil
	}
	return nil, fmt.Errorf("the provider %q has tokens of type %T, which wid does not know", p.GetName(), t)
}
